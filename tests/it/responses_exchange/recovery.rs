//! Prompts, reminder tools, rounds in one answer, new courses, and the look-up of what was cut.

use plimsoll::config::RecallMode;
use serde_json::{Value, json};

use super::{WINDOW, entries, of_type, proxy_before, response, said, step};
use crate::{
    recall::{numbered_lines, recall_once},
    support::{
        AgentGeneration, Mixing, ModelSetup, NoticeManner, ReceivedRequest, ResponsesAgent,
        RunningModel, ScriptedProvider, Worker, answer, model_with_courses, model_with_window,
        responses_tool, words,
    },
};

struct PlayedSession {
    up: RunningModel,
    generations: Vec<AgentGeneration>,
}

async fn play_session(worker: Worker, set: impl Fn(&mut ResponsesAgent)) -> PlayedSession {
    let up = ModelSetup::new(WINDOW)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = proxy_before(&up, WINDOW)
        .set(|config| {
            // Clearing would keep this session from filling up.
            config.guard.clear.enabled = false;
            config.guard.recall = RecallMode::Off;
        })
        .model("m", model_with_courses(WINDOW))
        .start()
        .await;
    let mut agent = ResponsesAgent::new(&proxy).set("instructions", words(6_000, 0));
    agent.result = 170;
    set(&mut agent);
    let generations = agent.steps(70).await;
    up.assert_no_faults();
    assert_eq!(up.overflows(), 0);
    PlayedSession { up, generations }
}

fn following(mixing: Mixing) -> Worker {
    Worker::new(NoticeManner::Follows, mixing)
}

fn tool_names(list: &Value) -> Vec<&str> {
    let tools = list.as_array().into_iter().flatten();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_session_is_prompted_and_goes_on_in_a_new_course() {
    for stream in [false, true] {
        let played = play_session(following(Mixing::Never), |agent| {
            agent.fields["stream"] = stream.into();
        })
        .await;
        let generations = played.generations.iter();
        let injected: Vec<_> = generations.map(AgentGeneration::injected).collect();
        assert!(injected.contains(&Some("caution")), "{injected:?}");
        assert!(injected.contains(&Some("critical")), "{injected:?}");
        let last = played.generations.last().unwrap();
        assert!(last.course() >= 2 && last.number("reminders") > Some(0));
        let bodies = played.up.bodies().await;
        assert!(bodies.len() > played.generations.len(), "rounds");
        assert_eq!(tool_names(&bodies[0]["tools"]), ["read_file"]);
        let newest = bodies.last().unwrap();
        assert!(tool_names(&newest["tools"]).contains(&"clear_mind"));
        let said = newest["input"].to_string();
        assert!(said.contains("go on after step"), "the reminders are kept");
        let ends = bodies.iter().map(|body| entries(body).last().unwrap());
        let mut prompts = ends.filter(|it| it["content"].to_string().contains("add_reminder"));
        assert!(prompts.clone().count() > 0);
        assert!(prompts.all(|it| it["type"] == "message" && it["role"] == "user"));
    }
}

#[tokio::test]
async fn tools_that_stand_in_an_entry_have_the_proxys_beside_them() {
    for stream in [false, true] {
        let played = play_session(following(Mixing::After), |agent| {
            agent.fields["stream"] = stream.into();
            let fields = agent.fields.as_object_mut().unwrap();
            let tools = fields.remove("tools").unwrap();
            let entry = json!({"type": "additional_tools", "role": "developer", "tools": tools});
            let input = agent.fields["input"].as_array_mut().unwrap();
            input.insert(0, entry);
        })
        .await;
        let last = played.generations.last().unwrap();
        assert!(last.course() >= 2 && last.number("reminders") > Some(0));
        let bodies = played.up.bodies().await;
        assert!(bodies.iter().all(|body| body.get("tools").is_none()));
        let names = |body: &Value| tool_names(&body["input"][0]["tools"]).join(" ");
        assert_eq!(names(&bodies[0]), "read_file");
        assert!(names(bodies.last().unwrap()).contains("clear_mind"));
    }
}

#[tokio::test]
async fn calls_beside_the_clients_are_taken_out_and_put_back() {
    for mixing in [Mixing::Before, Mixing::After] {
        for stream in [false, true] {
            let played = play_session(following(mixing), |agent| {
                agent.fields["stream"] = stream.into();
                agent.keeps_ids = stream;
                let custom = json!({"type": "custom", "name": "patch"});
                agent.fields["tools"] = json!([custom, responses_tool("b")]);
            })
            .await;
            assert!(played.generations.iter().any(|it| it.course() >= 2));
            let bodies = played.up.bodies().await;
            let mut bodies = bodies.iter().map(|body| body["input"].to_string());
            assert!(bodies.any(|body| body.contains("Saved as")), "put back");
        }
    }
}

/// Asserts that each answer has the reasoning that it came with, once and in order, and says how many there were.
fn check_reasoning(body: &Value) -> usize {
    let entries = entries(body);
    let mut thoughts = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        if entry["type"] == "reasoning" {
            let next = entries.get(at + 1);
            let led = next.is_some_and(|it| it["type"] != "reasoning" && it["role"] != "user");
            assert!(led, "{at} in {body}");
            let sealed = entry["encrypted_content"].as_str().unwrap();
            let nth = sealed.trim_start_matches("enc-").trim_end_matches("==");
            assert_eq!(entry["summary"][0]["text"], format!("thought {nth}"));
            thoughts.push(nth.parse::<usize>().unwrap());
        }
    }
    assert!(thoughts.is_sorted_by(|a, b| a < b), "{thoughts:?}");
    thoughts.len()
}

#[tokio::test]
async fn reasoning_stands_once_and_before_what_it_led_to() {
    for (stream, manner, mixing) in [
        (false, NoticeManner::Follows, Mixing::Never),
        (true, NoticeManner::Follows, Mixing::Never),
        (true, NoticeManner::Follows, Mixing::Before),
        (false, NoticeManner::Follows, Mixing::After),
        (true, NoticeManner::HalfFollows, Mixing::Never),
    ] {
        for keeps_ids in [false, true] {
            let played = play_session(Worker::new(manner, mixing), |agent| {
                agent.fields["stream"] = stream.into();
                agent.fields["reasoning"] = json!({"effort": "high"});
                agent.keeps_ids = keeps_ids;
            })
            .await;
            let bodies = played.up.bodies().await;
            let count: usize = bodies.iter().map(check_reasoning).sum();
            assert!(count > 70);
        }
    }
}

#[tokio::test]
async fn a_model_looks_up_what_was_truncated() {
    for stream in [false, true] {
        let arguments = json!({"pattern": "plank 3000 "});
        let setup = ModelSetup {
            fragment: 4_000,
            ..ModelSetup::new(60_000)
        };
        let up = setup
            .start(move |heard| recall_once(heard, &arguments))
            .await;
        let proxy = proxy_before(&up, 60_000).start().await;
        let mut agent = ResponsesAgent::new(&proxy).set("stream", stream);
        agent.push(step("call_1", &numbered_lines(6_000)));
        let generation = agent.ask().await;
        let output = generation.message["output"].as_array().unwrap();
        assert_eq!(output.len(), 1);
        let said = output[0]["content"][0]["text"].as_str().unwrap();
        assert!(said.contains("value-21000"), "{said}");
        let bodies = up.bodies().await;
        assert_eq!(bodies.len(), 2);
        assert_eq!(of_type(entries(&bodies[1]), "function_call").count(), 2);
        assert!(bodies[0]["input"].to_string().contains("recall id "));
        up.assert_no_faults();
    }
}

/// A client that brings its tools late makes `recall` possible. What stands in earlier requests stays as it was.
#[tokio::test]
async fn tools_that_come_late_leave_the_front_as_it_was() {
    let up = ScriptedProvider::start_answering(|seen: &ReceivedRequest| {
        let tokens = seen.body.len() / 4;
        let body = response(&[said("Well.")], u32::try_from(tokens).unwrap());
        vec![answer("200 OK", "", body)]
    })
    .await;
    let proxy = up
        .proxy()
        .set(|config| config.guard.clear.enabled = false)
        .model("m", model_with_window(WINDOW))
        .start()
        .await;
    let user = |text: String| json!({"role": "user", "content": text});
    let mut input = vec![user("Read the decks.".into())];
    let mut steps = (0..).map(|nth| step(&format!("c{nth}"), &words(4_000, nth)));
    input.extend(steps.by_ref().take(30).flatten());
    let ask = async |input: &[Value]| {
        let body = json!({"model": "m", "input": input}).to_string();
        let client = proxy.client();
        let request = client.request(http::Method::POST, "/v1/responses");
        let request = request.header("content-type", "application/json");
        let got = client.send_with(request, body).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
        entries(&sent).to_vec()
    };
    let before = ask(&input).await;
    assert!(before.len() < input.len());
    assert!(json!(before).to_string().contains("Look up again"));
    let tools = json!([responses_tool("read_file")]);
    input.push(said("Well."));
    input.push(json!({"type": "additional_tools", "role": "developer", "tools": tools}));
    input.push(user("Go on.".into()));
    let after = ask(&input).await;
    assert!(after.starts_with(&before), "{}", json!(after));
    // The next cut changes the front all the same.
    let mut cut = false;
    for step in steps.take(40) {
        input.extend(step);
        cut |= json!(ask(&input).await)
            .to_string()
            .contains("recall id earlier");
    }
    assert!(cut);
}
