//! Sessions of an agent whose model binds its reasoning to what stood before it: the provider refuses none of them.

mod exchanges;
mod made_by_provider;
mod provider_summaries;
mod server_clearing;

use std::{
    mem::take,
    sync::{Arc, Mutex},
};

use plimsoll::{config::Auth, guard::profile::find_profile};

use crate::support::{
    bound::{BoundApi, BoundModel},
    bound_provider::{BoundLog, BoundSettings, start_bound_provider},
    bound_sessions::{DrawnSession, KeptState, NEEDLESS, run_sessions},
    *,
};

const WINDOW: u32 = 8_000;

const BOUND: &str = "up/claude-sonnet-5-5";
const UNBOUND: &str = "up/claude-opus-5";

/// An agent, its proxy and provider, and what the provider saw.
struct AgentSession {
    agent: MessagesAgent,
    log: Arc<Mutex<BoundLog>>,
    _proxy: RunningProxy,
    _provider: ScriptedProvider,
}

impl AgentSession {
    /// `proxy_calls`: percent of the answers that call a tool of the proxy.
    async fn start(
        seed: u64,
        model: &str,
        proxy_calls: u32,
        change: impl Fn(ProxyBuilder) -> ProxyBuilder,
    ) -> Self {
        let settings = BoundSettings {
            seed,
            api: BoundApi::Messages,
            model: BoundModel::default(),
            window: WINDOW as usize,
            proxy_calls,
        };
        let (provider, log) = start_bound_provider(settings).await;
        let proxy = change(provider.proxy())
            .providers(|it| it.profile = find_profile("anthropic").unwrap())
            .model("*", model_with_window(WINDOW))
            .set(|config| config.guard.reserve_tokens = None)
            .start()
            .await;
        let mut agent = MessagesAgent::new(&proxy).set("model", model);
        agent.fields["stream"] = seed.is_multiple_of(2).into();
        agent.result = 120;
        Self {
            agent,
            log,
            _proxy: proxy,
            _provider: provider,
        }
    }

    fn take_log(&self) -> BoundLog {
        take(&mut *self.log.lock().unwrap())
    }
}

async fn run_session(
    seed: u64,
    steps: usize,
    change: impl Fn(ProxyBuilder) -> ProxyBuilder,
) -> BoundLog {
    let mut session = AgentSession::start(seed, BOUND, 10, change).await;
    session.agent.steps(steps).await;
    session.take_log()
}

#[tokio::test]
async fn no_request_of_an_agent_is_refused() {
    for seed in 0..8 {
        let log = run_session(seed, 60, |proxy| proxy).await;
        assert_eq!(log.broken, Vec::<String>::new(), "seed {seed}");
        assert_eq!(log.refused, Vec::<String>::new(), "seed {seed}");
        assert_eq!(log.stale, 0, "seed {seed}");
        println!(
            "{seed}: {} requests, {} too long, open {}/{}, recent {}/{}",
            log.requests,
            log.too_long,
            log.open_with,
            log.open_without,
            log.recent_kept,
            log.recent
        );
    }
}

/// A model whose name no rule knows: where the provider's list says that it always thinks, no request is refused. Without the
/// list, refusals teach it.
#[tokio::test]
async fn the_list_of_models_says_whose_reasoning_may_be_bound() {
    for asks in [true, false] {
        let ask = |proxy: ProxyBuilder| {
            proxy.providers(|it| {
                it.auth = Auth::None;
                it.ask_models = Some(asks);
            })
        };
        let mut session = AgentSession::start(0, "up/claude-saga-1", 0, ask).await;
        let client = session._proxy.client();
        let listed = client.get("/v1/models").await;
        let listed = listed.text();
        assert_eq!(listed.contains("up/claude-saga-1"), asks, "{listed}");
        session.agent.steps(60).await;
        let log = session.take_log();
        assert_eq!(log.broken, Vec::<String>::new());
        assert_eq!(log.refused.is_empty(), asks, "{:?}", log.refused);
    }
}

/// A client that clears its old results one by one: each request continues a state from before the refusals. After two of
/// them its session knows what to do.
#[tokio::test]
async fn a_client_that_edits_each_request_is_not_refused_each_time() {
    for takes_drop in [true, false] {
        let settings = BoundSettings {
            seed: 1,
            api: BoundApi::Messages,
            model: BoundModel::default(),
            window: 128_000,
            proxy_calls: 0,
        };
        let (provider, log) = start_bound_provider(settings).await;
        let proxy = provider
            .proxy()
            .providers(|it| it.profile = find_profile("anthropic").unwrap());
        let proxy = proxy.start().await;
        let mut agent = MessagesAgent::new(&proxy)
            .set("model", "up/claude-sonnet-5-5")
            .with("x-plimsoll-session", "mends");
        if !takes_drop {
            agent.fields["thinking"] = serde_json::json!({"type": "between_tools"});
        }
        for _ in 0..30 {
            agent.step().await;
            clear_result(&mut agent.fields["messages"], 5);
        }
        let refused = log.lock().unwrap().refused.len();
        assert!((1..=2).contains(&refused), "{refused}");
    }
}

/// Clears the newest result but so many.
fn clear_result(entries: &mut serde_json::Value, kept: usize) {
    let results = entries.as_array_mut().unwrap().iter_mut().rev();
    let blocks = results.filter_map(|entry| entry["content"].as_array_mut());
    let mut results = blocks.flatten().filter(|it| it["type"] == "tool_result");
    if let Some(result) = results.nth(kept) {
        result["content"] = "[cleared]".into();
    }
}

/// Sessions by their seeds: `REASONING_FIRST` and the `REASONING_COUNT` behind it, to look into a failure.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str, default| {
        let set = std::env::var(name).ok();
        set.map_or(default, |it| it.parse().unwrap())
    };
    let first = number("REASONING_FIRST", 0);
    first..first + number("REASONING_COUNT", count)
}

async fn check_sessions(sessions: impl Iterator<Item = DrawnSession>, kept: KeptState) {
    let (figures, failures) = run_sessions(sessions, 16, kept).await;
    assert!(
        failures.is_empty(),
        "{failures:#?} {figures:#?}\nOne alone: REASONING_FIRST=seed REASONING_COUNT=1 cargo test --test it -- \
         bound_reasoning::"
    );
    let figure = |name: &str| figures.get(name).copied().unwrap_or(0);
    let (read, needless) = (figure("reasoning that was read"), figure(NEEDLESS));
    assert!(needless * 50 <= read, "{needless} of {read}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_sessions_keep_their_reasoning() {
    check_sessions(seeds(2_000).map(DrawnSession::new), KeptState::Always).await;
}

/// While the provider makes a summary, the proxy's tools may come: it stands for a beginning without them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_summary_of_the_provider_keeps_no_thinking_of_a_changed_beginning() {
    let late = seeds(300).flat_map(|seed| {
        (1..6).filter_map(move |requests| {
            let mut session = DrawnSession::with_events(seed);
            session.summaries_late_by = requests;
            session.is_summarised_by_provider().then_some(session)
        })
    });
    let (figures, failures) = run_sessions(late, 8, KeptState::Always).await;
    assert!(figures["requests that begin with the provider's summary"] > 100);
    assert_eq!(failures, []);
}

/// The cuts that the request made in place of its summary would leave room for the summary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_has_no_summary_where_its_request_left_it_out() {
    let sessions = [398].into_iter().map(DrawnSession::with_events);
    let (figures, failures) = run_sessions(sessions, 1, KeptState::Always).await;
    assert!(figures["repeats"] > 0);
    assert_eq!(failures, []);
}

/// Also in the midst of a turn with rounds of the proxy, whose echo cannot be split any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_lose_their_state_are_healed() {
    check_sessions(seeds(150).map(DrawnSession::new), KeptState::Loses).await;
}

/// At accounts with the check, and at older ones, where it only tells what is stale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_300_steps_are_not_refused() {
    let accounts = [BoundModel::default(), BoundModel::old()];
    let sessions = accounts.into_iter().flat_map(|account| {
        let windows = [32_768, 131_072].into_iter().enumerate();
        windows.map(move |(nth, window)| DrawnSession::long(nth as u64, window, account.clone()))
    });
    check_sessions(sessions, KeptState::Always).await;
}
