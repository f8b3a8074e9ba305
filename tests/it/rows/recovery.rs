//! Rows 000.7 to 000.9: prompts, the countdown, and what a new course has.

use http::Method;
use serde_json::{Value, json};

use super::{
    Meter, Program, messages_of, model_lines, prompted_at, say, stands_as_said, tool_step, user,
};
use crate::support::{
    Agent, AgentGeneration, ModelCall, ModelReply, ModelRequest, model::notice::message_text, words,
};

const LEVELS: &str = "optimal_max_tokens = 40000\ncritical_max_tokens = 60000\n";
const HEALTHY: u64 = 10_000;
const CAUTION: u64 = 50_000;
const CRITICAL: u64 = 70_000;
const UNKNOWN: u64 = 0;

/// Generations whose answers report these tokens.
async fn steps_at(agent: &mut Agent, meter: &Meter, tokens: &[u64]) -> Vec<AgentGeneration> {
    let mut generations = Vec::new();
    for tokens in tokens {
        meter.set_tokens(*tokens);
        generations.push(agent.step().await);
    }
    generations
}

/// Places and texts of the prompts in a request.
fn notices(body: &Value) -> Vec<(usize, String)> {
    let listed = messages_of(body).iter().enumerate();
    let users = listed.filter(|(_, message)| message["role"] == "user");
    let texts = users.map(|(at, message)| (at, message_text(message)));
    texts
        .filter(|(_, text)| text.contains("add_reminder"))
        .collect()
}

/// 000.7: at caution a user message at the end of the next request, on entry and then every 10 generations
/// (settable); recorded, at its place in later requests, shown at the session; it asks for reminders with the
/// continuation package and names `clear_mind`; healthy between resets, unknown neither counts nor resets;
/// plain and streamed, in the conversation's language.
#[tokio::test]
async fn row_000_7_caution_prompts() {
    let meter = Meter::start(say).await;
    let often = "[models.often]\nprovider = \"up\"\ncontext_length = 100000\n\
                 optimal_max_tokens = 40000\ncaution_cadence = 3\n";
    let lines = model_lines(100_000, &format!("{LEVELS}{often}"));
    let program = Program::start(&meter.up, &lines).await;
    let mut tokens = vec![HEALTHY];
    tokens.extend([CAUTION; 12]);
    // Healthy in between: the next entry gets its prompt at once.
    tokens.extend([HEALTHY, CAUTION, CAUTION]);
    // Four generations without usage put the next prompt off by four.
    tokens.extend([UNKNOWN; 4]);
    tokens.extend([CAUTION; 12]);
    for (stream, task, package) in [
        (
            false,
            "Find every leak and mend it.",
            "continuation package",
        ),
        (true, "请找出船底的每一个漏洞并修好。", "接续包"),
    ] {
        let before = meter.up.count_requests();
        let mut agent = program.agent().set("stream", stream);
        agent.messages[1] = user(task);
        let generations = steps_at(&mut agent, &meter, &tokens).await;
        assert_eq!(
            prompted_at(&generations, "caution"),
            [3, 13, 16, 30],
            "{task}"
        );
        let bodies = meter.bodies().await.split_off(before);
        assert_eq!(bodies.len(), tokens.len());
        let mut known: Vec<(usize, String)> = Vec::new();
        for (nth, body) in (1..).zip(&bodies) {
            let found = notices(body);
            assert!(
                found.starts_with(&known),
                "request {nth}: a prompt has moved"
            );
            let new = &found[known.len()..];
            assert_eq!(
                new.len(),
                usize::from([3, 13, 16, 30].contains(&nth)),
                "request {nth}"
            );
            for (place, text) in new {
                assert_eq!(*place, messages_of(body).len() - 1, "request {nth}");
                for asked in ["update_reminder", "add_reminder", "clear_mind", package] {
                    assert!(text.contains(asked), "{asked}: {text}");
                }
            }
            known = found;
        }
        let session = program.session(&generations.last().unwrap().answer).await;
        let shown = session["prompts"].as_array().unwrap();
        assert_eq!(shown.len(), known.len());
        for (prompt, (_, sent)) in shown.iter().zip(&known) {
            assert!(sent.ends_with(prompt["text"].as_str().unwrap()), "{prompt}");
        }
    }
    // Behind a tool result it is a message of its own.
    let mut agent = program.agent();
    agent.messages[1] = user("With tools.");
    steps_at(&mut agent, &meter, &[CAUTION]).await;
    agent.messages.extend(tool_step(1, &["dry"]));
    assert_eq!(agent.ask().await.injected(), Some("caution"));
    let body = meter.last_body();
    let [.., result, prompt] = messages_of(&body) else {
        panic!("{body}")
    };
    assert_eq!(Some(result), agent.messages.last());
    assert!(
        prompt["role"] == "user" && message_text(prompt).starts_with("[Context notice, caution.")
    );
    let mut agent = program.agent().set("model", "often");
    let generations = steps_at(&mut agent, &meter, &[CAUTION; 9]).await;
    assert_eq!(prompted_at(&generations, "caution"), [2, 5, 8]);
}

/// Replies that remain, as a critical prompt says it.
fn remaining(left: u32) -> String {
    format!("this reply included: {left}.")
}

/// The newest prompt of a request.
fn last_notice(body: &Value) -> String {
    notices(body).pop().map_or(String::new(), |(_, text)| text)
}

/// 000.8: at critical a countdown of 5 generations, each with a recorded prompt that says how many remain; at
/// zero a new course by itself, without a lost answer; falling below ends it and the next begins at 5; it goes
/// on after kill -9; what the user says meanwhile stands as it was said and is answered.
#[tokio::test]
async fn row_000_8_countdown_and_new_course() {
    for stream in [false, true] {
        let meter = Meter::start(say).await;
        let mut program = Program::start(&meter.up, &model_lines(100_000, LEVELS)).await;
        let mut agent = program.agent().set("stream", stream);
        let entered = steps_at(&mut agent, &meter, &[CRITICAL]).await.remove(0);
        assert_eq!(entered.number("countdown"), Some(5));
        for left in (1..=5).rev() {
            let asked = agent.messages.last().unwrap().clone();
            let step = steps_at(&mut agent, &meter, &[CRITICAL]).await.remove(0);
            assert!(step.text().starts_with("Answer "));
            assert_eq!(step.injected(), Some("critical"));
            assert_eq!(step.number("countdown"), Some(left - 1));
            let body = meter.last_body();
            let found = notices(&body);
            assert_eq!(found.len() as u32, 6 - left, "all prompts are recorded");
            for ((_, text), left) in found.iter().zip((left..=5).rev()) {
                assert!(text.contains(&remaining(left)), "{left}: {text}");
            }
            let last = messages_of(&body).last().unwrap();
            assert!(stands_as_said(last, &asked), "{last}");
            assert_eq!(found.last().unwrap().1, message_text(last));
            if left == 3 {
                program = program.kill_and_restart().await;
                agent.client = program.process.client();
            }
        }
        let before = meter.up.count_requests();
        let asked = agent.messages.last().unwrap().clone();
        let course = steps_at(&mut agent, &meter, &[HEALTHY]).await.remove(0);
        assert_eq!(course.action("course"), Some("2"));
        assert!(course.text().starts_with("Answer "));
        assert_eq!(meter.up.count_requests(), before + 1);
        let body = meter.last_body();
        assert!(notices(&body).is_empty());
        assert!(stands_as_said(messages_of(&body).last().unwrap(), &asked));
        let session = program.session(&course.answer).await;
        assert_eq!(
            (&session["countdown"], &session["course"]),
            (&Value::Null, &json!(2))
        );

        // Falling below ends a countdown.
        let mut agent = program.agent().set("stream", stream);
        agent.messages[1] = user("Another ship.");
        let tokens = [CRITICAL, CRITICAL, HEALTHY, CRITICAL];
        let mut left = Vec::new();
        for tokens in tokens {
            let step = steps_at(&mut agent, &meter, &[tokens]).await.remove(0);
            left.push(program.session(&step.answer).await["countdown"].clone());
        }
        assert_eq!(left, [json!(5), json!(4), Value::Null, json!(5)]);
        steps_at(&mut agent, &meter, &[CRITICAL]).await;
        assert!(last_notice(&meter.last_body()).contains(&remaining(5)));
    }
}

/// 000.8: results are not cut for health below critical.
#[tokio::test]
async fn row_000_8_results_are_whole_below_critical() {
    let meter = Meter::start(say).await;
    let program = Program::start(&meter.up, &model_lines(1_000_000, "")).await;
    let mut agent = program.agent();
    let first = steps_at(&mut agent, &meter, &[150_000]).await.remove(0);
    assert_eq!(first.header("health"), Some("caution"));
    let result = words(12_000, 1);
    assert!((20_000..50_000).contains(&result.len()));
    let step = tool_step(1, &[&result]);
    agent.messages.extend(step.clone());
    let next = agent.ask().await;
    assert_eq!(
        next.action("truncated"),
        None,
        "{:?}",
        next.header("actions")
    );
    assert!(messages_of(&meter.last_body()).contains(&step[1]));
}

/// The reply of a model that keeps a reminder, corrects it, and then begins a new course; between them the
/// proxy asks on by itself.
fn follow_prompt(heard: &ModelRequest<'_>) -> ModelReply {
    let messages = heard.messages();
    let call = |name: &str, arguments: &Value| {
        ModelReply::calls([ModelCall::new(
            &format!("own_{}", heard.nth),
            name,
            arguments,
        )])
    };
    let text = heard.body["messages"].to_string();
    if text.contains("caulk the stern") || !heard.offers_tool("add_reminder") {
        return say(heard);
    }
    if !heard.follows_proxy_call() {
        return call("add_reminder", &json!({"content": "First: caulk the bow."}));
    }
    if text.contains("First: tar the bow.") {
        let last = json!({"reminder_content": "Then: caulk the stern."});
        return call("clear_mind", &last);
    }
    let result = message_text(messages.last().unwrap());
    let id = result.split(|c: char| !c.is_alphanumeric()).find(|word| {
        word.strip_prefix('r')
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
    });
    let id = id.unwrap_or_else(|| panic!("no id in {result}"));
    call(
        "update_reminder",
        &json!({"id": id, "content": "First: tar the bow."}),
    )
}

/// 000.9: `add_reminder`, `update_reminder` and `clear_mind` are carried out within the request, unseen by the
/// client; the prompt asks for first step, pointers, run and verify, details easily lost; the new course has
/// system, task, newest user message and reminders, else facts picked from what went.
#[tokio::test]
async fn row_000_9_continuation_package() {
    let meter = Meter::start(follow_prompt).await;
    let program = Program::start(&meter.up, &model_lines(100_000, LEVELS)).await;
    for stream in [false, true] {
        let mut agent = program.agent().set("stream", stream);
        agent.messages[1] = user(&format!("Mend the ship, streamed: {stream}."));
        agent.user = |nth| format!("Part {nth} of it. {}", words(200, nth));
        steps_at(
            &mut agent,
            &meter,
            &[HEALTHY, HEALTHY, HEALTHY, HEALTHY, CAUTION],
        )
        .await;
        let before = meter.up.count_requests();
        let asked = agent.messages.clone();
        // `step` asserts that nothing of it reaches the client.
        let course = steps_at(&mut agent, &meter, &[HEALTHY]).await.remove(0);
        assert!(course.text().starts_with("Answer "), "{course:?}");
        assert!(course.called().is_empty());
        let bodies = meter.bodies().await.split_off(before);
        assert_eq!(bodies.len(), 4, "a request and three rounds");
        let prompt = last_notice(&bodies[0]);
        for asked in [
            "first actionable step",
            "key pointers",
            "how to run and verify",
            "details easy to lose",
        ] {
            assert!(prompt.contains(asked), "{asked}: {prompt}");
        }
        assert_eq!(course.course(), 2);
        let sent = messages_of(&bodies[3]);
        assert_eq!(sent[0], asked[0]);
        assert!(stands_as_said(&sent[1], &asked[1]), "the task: {}", sent[1]);
        let newest = asked.last().unwrap();
        assert!(
            sent.iter().any(|it| stands_as_said(it, newest)),
            "the newest user message"
        );
        let text = bodies[3]["messages"].to_string();
        for (reminder, is_there) in [
            ("First: tar the bow.", true),
            ("Then: caulk the stern.", true),
            ("First: caulk the bow.", false),
        ] {
            assert_eq!(text.contains(reminder), is_there, "{reminder}: {text}");
        }
    }
    // Without reminders: facts.
    let mut agent = program.agent();
    agent.messages[1] = user("Mend the mast.");
    agent
        .messages
        .push(user("The datum is in fathoms, mind you."));
    agent.user = |nth| format!("Go on with part {nth}. {}", words(4_000, nth));
    let steps = steps_at(&mut agent, &meter, &[HEALTHY; 6]).await;
    let id = steps[0].header("session").unwrap();
    program.command(Method::POST, id, "/clear", "").await;
    let cleared = agent.step().await;
    assert_eq!(cleared.action("course"), Some("2"));
    let sent = meter.last_body()["messages"].to_string();
    assert!(sent.contains("No reminders were saved"), "{sent}");
    assert!(sent.contains("fathoms"), "what the user said: {sent}");
    assert!(sent.len() < agent.body().len() / 2, "what went is gone");
}
