//! At default thresholds the levels come in order, before the guard cuts.
//!
//! Requests of a megabyte are not parsed each time: the model counts a token for four bytes, and
//! the body is joined from pieces.

use std::fmt::Write as _;

use super::{Shape, proxy_before};
use crate::support::{
    Agent, AgentGeneration, ClientAnswer, Mixing, ModelReply, ModelRequest, ModelSetup,
    NoticeManner, RunningModel, RunningProxy, TestClient, Worker, model_with_window, words,
};

const HEAD: &str = r#"{"model":"m","tools":[{"type":"function","function":{"name":"read_file","parameters":{"type":"object"}}}],"#;

/// Bytes of one result; longer ones are truncated while health is not good.
const RESULT: usize = 8_000;

/// A conversation of one long turn, written and never parsed.
struct Grown {
    body: String,
    /// The result of each call of a step.
    results: Vec<String>,
    steps: usize,
}

impl Grown {
    fn new(max_tokens: Option<u32>, step_tokens: u32) -> Self {
        let mut body = HEAD.to_owned();
        if let Some(most) = max_tokens {
            let _ = write!(body, r#""max_tokens":{most},"#);
        }
        body.push_str(r#""messages":[{"role":"user","content":"Mend every leak."}]}"#);
        let frame = 200;
        let bytes = (step_tokens as usize * 4).saturating_sub(frame).max(40);
        let text = "fn mend(leak: &Leak) -> Hull { patch(leak) } ".repeat(RESULT / 45 + 1);
        let results = (0..bytes.div_ceil(RESULT))
            .map(|at| text[..RESULT.min(bytes - at * RESULT)].to_owned())
            .collect();
        Self {
            body,
            results,
            steps: 0,
        }
    }

    fn grow(&mut self) {
        self.body.truncate(self.body.len() - 2);
        let at = self.steps;
        let calls: Vec<_> = (0..self.results.len())
            .map(|nth| format!(r#"{{"id":"c{at}-{nth}","type":"function","function":{{"name":"read_file","arguments":"{{}}"}}}}"#))
            .collect();
        let calls = calls.join(",");
        let _ = write!(
            self.body,
            r#",{{"role":"assistant","content":null,"tool_calls":[{calls}]}}"#
        );
        for (nth, text) in self.results.iter().enumerate() {
            let _ = write!(
                self.body,
                r#",{{"role":"tool","tool_call_id":"c{at}-{nth}","content":"{text}"}}"#
            );
        }
        self.body.push_str("]}");
        self.steps += 1;
    }
}

fn header<'a>(answer: &'a ClientAnswer, name: &str) -> &'a str {
    let value = answer.headers.get(format!("x-plimsoll-{name}"));
    value.map_or("", |value| value.to_str().unwrap())
}

/// The events in order: changes of level and action.
async fn event_log(client: &TestClient, grown: &mut Grown, most: usize) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for _ in 0..most {
        let answer = client.chat(grown.body.clone()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let actions = header(&answer, "actions");
        let begins = actions.contains("course=");
        for action in actions.split(',').map(str::trim) {
            // Messages that a new course leaves out are not cut by the guard.
            if begins && action.starts_with("dropped") {
                continue;
            }
            if ["injected", "dropped", "course"]
                .iter()
                .any(|it| action.starts_with(it))
            {
                // Only the first cut is listed.
                let word = if action.starts_with("dropped") {
                    "dropped"
                } else {
                    action
                };
                if word != "dropped" || told.last().is_none_or(|last| last != "dropped") {
                    told.push(word.to_owned());
                }
            }
        }
        if begins {
            break;
        }
        grown.grow();
    }
    told
}

async fn proxy_with_default_levels(up: &RunningModel, window: u32) -> RunningProxy {
    let proxy = proxy_before(up, &Shape::default()).set(|config| {
        config.models.insert("m".into(), model_with_window(window));
        config.guard.reserve_tokens = None;
        // As the model counts.
        config.guard.chars_per_token = Some(4.0);
    });
    proxy.start().await
}

async fn check(window: u32, max_tokens: Option<u32>) {
    let mut model = ModelSetup::new(window);
    model.skips_reading = true;
    let up = model.start(answers).await;
    let proxy = proxy_with_default_levels(&up, window).await;
    // Five prompts and steps fit between critical and the budget.
    let mut grown = Grown::new(max_tokens, window / 1_000);
    while grown.body.len() / 4 < window as usize / 100 * 88 {
        grown.grow();
    }
    let told = event_log(&proxy.client(), &mut grown, 220).await;
    let name = format!("{window} tokens, max_tokens {max_tokens:?}: {told:?}");
    assert_eq!(
        told.first().map(String::as_str),
        Some("injected=caution"),
        "{name}"
    );
    assert_eq!(told.last().map(String::as_str), Some("course=2"), "{name}");
    let down = told.iter().filter(|it| *it == "injected=critical").count();
    assert_eq!(down, 5, "{name}");
    assert!(!told.contains(&"dropped".to_owned()), "{name}");
}

fn answers(_: &ModelRequest<'_>) -> ModelReply {
    ModelReply::text("Aye.")
}

#[tokio::test]
async fn every_level_comes_before_a_cut_at_32k() {
    for max_tokens in [None, Some(4_096), Some(16_000)] {
        check(32_768, max_tokens).await;
    }
}

#[tokio::test]
async fn every_level_comes_before_a_cut_at_128k() {
    for max_tokens in [None, Some(4_096), Some(16_000), Some(32_000)] {
        check(128_000, max_tokens).await;
    }
}

#[tokio::test]
async fn every_level_comes_before_a_cut_at_200k() {
    for max_tokens in [None, Some(4_096), Some(16_000), Some(32_000)] {
        check(200_000, max_tokens).await;
    }
}

#[tokio::test]
async fn every_level_comes_before_a_cut_at_a_million() {
    for max_tokens in [None, Some(4_096), Some(16_000), Some(32_000)] {
        check(1_000_000, max_tokens).await;
    }
}

/// With steps of a tenth of the window a cut may come first. It starts no countdown.
#[tokio::test]
async fn large_steps_start_no_countdown_below_critical() {
    for (window, max_tokens) in [(32_768, None), (128_000, Some(4_096)), (200_000, None)] {
        let mut model = ModelSetup::new(window);
        model.skips_reading = true;
        let up = model.start(answers).await;
        let proxy = proxy_with_default_levels(&up, window).await;
        let client = proxy.client();
        let mut grown = Grown::new(max_tokens, window / 10);
        let mut left: Option<u32> = None;
        for _ in 0..30 {
            let answer = client.chat(grown.body.clone()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let critical = header(&answer, "health") == "critical";
            let cleared = header(&answer, "actions").contains("course=");
            let countdown: Option<u32> = header(&answer, "countdown").parse().ok();
            match (left, countdown) {
                // It starts only where the provider's count reaches critical.
                (None, Some(_)) => assert!(critical, "{:?}", answer.headers),
                // A course ends it, or leaving critical.
                (Some(_), None) => assert!(cleared || !critical, "{:?}", answer.headers),
                (Some(before), Some(now)) => assert!(now < before, "{before} then {now}"),
                (None, None) => {}
            }
            left = countdown;
            grown.grow();
        }
    }
}

/// Sessions live near their budget, and a cut ends a countdown.
#[tokio::test]
async fn three_hundred_steps_begin_no_course_at_default_limits() {
    for words_a_step in [300, 900] {
        let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
        let up = ModelSetup::new(32_768).start(move |heard| worker.compose_reply(heard));
        let up = up.await;
        let proxy = proxy_with_default_levels(&up, 32_768).await;
        let mut agent = Agent::new(&proxy);
        agent.result = match words_a_step {
            300 => |nth| words(300, nth),
            _ => |nth| words(900, nth),
        };
        let told = agent.steps(300).await;
        assert_eq!(told.last().unwrap().course(), 1);
        let is_critical = |answer: &&AgentGeneration| answer.header("health") == Some("critical");
        assert!(told.iter().any(|answer| is_critical(&answer)));
    }
}
