//! The proxy beside its peers: nginx, HAProxy, Portkey's gateway, headroom's and LiteLLM's proxies, each
//! in front of the same mock provider, in one run in which they take turns.
//!
//! `cargo bench --bench compare` installs what is missing and measures all of it, within a quarter of an
//! hour; `-- --peers nginx,plimsoll --rounds 3 --loads 1k,100k,1m` a part, in a minute or so; `-- --help`
//! tells the rest. `--write` puts tables into docs/benchmarks.md and plots into docs/measured.
//!
//! Whoever is measured runs on one core, provider and load on another, and the peers whose turn it is not
//! are stopped. Each turn is a slice of time and not a number of requests, since the slowest peers take
//! hundreds of times as long as the fastest. Who comes first changes from round to round; figures
//! are medians of the rounds, "added" is the difference to no proxy in the same round, and ratios are
//! medians of the ratios to nginx in the same round. What a peer refuses is shown, never left out.

mod bodies;
mod client;
mod figures;
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

use self::{bodies::SIZES, figures::DIRECT, load::LoadKind, peers::NAMES};

/// Measures the proxy beside its peers.
#[derive(Parser)]
pub(crate) struct Options {
    /// Who is measured, beside `direct`: nginx, haproxy, plimsoll-off (guard off), plimsoll, plimsoll-trim,
    /// portkey, headroom, litellm [default: all]
    #[arg(long, value_delimiter = ',', value_parser = NAMES)]
    peers: Vec<String>,
    /// Bodies [default: all]
    #[arg(long, value_delimiter = ',', value_parser = SIZES.map(|it| it.name))]
    loads: Vec<String>,
    /// What is measured [default: all]
    #[arg(long, value_delimiter = ',')]
    measure: Vec<LoadKind>,
    /// Rounds; slow peers have at most two
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// How long a turn lasts, in hundredths of the usual
    #[arg(long, default_value_t = 100)]
    slice: u32,
    /// Bodies with few escapes (prose) instead of many (code, JSON inside JSON)
    #[arg(long)]
    light: bool,
    /// Install nothing; a peer that is not there is told as such
    #[arg(long)]
    no_install: bool,
    /// Put the tables into docs/benchmarks.md and the plots into docs/measured
    #[arg(long)]
    write: bool,
    /// Said by `cargo bench`
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
