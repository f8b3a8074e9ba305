//! Clients that edit their own history keep their session, in each format: its id, its reminders, its prompts.

use std::collections::BTreeSet;

use plimsoll::{config::RecallMode, guard::profile::find_profile};
use serde_json::{Value, json};

use crate::support::{
    Agent, AgentGeneration, MessagesAgent, Mixing, ModelSetup, NoticeManner, ResponsesAgent,
    RunningModel, RunningProxy, Worker, model_with_courses, words,
};

const WINDOW: u32 = 20_000;

/// A client of one of the formats.
enum Client {
    Chat(Agent),
    Messages(MessagesAgent),
    Responses(ResponsesAgent),
}

impl Client {
    fn all(proxy: &RunningProxy, stream: bool) -> [Self; 3] {
        let client = || proxy.client();
        let mut chat = Agent::new(client()).set("stream", stream);
        chat.messages[0]["content"] = words(6_000, 0).into();
        chat.result = |nth| words(170, nth);
        let mut messages = MessagesAgent::new(client()).set("stream", stream);
        messages.fields["system"][0]["text"] = words(6_000, 0).into();
        messages.result = 170;
        let responses = ResponsesAgent::new(client()).set("stream", stream);
        let mut responses = responses.set("instructions", words(6_000, 0));
        responses.result = 170;
        [
            Self::Chat(chat),
            Self::Messages(messages),
            Self::Responses(responses),
        ]
    }

    fn list(&mut self) -> &mut Vec<Value> {
        match self {
            Self::Chat(agent) => &mut agent.messages,
            Self::Messages(agent) => agent.fields["messages"].as_array_mut().unwrap(),
            Self::Responses(agent) => agent.fields["input"].as_array_mut().unwrap(),
        }
    }

    async fn step(&mut self) -> AgentGeneration {
        match self {
            Self::Chat(agent) => agent.step().await,
            Self::Messages(agent) => agent.step().await,
            Self::Responses(agent) => agent.step().await,
        }
    }

    /// What holds the text of each result.
    fn results(&mut self) -> Vec<&mut Value> {
        let mut found = Vec::new();
        for entry in self.list() {
            if entry["role"] == "tool" {
                found.push(&mut entry["content"]);
            } else if entry["type"] == "function_call_output" {
                found.push(&mut entry["output"]);
            } else if entry["role"] == "user" {
                let blocks = entry["content"].as_array_mut().into_iter().flatten();
                let blocks = blocks.filter(|block| block["type"] == "tool_result");
                found.extend(blocks.map(|block| &mut block["content"]));
            }
        }
        found
    }

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }
}

/// What a client does to its history before a request.
type Edit = fn(usize, &mut Client);

const EDITS: [(&str, Edit); 4] = [
    ("clears one more result each time", clear_results),
    ("tells the time in its first message", tell_time),
    ("reminds at the running question only", remind),
    ("all of these", |nth, client| {
        clear_results(nth, client);
        tell_time(nth, client);
        remind(nth, client);
    }),
];

fn clear_results(_: usize, client: &mut Client) {
    let mut results = client.results();
    let old = results.len().saturating_sub(6);
    for result in &mut results[..old] {
        **result = "[old result cleared]".into();
    }
}

fn tell_time(nth: usize, client: &mut Client) {
    let told = Client::user(&format!("It is 10:{nth:02}. Find every leak and mend it."));
    let first = client
        .list()
        .iter_mut()
        .find(|entry| entry["role"] == "user");
    *first.unwrap() = told;
}

/// A new question at every tenth request.
fn remind(nth: usize, client: &mut Client) {
    const REMINDER: &str = "\n<reminder>Keep to your list.</reminder>";
    if nth % 10 != 5 {
        return;
    }
    for entry in client.list() {
        if let Some(text) = entry["content"].as_str() {
            entry["content"] = text.trim_end_matches(REMINDER).into();
        }
    }
    let question = Client::user(&format!("And what of deck {nth}?{REMINDER}"));
    client.list().push(question);
}

async fn start() -> (RunningProxy, RunningModel) {
    let worker = Worker::new(NoticeManner::Follows, Mixing::Never);
    let setup = ModelSetup::new(WINDOW);
    let up = setup.start(move |heard| worker.compose_reply(heard)).await;
    let profile = find_profile("openai").unwrap();
    let proxy = up.provider.proxy();
    let proxy = proxy.providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    let proxy = proxy.model("m", model_with_courses(WINDOW));
    let proxy = proxy.set(|config| {
        config.guard.clear.enabled = false;
        config.guard.recall = RecallMode::Off;
    });
    (proxy.start().await, up)
}

async fn check(stream: bool) {
    for (name, edit) in EDITS {
        for format in 0..3 {
            let (proxy, up) = start().await;
            let mut client = Client::all(&proxy, stream).into_iter().nth(format).unwrap();
            let (mut sessions, mut reminders, mut edited) = (BTreeSet::new(), 0, 0);
            for nth in 0..60 {
                edit(nth, &mut client);
                let generation = client.step().await;
                // A first answer of a few characters tells no conversation.
                if nth > 0 {
                    sessions.insert(generation.header("session").unwrap().to_owned());
                }
                edited += usize::from(generation.action("client-edited").is_some());
                let now = generation.number("reminders").unwrap_or(0);
                assert!(
                    now >= reminders.min(1),
                    "{name}, {format}: request {nth} lost them"
                );
                reminders = now;
            }
            assert_eq!(sessions.len(), 1, "{name}, {format}");
            assert!(reminders > 0, "{name}, {format}");
            assert!(edited >= 5, "{name}, {format}: {edited}");
            up.assert_no_faults();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_answers_keep_their_session() {
    check(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamed_answers_keep_their_session() {
    check(true).await;
}
