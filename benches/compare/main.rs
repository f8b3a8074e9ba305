//! Compares the proxy with its peers: nginx, HAProxy, and the proxies of Portkey, headroom and
//! LiteLLM, each before the same mock provider, in one run in which they alternate.
//!
//! `cargo bench --bench compare` installs what is missing and measures everything within 20
//! minutes; `-- --peers nginx,plimsoll --rounds 3 --loads 1k,100k,1m` measures a part in two
//! minutes; `-- --help` lists all options. `--write` puts tables into docs/benchmarks.md and plots
//! into docs/measured.
//!
//! The measured peer runs on one core, provider and load on another, and all other peers are
//! stopped. Each turn is a slice of time instead of a number of requests, since the slowest peers
//! take hundreds of times as long as the fastest. The order changes from round to round. Figures
//! are medians of the rounds, "added" is the difference to no proxy in the same round, and ratios
//! are medians of the ratios to nginx in the same round. A refusal by a peer is shown, never left
//! out.

mod bodies;
mod client;
mod figures;
mod growing;
mod load;
mod page;
mod peers;
mod plot;
mod process;
mod provider;
mod run;
mod table;

#[allow(
    unused_imports,
    clippy::unwrap_used,
    reason = "shared with the tests, which use all of it"
)]
#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::io::{self, Write};

use clap::Parser;

use self::{
    bodies::SIZES,
    figures::{DIRECT, LoadKind},
    peers::NAMES,
};

/// Compares the proxy with its peers.
#[derive(Parser)]
pub(crate) struct Options {
    /// Peers to measure, beside `direct`: nginx, haproxy, plimsoll-off (guard off), plimsoll,
    /// plimsoll-trim, portkey, headroom, litellm [default: all]
    #[arg(long, value_delimiter = ',', value_parser = NAMES)]
    peers: Vec<String>,
    /// Bodies [default: all]
    #[arg(long, value_delimiter = ',', value_parser = SIZES.map(|it| it.name))]
    loads: Vec<String>,
    /// Loads to measure [default: all]
    #[arg(long, value_delimiter = ',')]
    measure: Vec<LoadKind>,
    /// Rounds; slow peers have at most two
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Length of a turn, in hundredths of the usual
    #[arg(long, default_value_t = 100)]
    slice: u32,
    /// Bodies with few escapes (prose) instead of many (code, JSON inside JSON)
    #[arg(long)]
    light: bool,
    /// Install nothing; missing peers are listed as missing
    #[arg(long)]
    no_install: bool,
    /// Put the tables into docs/benchmarks.md and the plots into docs/measured
    #[arg(long)]
    write: bool,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn peers(&self) -> Vec<&'static str> {
        let wanted = |name: &&str| {
            self.peers.is_empty() || *name == DIRECT || self.peers.iter().any(|it| it == name)
        };
        NAMES.into_iter().filter(wanted).collect()
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    process::pin_this_thread()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let found = runtime.block_on(run::run(&options))?;
    if options.write {
        page::write(&found)?;
    }
    let mut out = io::stdout().lock();
    write!(out, "{}", table::tables(&found))
}
