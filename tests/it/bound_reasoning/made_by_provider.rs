//! `compaction.by = "provider"`: the provider summarises on demand by the safe cut, so that the thinking behind stays. Where it
//! does not, the model does.

use std::{
    mem::take,
    sync::{Arc, Mutex},
    time::Duration,
};

use plimsoll::{
    config::{CacheMarkers, SummaryMaker},
    guard::profile::find_profile,
    store::Store,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BOUND, UNBOUND};
use crate::{
    compaction::sections,
    support::{
        block_cache::{BlockCache, CacheRule},
        bound::{BoundApi, BoundModel, Host},
        bound_provider::{BoundLog, BoundSettings, start_scripted_bound_provider},
        count::TokenCounter,
        generate::Random,
        model::notice::summary_key,
        *,
    },
};

/// An agent whose conversation is summarised: by whom, and at what provider.
#[derive(Clone)]
struct Setup {
    seed: u64,
    by: SummaryMaker,
    model: &'static str,
    account: BoundModel,
    window: u32,
    recovery: bool,
    /// How long a request waits for its summary.
    wait: Duration,
}

struct SummarisedAgent {
    setup: Setup,
    agent: MessagesAgent,
    log: Arc<Mutex<BoundLog>>,
    /// How often the proxy is replaced by another one over the same store; 0: never.
    restart_every: usize,
    proxy: RunningProxy,
    provider: ScriptedProvider,
    store: Arc<dyn Store>,
    data: TempDir,
}

/// What a session came to.
struct Outcome {
    log: BoundLog,
    /// Requests of the agent that went out with a summary for the first time.
    compacted: usize,
    /// Requests for a summary: of the provider's own, and of a text.
    asked: [usize; 2],
    /// Requests of the agent that begin with a block.
    blocked: usize,
    /// Thinking in the requests that went out with a summary for the first time.
    first_kept: usize,
    /// Of the thinking of the ten newest answers before each request with a summary, how much was there; percent.
    kept: usize,
    /// Of all tokens of the agent's requests, those from the cache; percent.
    cached: u64,
}

fn setup(seed: u64, window: u32, by: SummaryMaker) -> Setup {
    Setup {
        seed,
        by,
        model: BOUND,
        // The markers of the proxy make a block of a string.
        account: BoundModel {
            equates_strings: true,
            ..BoundModel::default()
        },
        window,
        recovery: false,
        wait: Duration::ZERO,
    }
}

impl Setup {
    async fn start(&self) -> SummarisedAgent {
        let settings = BoundSettings {
            seed: self.seed,
            api: BoundApi::Messages,
            model: self.account.clone(),
            window: self.window as usize,
            proxy_calls: 5,
        };
        let generating = settings.clone();
        let script = move |body: &Value, nth: usize| match summary_key(body) {
            Some(key) => vec![json!({"type": "text", "text": sections(&key, nth)})],
            None => {
                let mut random = Random::for_part(generating.seed, 100 + nth as u64);
                generating.write_blocks(body, &mut random)
            }
        };
        let (provider, log) = start_scripted_bound_provider(settings, script).await;
        let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
        let proxy = self.start_proxy(&provider, &store, &data).await;
        let mut agent = MessagesAgent::new(&proxy).set("model", self.model);
        agent.fields["stream"] = self.seed.is_multiple_of(2).into();
        // The proxy sets the markers.
        agent.fields["system"] = "You mend ships.".into();
        SummarisedAgent {
            setup: self.clone(),
            agent,
            log,
            restart_every: 0,
            proxy,
            provider,
            store,
            data,
        }
    }

    async fn start_proxy(
        &self,
        provider: &ScriptedProvider,
        store: &Arc<dyn Store>,
        data: &TempDir,
    ) -> RunningProxy {
        let data_dir = data.path().to_owned();
        let proxy = provider
            .proxy()
            .providers(|it| {
                it.profile = find_profile("anthropic").unwrap();
                it.cache_markers = CacheMarkers::Auto;
            })
            .model("*", model_with_window(self.window))
            .set(|config| {
                config.server.data_dir = data_dir.into();
                config.guard.reserve_tokens = None;
                config.recovery.enabled = self.recovery;
                config.compaction.auto = true;
                config.compaction.by = self.by;
                config.compaction.wait = self.wait;
                config.compaction.max_summary_tokens = 1_000;
            });
        proxy.store(Arc::clone(store)).start().await
    }

    async fn run(&self, steps: usize) -> Outcome {
        self.start().await.run(steps).await
    }
}

impl SummarisedAgent {
    async fn run(mut self, steps: usize) -> Outcome {
        let mut compacted = 0;
        for step in 1..=steps {
            let generation = self.agent.step().await;
            compacted += usize::from(generation.has_action("compacted"));
            assert!(!generation.has_action("guard-fault"), "{step}");
            if self.restart_every > 0 && step % self.restart_every == 0 {
                let (setup, store) = (&self.setup, &self.store);
                let other = setup.start_proxy(&self.provider, store, &self.data).await;
                self.agent.client = other.client();
                let mut before = std::mem::replace(&mut self.proxy, other);
                before.stop();
                before.wait_until_gone().await;
            }
        }
        let log = take(&mut *self.log.lock().unwrap());
        let mut outcome = Outcome {
            compacted,
            asked: [0, 0],
            blocked: 0,
            first_kept: 0,
            kept: 0,
            cached: 0,
            log,
        };
        outcome.measure();
        outcome
    }
}

fn blocks(body: &Value) -> impl Iterator<Item = &Value> {
    let entries = body["messages"].as_array().into_iter().flatten();
    entries.flat_map(|entry| entry["content"].as_array().into_iter().flatten())
}

fn count_thinking<'a>(blocks: impl Iterator<Item = &'a Value>) -> usize {
    let kinds = blocks.filter_map(|block| block["type"].as_str());
    kinds.filter(|kind| kind.ends_with("thinking")).count()
}

/// The block with which a request begins, or the message with a summary.
fn find_summary(body: &Value) -> Value {
    let mut entries = body["messages"].as_array().into_iter().flatten();
    let found = entries.find(|it| begins_with_block(body) || it.to_string().contains("<summary>"));
    found.cloned().unwrap_or_default()
}

fn begins_with_block(body: &Value) -> bool {
    body["messages"][0]["content"][0]["type"] == "compaction"
}

impl Outcome {
    fn measure(&mut self) {
        let counter = TokenCounter::o200k();
        let mut cache = BlockCache::new(CacheRule::AtMarkers, &counter);
        let mut answers: Vec<usize> = Vec::new();
        let (mut kept, mut newest, mut cached, mut tokens) = (0, 0, 0, 0);
        let (mut is_summarised, mut known) = (false, Value::Null);
        for (body, answer) in &self.log.exchanges {
            let hit = cache.request(body.to_string().as_bytes());
            if !body["compaction"].is_null() {
                self.asked[0] += 1;
                continue;
            }
            if summary_key(body).is_some() {
                self.asked[1] += 1;
                continue;
            }
            let first = find_summary(body);
            if !first.is_null() && first != known {
                (is_summarised, known) = (true, first);
                self.first_kept += count_thinking(blocks(body));
            }
            self.blocked += usize::from(begins_with_block(body));
            let recent: usize = answers.iter().rev().take(10).sum();
            if is_summarised {
                newest += recent;
                kept += count_thinking(blocks(body)).min(recent);
            }
            answers.push(count_thinking(answer.iter()));
            cached += hit.cached;
            tokens += hit.prompt;
        }
        self.kept = kept * 100 / newest.max(1);
        self.cached = cached * 100 / tokens.max(1);
    }

    #[track_caller]
    fn check(&self, context: &str) {
        let log = &self.log;
        assert_eq!(log.broken, Vec::<String>::new(), "{context}");
        assert_eq!(log.refused, Vec::<String>::new(), "{context}");
        assert_eq!((log.too_long, log.stale), (0, 0), "{context}");
    }
}

#[tokio::test]
async fn a_summary_of_the_provider_keeps_the_thinking_behind_it() {
    for (seed, window, steps) in [(0, 16_000, 150), (1, 24_000, 120), (2, 48_000, 150)] {
        let context = format!("seed {seed}, window {window}");
        let run = |by| async move {
            let mut session = setup(seed, window, by).start().await;
            session.agent.result = window as usize / 50;
            session.run(steps).await
        };
        let own = run(SummaryMaker::Proxy).await;
        own.check(&format!("{context}, by the proxy"));
        assert!(own.asked[0] == 0 && own.asked[1] > 0, "{context}");
        let provided = run(SummaryMaker::Provider).await;
        for it in [&own, &provided] {
            println!(
                "{context}: {} requests, {:?} asked, {} compacted, {} with a block, kept {} first, {} %, cached {} %",
                it.log.requests,
                it.asked,
                it.compacted,
                it.blocked,
                it.first_kept,
                it.kept,
                it.cached
            );
        }
        provided.check(&context);
        assert!(provided.compacted > 1 && provided.blocked > 10, "{context}");
        assert_eq!(provided.asked[1], 0, "{context}");
        assert!(provided.kept > own.kept, "{context}");
        assert!(
            provided.first_kept >= provided.compacted && own.first_kept == 0,
            "{context}"
        );
        assert!(provided.cached + 2 >= own.cached, "{context}");
    }
}

#[tokio::test]
async fn sessions_of_any_kind_are_refused_nothing() {
    for seed in 0..6 {
        let mut setup = setup(seed, 16_000, SummaryMaker::Provider);
        setup.recovery = true;
        setup.wait = Duration::from_secs([0, 0, 10][seed as usize % 3]);
        if seed == 5 {
            // Its thinking is not bound.
            setup.model = UNBOUND;
        }
        let mut session = setup.start().await;
        session.restart_every = [0, 7, 1][seed as usize % 3];
        session.agent.result = 150 + 200 * (seed as usize % 3);
        let outcome = session.run(60).await;
        outcome.check(&format!("seed {seed}"));
        assert_eq!(outcome.blocked > 0, seed != 5, "seed {seed}");
    }
}

/// What the client's program says in the midst of the list stays: the part with it is the model's to summarise.
#[tokio::test]
async fn a_system_entry_goes_into_no_block() {
    const RULE: &str = "Never touch the rudder.";
    let mut session = setup(1, 16_000, SummaryMaker::Provider).start().await;
    session.agent.steps(10).await;
    session.agent.push("system", RULE);
    let outcome = session.run(80).await;
    outcome.check("with a rule");
    assert!(outcome.compacted > 0);
    let bodies = outcome.log.exchanges.iter().map(|(body, _)| body);
    let of_agent =
        bodies.filter(|body| body["compaction"].is_null() && summary_key(body).is_none());
    let since = of_agent.skip_while(|body| !body.to_string().contains(RULE));
    let with_rule: Vec<bool> = since.map(|body| body.to_string().contains(RULE)).collect();
    assert!(with_rule.len() > 70 && !with_rule.contains(&false));
}

/// Of each kind of refusal: whether the model is asked in its place, and whether the provider is asked again and again.
#[tokio::test]
async fn the_model_summarises_where_the_provider_does_not() {
    const UNKNOWN: &str = "compaction: Extra inputs are not permitted";
    for (fault, host, by_model, again) in [
        (None, Host::Bedrock, true, false),
        (Some(UNKNOWN), Host::Anthropic, true, false),
        (
            Some("compaction_incomplete_turn"),
            Host::Anthropic,
            true,
            true,
        ),
        (Some("compaction_unavailable"), Host::Anthropic, false, true),
    ] {
        let mut setup = setup(1, 16_000, SummaryMaker::Provider);
        setup.account.host = host;
        setup.account.order_fault = fault;
        let mut outcome = setup.run(100).await;
        let context = format!("{fault:?} {host:?}");
        let refused = take(&mut outcome.log.refused);
        assert_eq!(refused.len(), outcome.asked[0], "{context}: {refused:?}");
        outcome.check(&context);
        assert_eq!(outcome.asked[0] > 1, again, "{context}");
        assert_eq!(outcome.asked[1] > 0, by_model, "{context}");
        assert_eq!(
            (outcome.compacted > 0, outcome.blocked),
            (by_model, 0),
            "{context}"
        );
    }
}

/// The request goes out again with the text of the summary, and so do all later ones.
#[tokio::test]
async fn a_block_that_the_provider_refuses_becomes_a_text() {
    for (fault, again) in [
        ("compaction_signature_invalid", true),
        (
            "messages.0.content.0: 'compaction' is not one of the expected content block types",
            false,
        ),
    ] {
        let mut setup = setup(1, 16_000, SummaryMaker::Provider);
        setup.account.block_fault = Some(fault);
        let mut outcome = setup.run(100).await;
        let refused = take(&mut outcome.log.refused);
        assert!(refused.iter().all(|it| it == fault), "{refused:?}");
        outcome.check(fault);
        assert_eq!(
            (outcome.blocked, outcome.asked[0]),
            (refused.len(), refused.len()),
            "{fault}"
        );
        assert_eq!(outcome.asked[0] > 1, again, "{fault}");
        let (last, _) = outcome.log.exchanges.last().unwrap();
        let text = last["messages"].to_string();
        assert!(
            again || outcome.asked[1] > 0 || text.contains("the bow is mended"),
            "{text}"
        );
    }
}

/// Also where the session goes back to the model whose provider made the block.
#[tokio::test]
async fn another_model_gets_the_text_of_the_summary() {
    let mut session = setup(1, 16_000, SummaryMaker::Provider).start().await;
    let newest = |session: &SummarisedAgent| {
        let log = session.log.lock().unwrap();
        let mut asked = log.exchanges.iter().rev().map(|(body, _)| body);
        asked
            .find(|body| body["compaction"].is_null())
            .unwrap()
            .clone()
    };
    session.agent.step().await;
    while !begins_with_block(&newest(&session)) {
        assert!(session.agent.fields["messages"].as_array().unwrap().len() < 100);
        session.agent.step().await;
    }
    for model in [UNBOUND, BOUND] {
        session.agent.fields["model"] = model.into();
        session.agent.step().await;
        let body = newest(&session);
        assert!(!begins_with_block(&body), "{model}");
        let text = body["messages"].to_string();
        assert!(text.contains("the bow is mended"), "{model}: {text}");
        assert!(!text.contains("encrypted_content"), "{model}: {text}");
    }
    let log = take(&mut *session.log.lock().unwrap());
    assert_eq!((log.broken, log.too_long), (Vec::new(), 0));
}

/// Also while the provider is asked.
#[tokio::test]
async fn a_proxy_that_is_killed_goes_on_with_the_block() {
    let setup = setup(2, 16_000, SummaryMaker::Provider);
    let mut session = setup.start().await;
    let settings = Settings::new(&session.provider);
    settings.write(
        "profile = \"anthropic\"\n[models.\"up/claude-sonnet-5-5\"]\ncontext_length = 16000\n\
         [compaction]\nauto = true\nby = \"provider\"\n[store]\nurl = \"file\"\n",
    );
    for _ in 0..6 {
        let process = Process::start(&settings.file).await;
        session.agent.client = process.client();
        session.agent.steps(11).await;
        process.signal("KILL");
        process.wait_for_end().await;
    }
    let outcome = session.run(0).await;
    outcome.check("killed");
    assert!(outcome.blocked > 20 && outcome.asked[0] > 1 && outcome.first_kept > 0);
}
