//! Clients set texts of their own beside results: the question that the work answers is in every request all the same.

use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::{conversation::Format, guard::profile::find_profile};
use serde_json::{Value, json};

use crate::support::{
    Agent, AgentGeneration, MessagesAgent, Mixing, ModelCall, ModelReply, ModelRequest, ModelSetup,
    NoticeManner, ResponsesAgent, RunningModel, Worker, model_with_early_levels, user_entry, words,
};

const WINDOW: u32 = 32_768;
const REQUESTS: usize = 60;
/// Tokens of a result, about.
const RESULT: usize = 1_800;

/// A client of one format.
enum Client {
    Chat(Box<Agent>),
    Messages(MessagesAgent),
    Responses(ResponsesAgent),
}

impl Client {
    async fn step(&mut self) -> AgentGeneration {
        match self {
            Self::Chat(agent) => agent.step().await,
            Self::Messages(agent) => agent.step().await,
            Self::Responses(agent) => agent.step().await,
        }
    }

    /// The list of messages.
    fn list(&mut self) -> &mut Vec<Value> {
        let list = match self {
            Self::Chat(agent) => return &mut agent.messages,
            Self::Messages(agent) => &mut agent.fields["messages"],
            Self::Responses(agent) => &mut agent.fields["input"],
        };
        list.as_array_mut().unwrap()
    }

    /// The question at the end; `None` where results are there.
    fn newest_question(&mut self) -> Option<String> {
        let last = self.list().last().unwrap();
        let blocks = last["content"].as_array();
        let text = match blocks.map(Vec::as_slice) {
            Some([block]) => &block["text"],
            _ => &last["content"],
        };
        let is_question = last["role"] == "user" && text.is_string();
        is_question.then(|| text.as_str().unwrap().to_owned())
    }

    /// Sets texts behind the results at the end: beside them where they are blocks, else as messages.
    fn add_texts(&mut self, texts: &[String]) {
        let is_responses = matches!(self, Self::Responses(_));
        let list = self.list();
        let last = list.last_mut().unwrap();
        if last["role"] == "user" {
            let blocks = last["content"].as_array_mut().unwrap();
            blocks.extend(
                texts
                    .iter()
                    .map(|text| json!({"type": "text", "text": text})),
            );
            return;
        }
        list.extend(texts.iter().map(|text| {
            if is_responses {
                user_entry(text)
            } else {
                json!({"role": "user", "content": text})
            }
        }));
    }
}

/// What the client says behind the results of a step.
fn notes_of(nth: usize) -> Vec<String> {
    let details = format!(
        "<environment_details>\n# Current Time\n{nth} o'clock\n\n# Files\n{}\n</environment_details>",
        words(60, nth)
    );
    let reminder =
        "<system-reminder>\nThe todo list is empty; this is no <task>.\n</system-reminder>";
    let state = format!("<ship_state step=\"{nth}\">\nafloat\n</ship_state>");
    match nth % 4 {
        0 => vec![details],
        1 => vec![format!("{reminder}\n\n{details}")],
        // Its name stood behind the results of the first turn.
        2 => vec![state],
        _ => vec![reminder.to_owned(), details],
    }
}

/// The messages of a request to the provider.
fn sent_list(body: &Value) -> &[Value] {
    let list = body.get("input").unwrap_or(&body["messages"]);
    list.as_array().unwrap()
}

/// Whether the client is told of a change of the prefix.
fn is_told(generation: &AgentGeneration) -> bool {
    let changes = ["course", "dropped", "cleared", "truncated", "refitted"];
    changes.iter().any(|name| generation.action(name).is_some())
}

/// Runs a session of turns of twenty steps. In the midst of the last turn, the user speaks beside the notes.
async fn check_session(format: Format) {
    let mut worker = Worker::new(NoticeManner::Follows, Mixing::Never);
    worker.turn = 20;
    let profile = find_profile(match format {
        Format::Messages => "anthropic",
        _ => "openai",
    });
    let profile = profile.unwrap();
    let model = ModelSetup::new(WINDOW).profile(profile);
    let up: RunningModel = model.start(move |heard| worker.compose_reply(heard)).await;
    let proxy = up.provider.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    let proxy = proxy
        .model("m", model_with_early_levels(WINDOW))
        .start()
        .await;
    let mut client = match format {
        Format::Chat => {
            let mut agent = Agent::new(&proxy);
            agent.result = |nth| words(RESULT, nth);
            Client::Chat(Box::new(agent))
        }
        Format::Messages => {
            let mut agent = MessagesAgent::new(&proxy);
            agent.result = RESULT;
            Client::Messages(agent)
        }
        _ => {
            let mut agent = ResponsesAgent::new(&proxy);
            agent.result = RESULT;
            Client::Responses(agent)
        }
    };
    let mut question = client.newest_question().unwrap();
    let (mut known, mut was_told, mut cuts, mut lost) = (None::<Value>, false, 0, Vec::new());
    for nth in 0..REQUESTS {
        let before = up.count();
        let generation = client.step().await;
        let told = is_told(&generation);
        for body in up.bodies_from(before).await {
            if !body.to_string().contains(&question) {
                lost.push(nth);
            }
            let said = body.to_string();
            let mut ledgers = said.split("what the user said").skip(1);
            let is_told = |ledger: &str| {
                let lines = ledger.split("</facts>").next().unwrap_or_default();
                lines.contains("o'clock") || lines.contains("afloat") || lines.contains("reminder>")
            };
            assert!(!ledgers.any(is_told), "{format:?}, {nth}: {said}");
            if let Some(known) = &known {
                let (before, now) = (sent_list(known), sent_list(&body));
                let is_same = now.starts_with(before);
                cuts += usize::from(!is_same);
                let actions = generation.header("actions");
                assert!(
                    is_same || told || was_told,
                    "{format:?}, {nth}: {actions:?}"
                );
            }
            known = Some(body);
        }
        was_told = told;
        match client.newest_question() {
            Some(asked) => question = asked,
            None if nth == 50 => {
                let mut texts = notes_of(nth);
                question = "Leave the mast as it is.".into();
                texts.push(format!("{}\n{question}", texts[0]));
                client.add_texts(&texts);
            }
            None => client.add_texts(&notes_of(nth)),
        }
    }
    assert_eq!(lost, [0; 0], "{format:?}: requests without the question");
    assert!((1..=20).contains(&cuts), "{format:?}: {cuts} cuts");
    up.assert_no_faults();
    assert_eq!(up.overflows(), 0);
}

#[tokio::test]
async fn the_question_is_in_every_request_of_chat() {
    check_session(Format::Chat).await;
}

#[tokio::test]
async fn the_question_is_in_every_request_of_messages() {
    check_session(Format::Messages).await;
}

#[tokio::test]
async fn the_question_is_in_every_request_of_responses() {
    check_session(Format::Responses).await;
}

/// The list of sessions and a summary's transcript name what the user said.
#[tokio::test]
async fn a_session_is_called_by_the_users_words() {
    let asked = AtomicUsize::new(0);
    let up = ModelSetup::new(WINDOW)
        .start(
            move |_: &ModelRequest<'_>| match asked.fetch_add(1, Ordering::Relaxed) {
                0 => ModelReply::calls([ModelCall::new("c1", "read_file", &json!({"path": "a"}))]),
                _ => ModelReply::text("Done."),
            },
        )
        .await;
    let proxy = up
        .provider
        .proxy()
        .model("m", model_with_early_levels(WINDOW))
        .start()
        .await;
    let mut agent = Agent::new(&proxy);
    let reminder = "<system-reminder>Be brief.</system-reminder>";
    agent.messages[1]["content"] = format!("{reminder}\nMend the mast\n\n{reminder}").into();
    agent.step().await;
    let answer = agent.api(http::Method::GET, "sessions").await;
    let sessions = answer.json();
    assert_eq!(
        sessions["sessions"][0]["task"], "Mend the mast",
        "{sessions}"
    );
}
