//! Tools that come as an entry beside a prompt, at models whose reasoning is bound: the client's list stays as it is, no
//! reasoning is lost with them, and the model's calls are executed.

use std::sync::Arc;

use plimsoll::{
    config::{Config, RecallMode},
    guard::profile::find_profile,
};
use serde_json::{Value, json};

use crate::support::{
    bound::{BoundApi, BoundModel, to_events},
    bound_provider::tool_names,
    *,
};

const WINDOW: u32 = 16_000;
const INLINE_TOOLS: &str = "inline-tools-2026-09-15";

fn read_body(request: &ReceivedRequest) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn betas(request: &ReceivedRequest) -> &str {
    request.header("anthropic-beta").unwrap_or_default()
}

/// A model that saves a reminder once it can, beside a call of the client's or alone, and then works on.
async fn start_model(api: BoundApi, takes_entry: bool) -> ScriptedProvider {
    let refusal = |message: &str| {
        let error = json!({"error": {"type": "invalid_request_error", "message": message}});
        vec![answer("400 Bad Request", "", error.to_string())]
    };
    ScriptedProvider::start_answering(move |request| {
        let model = BoundModel::default();
        let verdict = model.judge(api, &request.body, betas(request));
        if verdict.refusal.is_some() {
            return refusal(verdict.message());
        }
        let body = read_body(request);
        if !takes_entry && find_entry(api, &body).is_some() {
            return refusal("Extra inputs are not permitted");
        }
        let mut blocks = vec![json!({"type": "thinking", "thinking": "What is next?"})];
        let mut call = |name: &str, input: Value| {
            let id = format!("c{}", blocks.len());
            blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
        };
        let offers = tool_names(&body).iter().any(|it| it == "add_reminder");
        if offers && !String::from_utf8_lossy(&request.body).contains("Saved as") {
            call("add_reminder", json!({"content": "The port is 8443."}))
        } else {
            call("read_file", json!({"path": "src/main.rs"}))
        }
        let mut message = model.answer(api, &verdict, &blocks);
        let (sent, made) = (request.body.len() / 3, 60);
        message["usage"] =
            json!({"input_tokens": sent, "output_tokens": made, "total_tokens": sent + made});
        if body["stream"] == true {
            stream_of([to_events(api, &message)])
        } else {
            vec![answer("200 OK", "", message.to_string())]
        }
    })
    .await
}

fn entries(api: BoundApi, body: &Value) -> &[Value] {
    let list = if api == BoundApi::Responses {
        "input"
    } else {
        "messages"
    };
    body[list].as_array().unwrap()
}

/// Where the entry with the proxy's tools stands.
fn find_entry(api: BoundApi, body: &Value) -> Option<usize> {
    let is_it = |entry: &Value| match api {
        BoundApi::Responses => entry["type"] == "additional_tools",
        _ => entry["content"][0]["type"] == "tool_addition",
    };
    entries(api, body).iter().position(is_it)
}

enum AnyAgent {
    Messages(MessagesAgent),
    Responses(ResponsesAgent),
}

impl AnyAgent {
    async fn step(&mut self) -> AgentGeneration {
        match self {
            Self::Messages(agent) => agent.step().await,
            Self::Responses(agent) => agent.step().await,
        }
    }

    fn connect_to(&mut self, client: TestClient) {
        match self {
            Self::Messages(agent) => agent.client = client,
            Self::Responses(agent) => agent.client = client,
        }
    }
}

/// The requests of a session of so many steps, with a restart in the midst, and what each answer told.
struct Played {
    sent: Vec<ReceivedRequest>,
    actions: Vec<String>,
}

async fn play(
    api: BoundApi,
    profile: &str,
    takes_entry: bool,
    stream: bool,
    steps: usize,
    set: impl Fn(&mut Config),
) -> Played {
    let up = start_model(api, takes_entry).await;
    let (store, data) = (memory_store(), tempfile::tempdir().unwrap());
    let start = async || {
        up.proxy()
            .providers(|it| it.profile = find_profile(profile).unwrap())
            .model("*", model_with_early_levels(WINDOW))
            .store(Arc::clone(&store))
            .set(|config| {
                config.guard.reserve_tokens = None;
                config.server.data_dir = data.path().into();
                set(config);
            })
            .start()
            .await
    };
    let mut proxy = start().await;
    let mut agent = match api {
        BoundApi::Responses => {
            let mut agent = ResponsesAgent::new(&proxy).set("model", "up/gpt-6.2-sol");
            agent.fields["stream"] = stream.into();
            AnyAgent::Responses(agent)
        }
        _ => {
            let mut agent = MessagesAgent::new(&proxy).set("model", "up/claude-sonnet-5-5");
            agent.fields["stream"] = stream.into();
            AnyAgent::Messages(agent)
        }
    };
    let mut actions = Vec::new();
    let mut restarted = false;
    for _ in 0..steps {
        let generation = agent.step().await;
        let told = generation.header("actions").unwrap_or_default().to_owned();
        let prompted = told.contains("injected");
        actions.push(told);
        if prompted && !restarted {
            restarted = true;
            proxy.stop();
            proxy.wait_until_gone().await;
            proxy = start().await;
            agent.connect_to(proxy.client());
        }
    }
    assert!(restarted, "{actions:?}");
    let sent = up.requests(up.count_requests()).await;
    Played { sent, actions }
}

fn list_tools(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_come_with_the_prompt_and_the_list_stays() {
    for (api, profile) in [
        (BoundApi::Messages, "anthropic"),
        (BoundApi::Responses, "openai"),
    ] {
        for stream in [false, true] {
            // No cut ends here.
            let played = play(api, profile, true, stream, 18, |_| ()).await;
            let is_cut = |told: &String| told.contains("cleared") || told.contains("dropped");
            assert!(!played.actions.iter().any(is_cut), "{:?}", played.actions);
            let bodies: Vec<Value> = played.sent.iter().map(read_body).collect();
            let first = bodies
                .iter()
                .position(|body| find_entry(api, body).is_some());
            let first = first.unwrap_or_else(|| panic!("{:?}", played.actions));
            let place = find_entry(api, &bodies[first]).unwrap();
            for (at, body) in bodies.iter().enumerate() {
                assert_eq!(list_tools(body), ["read_file"]);
                let begins = at >= first;
                assert_eq!(find_entry(api, body), begins.then_some(place), "{at}");
                assert_eq!(
                    tool_names(body).contains(&"add_reminder".to_owned()),
                    begins
                );
                let is_messages = api == BoundApi::Messages;
                assert_eq!(
                    betas(&played.sent[at]).contains(INLINE_TOOLS),
                    begins && is_messages
                );
                if at > 0 {
                    let (before, now) = (entries(api, &bodies[at - 1]), entries(api, body));
                    assert!(
                        now.starts_with(before),
                        "request {at} begins with the one before"
                    );
                }
                let verdict = BoundModel::default().judge(
                    api,
                    &played.sent[at].body,
                    betas(&played.sent[at]),
                );
                assert_eq!(verdict.failing, [], "request {at}");
                assert_eq!(verdict.transformations, [] as [Value; 0], "request {at}");
            }
            let prompt = entries(api, &bodies[first])[place - 1].to_string();
            assert!(prompt.contains("add_reminder") && !prompt.contains("continuation_package"));
            let last = bodies.last().unwrap().to_string();
            assert_eq!(
                last.matches("Saved as").count(),
                1,
                "the call was executed and stays"
            );
            assert_eq!(place + 1, entries(api, &bodies[first]).len());
        }
    }
}

#[tokio::test]
async fn behind_a_cut_the_entry_stands_or_the_list_has_the_tools() {
    for (api, profile) in [
        (BoundApi::Messages, "anthropic"),
        (BoundApi::Responses, "openai"),
    ] {
        let played = play(api, profile, true, true, 70, |_| ()).await;
        assert!(
            played.actions.iter().any(|told| told.contains("dropped")),
            "{:?}",
            played.actions
        );
        let mut moved = 0;
        for (at, request) in played.sent.iter().enumerate() {
            let body = read_body(request);
            let in_list = list_tools(&body).contains(&"add_reminder");
            assert!(
                !(in_list && find_entry(api, &body).is_some()),
                "request {at} has them twice"
            );
            moved += usize::from(in_list);
            let verdict = BoundModel::default().judge(api, &request.body, betas(request));
            assert_eq!(verdict.refusal, None, "request {at}");
        }
        assert!(moved > 0, "a cut took the entry away");
    }
}

#[tokio::test]
async fn a_provider_that_takes_no_such_entry_gets_the_tools_with_a_cut() {
    // Not by its profile, and not by what it says.
    for (profile, takes_entry) in [("template", true), ("anthropic", false)] {
        let api = BoundApi::Messages;
        let played = play(api, profile, takes_entry, false, 18, |config| {
            config.guard.recall = RecallMode::Off;
        });
        let played = played.await;
        let bodies: Vec<Value> = played.sent.iter().map(read_body).collect();
        let with_entry = bodies.iter().filter(|body| find_entry(api, body).is_some());
        assert_eq!(with_entry.count(), usize::from(!takes_entry));
        assert!(bodies.iter().all(|body| list_tools(body) == ["read_file"]));
        let asked = bodies.last().unwrap().to_string();
        assert!(
            asked.contains("<continuation_package>"),
            "{:?}",
            played.actions
        );
        assert!(!asked.contains("add_reminder"), "{profile}");
        for request in played.sent {
            let verdict = BoundModel::default().judge(api, &request.body, betas(&request));
            assert_eq!(verdict.failing, []);
        }
    }
}
