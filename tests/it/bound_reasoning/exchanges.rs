//! What the model reads where a conversation is changed in the midst of a tool loop: an overflow, a course, a caution
//! prompt, a recall and a summary. With `REASONING_EXCHANGES` set, each test prints its exchanges for reading.

mod record;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use plimsoll::{
    config::{Config, ModelConfig},
    guard::profile::find_profile,
};
use serde_json::{Value, json};

use self::record::{ends_in_loop, list_thoughts, says, tell_exchange};
use crate::{
    compaction::sections,
    support::{
        bound::{BoundApi, BoundModel},
        bound_provider::{BoundLog, BoundSettings, start_scripted_bound_provider},
        model::notice::summary_key,
        *,
    },
};

const WINDOW: u32 = 8_000;
/// The answer that ends the first turn.
const TURN_END: usize = 4;
/// What the user says at the end of the first turn.
const TURN: &str = "Well done. Now part 3.";
const PACKAGE: &str = "first: the bow; verify: run the tests; next is deck";

/// An agent before a proxy before a provider that refuses stale thinking.
struct Exchanges {
    agent: MessagesAgent,
    log: Arc<Mutex<BoundLog>>,
    name: &'static str,
    /// Each answer's exchanges in few words.
    told: Vec<String>,
    _proxy: RunningProxy,
    _provider: ScriptedProvider,
}

/// The number of the answer that a request is for: the client's calls have the numbers of their answers.
fn count_answers(body: &Value) -> usize {
    let entries = body["messages"].as_array().unwrap().iter();
    let blocks = entries.rev().filter_map(|it| it["content"].as_array());
    let mut paths = blocks
        .flatten()
        .filter_map(|it| it["input"]["path"].as_str());
    let newest = paths
        .next()
        .and_then(|path| path.split(['_', '.']).nth(1)?.parse().ok());
    newest.map_or(1, |nth: usize| nth + 1)
}

fn think(nth: usize, about: &str) -> Value {
    json!({"type": "thinking", "thinking": format!("Thought {nth}: {about}. {}", "I weigh it. ".repeat(12))})
}

fn call(name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": name, "name": name, "input": input})
}

/// Answers with thinking and a call of the client's tool; the fourth ends a turn. Where the newest entries ask for
/// reminders, a call for one stands before that.
fn work(body: &Value) -> Vec<Value> {
    let nth = count_answers(body);
    let entries = body["messages"].as_array().unwrap();
    let answered = entries.iter().rposition(|it| it["role"] == "assistant");
    let newest = Value::from(&entries[answered.map_or(0, |at| at + 1)..]).to_string();
    if nth == TURN_END && newest.contains("tool_result") {
        let text = json!({"type": "text", "text": "The first leak is mended."});
        return vec![think(nth, "the turn is done"), text];
    }
    let path = format!("deck_{nth}.rs");
    let mut blocks = vec![think(nth, &format!("next is {path}"))];
    if newest.contains("Context notice") {
        blocks.push(call(
            "add_reminder",
            json!({"text": format!("{PACKAGE} {nth}")}),
        ));
    }
    blocks.push(call("read_file", json!({"path": path})));
    blocks
}

impl Exchanges {
    async fn start(
        name: &'static str,
        model: ModelConfig,
        set: impl FnOnce(&mut Config),
        script: impl Fn(&Value, usize) -> Vec<Value> + Send + Sync + 'static,
    ) -> Self {
        let settings = BoundSettings {
            seed: 0,
            api: BoundApi::Messages,
            model: BoundModel::default(),
            window: WINDOW as usize,
            proxy_calls: 0,
        };
        let (provider, log) = start_scripted_bound_provider(settings, script).await;
        let proxy = provider
            .proxy()
            .providers(|it| it.profile = find_profile("anthropic").unwrap())
            .model("*", model)
            .set(|config| config.guard.reserve_tokens = None)
            .set(set)
            .start()
            .await;
        let mut agent = MessagesAgent::new(&proxy).set("model", "up/claude-sonnet-5-5");
        agent.result = 120;
        Self {
            agent,
            log,
            name,
            told: Vec::new(),
            _proxy: proxy,
            _provider: provider,
        }
    }

    /// One answer.
    async fn step(&mut self) -> AgentGeneration {
        let before = self.log.lock().unwrap().exchanges.len();
        let generation = self.agent.step().await;
        let exchanges = &self.log.lock().unwrap().exchanges[before..];
        self.told
            .push(tell_exchange(self.name, exchanges, &generation));
        generation
    }

    /// Answers until one is `wanted`: with the number of the provider's request that began it.
    async fn until(
        &mut self,
        wanted: impl Fn(&AgentGeneration) -> bool,
    ) -> (usize, AgentGeneration) {
        for _ in 0..60 {
            let before = self.log.lock().unwrap().exchanges.len();
            let generation = self.step().await;
            if wanted(&generation) {
                return (before, generation);
            }
        }
        panic!("not within 60 answers");
    }

    /// What the provider got since a request.
    fn since(&self, first: usize) -> Vec<(Value, Vec<Value>)> {
        self.log.lock().unwrap().exchanges[first..].to_vec()
    }

    /// The provider refused no thinking and read none that is stale, and the task was in every request. Prints the
    /// newest answers on request.
    fn check(&self, printed: usize) {
        if std::env::var_os("REASONING_EXCHANGES").is_some() {
            let newest = &self.told[self.told.len() - printed..];
            eprintln!("{}", newest.join("\n"));
        }
        let log = self.log.lock().unwrap();
        assert_eq!(log.broken, Vec::<String>::new());
        assert_eq!(log.refused, Vec::<String>::new());
        assert_eq!(log.stale, 0);
        let mut works = log
            .exchanges
            .iter()
            .filter(|(body, _)| summary_key(body).is_none());
        assert!(works.all(|(body, _)| says(body, "Find every leak and mend it.")));
    }
}

#[tokio::test]
async fn an_overflow_in_a_loop() {
    let model = model_with_window(WINDOW * 3 / 2);
    let mut it = Exchanges::start("overflow", model, |_| {}, |body, _| work(body)).await;
    let (first, answer) = it.until(|it| it.action("refitted").is_some()).await;
    it.step().await;
    it.check(3);
    assert_eq!(answer.action("refitted"), Some("1"));
    let [refused, fitted, next] = &it.since(first)[..] else {
        panic!("one refusal, one answer, one more")
    };
    let newest = count_answers(&refused.0);
    // A user's words are no part of what was cut, and all thinking was made before the cut.
    assert!(refused.1.is_empty() && list_thoughts(&refused.0).len() >= newest);
    assert!(ends_in_loop(&fitted.0) && says(&fitted.0, TURN));
    assert!(list_thoughts(&fitted.0).is_empty());
    assert_eq!(list_thoughts(&next.0), [format!("Thought {newest}")]);
}

#[tokio::test]
async fn a_caution_prompt_in_a_loop() {
    let model = model_with_early_levels(WINDOW);
    let mut it = Exchanges::start("caution", model, |_| {}, |body, _| work(body)).await;
    let (first, answer) = it.until(|it| it.injected() == Some("caution")).await;
    it.step().await;
    it.check(3);
    assert!(!answer.answer.text().contains(PACKAGE));
    assert_eq!(answer.action("thinking-left-out"), None);
    let [asked, next] = &it.since(first)[..] else {
        panic!("one answer, one more")
    };
    // Nothing before the prompt was changed, and what the model answered to it stands there again.
    let newest = count_answers(&asked.0);
    assert!(ends_in_loop(&asked.0) && says(&next.0, TURN) && says(&next.0, PACKAGE));
    let mut thoughts = list_thoughts(&asked.0);
    assert_eq!(thoughts.len(), newest);
    thoughts.push(format!("Thought {newest}"));
    assert_eq!(list_thoughts(&next.0), thoughts);
    assert_eq!(asked.0["tools"], next.0["tools"]);
}

/// The proxy's call is put back exactly where it was, before the thinking between it and the client's.
#[tokio::test]
async fn thinking_between_a_call_of_the_proxy_and_one_of_the_client() {
    let model = model_with_early_levels(WINDOW);
    let script = |body: &Value, _| {
        let mut blocks = work(body);
        if blocks.len() > 2 {
            blocks.insert(2, think(0, "it is saved"));
        }
        blocks
    };
    let mut it = Exchanges::start("between", model, |_| {}, script).await;
    it.until(|it| it.injected() == Some("caution")).await;
    it.step().await;
    it.check(2);
}

#[tokio::test]
async fn a_course_in_a_loop() {
    let model = model_with_courses(WINDOW);
    let set = |config: &mut Config| config.recovery.critical_countdown = 2;
    let mut it = Exchanges::start("course", model, set, |body, _| work(body)).await;
    let (first, _) = it.until(|it| it.course() == 2).await;
    it.step().await;
    it.check(3);
    let [begun, next] = &it.since(first)[..] else {
        panic!("one answer, one more")
    };
    let newest = count_answers(&begun.0);
    assert!(ends_in_loop(&begun.0) && says(&begun.0, &format!("{PACKAGE} {}", newest - 1)));
    assert!(list_thoughts(&begun.0).is_empty());
    assert_eq!(list_thoughts(&next.0), [format!("Thought {newest}")]);
}

#[tokio::test]
async fn a_recall_in_a_loop() {
    let script = |body: &Value, _| {
        let text = body["messages"].to_string();
        if text.contains("recall id earlier") && !text.contains("{\"id\":\"earlier\"}") {
            vec![
                think(0, "what was it"),
                call("recall", json!({"id": "earlier"})),
            ]
        } else {
            work(body)
        }
    };
    let model = model_with_window(WINDOW);
    let mut it = Exchanges::start("recall", model, |_| {}, script).await;
    let (first, answer) = it.until(|it| it.action("recalled").is_some()).await;
    it.step().await;
    it.check(3);
    assert!(!answer.answer.text().contains("\"recall\""));
    let [cut, round, next] = &it.since(first)[..] else {
        panic!("a round of the proxy, the answer, one more")
    };
    // The round keeps the thinking that led to it, in this request and the next.
    let newest = count_answers(&round.0);
    assert!(ends_in_loop(&cut.0) && says(&cut.0, TURN));
    assert!(list_thoughts(&cut.0).is_empty());
    assert_eq!(list_thoughts(&round.0), ["Thought 0"]);
    assert_eq!(
        list_thoughts(&next.0),
        ["Thought 0".to_owned(), format!("Thought {newest}")]
    );
    let result = "messages left out)";
    assert!(says(&round.0, result) && says(&next.0, result));
}

#[tokio::test]
async fn a_summary_in_a_loop() {
    let set = |config: &mut Config| {
        config.compaction.auto = true;
        config.compaction.threshold = 0.5;
        config.compaction.max_summary_tokens = 400;
        config.compaction.wait = Duration::from_secs(20);
    };
    let script = |body: &Value, _| match summary_key(body) {
        Some(key) => vec![json!({"type": "text", "text": sections(&key, 0)})],
        None => work(body),
    };
    let model = model_with_window(WINDOW);
    let mut it = Exchanges::start("summary", model, set, script).await;
    let (first, _) = it.until(|it| it.has_action("compacted")).await;
    it.step().await;
    it.check(3);
    let begun = it
        .since(0)
        .into_iter()
        .find(|(body, _)| summary_key(body).is_some());
    // The request for the summary begins as the conversation did, with its thinking.
    assert!(!list_thoughts(&begun.unwrap().0).is_empty());
    let sent: Vec<_> = it
        .since(first)
        .into_iter()
        .filter(|(body, _)| summary_key(body).is_none())
        .collect();
    let [summed, next] = &sent[..] else {
        panic!("one answer, one more")
    };
    let newest = count_answers(&summed.0);
    assert!(ends_in_loop(&summed.0) && says(&summed.0, "Afloat, summary 0."));
    assert!(list_thoughts(&summed.0).is_empty());
    assert_eq!(list_thoughts(&next.0), [format!("Thought {newest}")]);
}
