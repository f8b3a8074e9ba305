//! What it costs that recovery begins early: sessions of 300 steps through the proxy, with a model that ignores every prompt
//! and one that follows them, critical from the default on, and from where it hardly ever comes.

use std::io::{self, Write};

use plimsoll::config::ModelConfig;

use crate::support::{
    Agent, Mixing, ModelSetup, NoticeManner, Worker, cache::PromptCache, count::TokenCounter,
    model_with_window, words,
};

const STEPS: usize = 300;
/// The user says something after so many steps.
const TURN: u32 = 25;
const WINDOWS: [u32; 2] = [32_768, 131_072];

#[derive(Default)]
struct SessionFigures {
    courses: u32,
    prompts: [usize; 2],
    requests: usize,
    tokens: u64,
    cached: u64,
    /// What the user said that the last request has, of all.
    said: [usize; 2],
}

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nrecovery: {STEPS} steps, a word of the user every {TURN}; tokens by o200k. Cost: uncached prompt tokens and a tenth of \
         the cached ones,\nof all requests, in thousands; said: what the user said that the last request still has\n"
    )?;
    writeln!(
        out,
        "{:>8}  {:<8} {:>14} {:>8} {:>8} {:>9} {:>9} {:>7} {:>7} {:>7}",
        "window",
        "model",
        "critical",
        "courses",
        "caution",
        "critical",
        "requests",
        "cached",
        "cost",
        "said"
    )?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let counter = TokenCounter::o200k();
    for window in WINDOWS {
        for (name, manner) in [
            ("ignores", NoticeManner::Ignores),
            ("follows", NoticeManner::Follows),
        ] {
            for (from, critical) in [
                ("default", None),
                // As it was before: 97 % of the budget.
                ("97 %", Some((window - 1_365) * 97 / 100)),
            ] {
                let found = runtime.block_on(run_session(window, manner, critical, &counter));
                let share = found.cached as f64 / found.tokens as f64;
                let cost = (found.tokens - found.cached) as f64 + 0.1 * found.cached as f64;
                writeln!(
                    out,
                    "{window:>8}  {name:<8} {from:>14} {:>8} {:>8} {:>9} {:>9} {share:>7.3} {:>7.0} {:>7}",
                    found.courses,
                    found.prompts[0],
                    found.prompts[1],
                    found.requests,
                    cost / 1_000.0,
                    format!("{}/{}", found.said[0], found.said[1]),
                )?;
            }
        }
    }
    Ok(())
}

async fn run_session(
    window: u32,
    manner: NoticeManner,
    critical: Option<u32>,
    counter: &TokenCounter,
) -> SessionFigures {
    let mut worker = Worker::new(manner, Mixing::Never);
    worker.turn = TURN;
    let up = ModelSetup::new(window)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let settings = ModelConfig {
        critical_max_tokens: critical,
        ..model_with_window(window)
    };
    let proxy = up.provider.proxy().model("m", settings).start().await;
    let mut agent = Agent::new(&proxy).set("model", "m");
    // A window is full after some 70 steps.
    agent.result = match window {
        32_768 => |nth| words(350, nth),
        _ => |nth| words(1_400, nth),
    };
    let mut found = SessionFigures::default();
    let mut cache = PromptCache::new(counter);
    let mut seen = 0;
    for _ in 0..STEPS {
        let generation = agent.step().await;
        found.courses = generation.course();
        match generation.injected() {
            Some("caution") => found.prompts[0] += 1,
            Some("critical") => found.prompts[1] += 1,
            _ => {}
        }
        let requests = up.provider.requests(0).await;
        for request in &requests[seen..] {
            let hit = cache.request(&request.body);
            found.tokens += hit.prompt;
            found.cached += hit.cached;
        }
        seen = requests.len();
    }
    found.requests = seen;
    let last = String::from_utf8_lossy(&up.provider.last_request().body).into_owned();
    let said = (1..).map(|turn| (agent.user)(turn));
    let said: Vec<String> = said.take(STEPS / TURN as usize - 1).collect();
    let there = said.iter().filter(|text| last.contains(*text)).count();
    found.said = [there, said.len()];
    found
}
