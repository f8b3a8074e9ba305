//! A model follows the shipped prompts in both languages, by tools and in text. The simulated provider follows those by
//! tools in English, so recovery can be tried without a key.

use serde_json::Value;

use crate::support::{
    Agent, AgentGeneration, Mixing, ModelSetup, NoticeManner, ProxyBuilder, Worker,
    model_with_courses,
};

const WINDOW: u32 = 8_192;

struct Spoken {
    task: &'static str,
    user: fn(usize) -> String,
    result: fn(usize) -> String,
    /// The beginning of a notice.
    notice: &'static str,
    /// The beginning of what the model writes down.
    note: &'static str,
}

const SPOKEN: [Spoken; 2] = [
    Spoken {
        task: "Find every leak in the hull and mend it.",
        user: |nth| {
            format!(
                "Well done. Now part {nth}. {}",
                "It has many planks. ".repeat(9)
            )
        },
        result: |nth| format!("let leak = {nth};\n").repeat(12),
        notice: "[Context notice, ",
        note: "first:",
    },
    Spoken {
        task: "请把船底的每一个漏洞都找出来并修好。",
        user: |nth| format!("做得好，请继续第{nth}部分。{}", "船板还有很多。".repeat(12)),
        result: |nth| format!("第{nth}块船板有裂缝\n").repeat(12),
        notice: "【上下文",
        note: "第一步：",
    },
];

/// Runs until the second course; returns the session's headers on the way too.
async fn play_to_second_course(mut agent: Agent) -> (Vec<AgentGeneration>, Vec<Value>, Agent) {
    let (mut generations, mut sessions) = (Vec::new(), Vec::new());
    for _ in 0..90 {
        let generation = agent.step().await;
        sessions.push(agent.session(&generation).await);
        generations.push(generation);
        if sessions.last().unwrap()["course"] == 2 {
            return (generations, sessions, agent);
        }
    }
    panic!("no second course");
}

/// At the simulated provider.
async fn check_simulated(stream: bool) {
    let model = "simulated/plimsoll-8k";
    let proxy = ProxyBuilder::new().model(model, model_with_courses(WINDOW));
    let proxy = proxy.start().await;
    let agent = Agent::new(&proxy).set("model", model).set("stream", stream);
    let note = "First step: go on with Find every leak";
    check_courses(agent, &Spoken { note, ..SPOKEN[0] }, true).await;
}

/// At a model that follows prompts in any language, by tools or in text.
async fn check_model(spoken: &Spoken, tools: bool, stream: bool) {
    let mut worker = Worker::new(NoticeManner::Follows, Mixing::Never);
    worker.note = spoken.note;
    let up = ModelSetup::new(WINDOW).start(move |heard| worker.compose_reply(heard));
    let up = up.await;
    let proxy = up.provider.proxy().model("m", model_with_courses(WINDOW));
    let proxy = proxy.set(|config| config.recovery.chats = true);
    let proxy = proxy.start().await;
    let agent = Agent::new(&proxy).set("stream", stream);
    check_courses(agent, spoken, tools).await;
    up.assert_no_faults();
}

async fn check_courses(mut agent: Agent, spoken: &Spoken, tools: bool) {
    agent.messages[1]["content"] = spoken.task.into();
    (agent.user, agent.result) = (spoken.user, spoken.result);
    if !tools {
        agent.fields.as_object_mut().unwrap().remove("tools");
    }
    let stream = agent.fields["stream"].clone();
    let (generations, sessions, _) = play_to_second_course(agent).await;
    let case = format!("{}, tools {tools}, stream {stream}", spoken.task);

    let at = |word: &str| {
        generations
            .iter()
            .position(|it| it.injected() == Some(word))
    };
    let (caution, critical) = (at("caution").expect(&case), at("critical").expect(&case));
    assert!(caution < critical, "{case}");
    // It followed the first prompt at once.
    assert!(
        generations[caution].number("reminders") >= Some(1),
        "{case}"
    );
    let prompts: Vec<&Value> = sessions
        .iter()
        .flat_map(|session| session["prompts"].as_array().unwrap())
        .collect();
    assert!(!prompts.is_empty(), "{case}");
    for prompt in prompts {
        let text = prompt["text"].as_str().unwrap();
        assert!(text.contains(spoken.notice), "{case}: {prompt}");
    }
    let reminders = &sessions.last().unwrap()["reminders"];
    let first = reminders[0]["text"].as_str().unwrap();
    assert!(first.starts_with(spoken.note), "{case}: {reminders}");
    // With tools it calls `clear_mind` with two generations left, or beside a client call and so
    // for the next request. In text it cannot, and the countdown runs out.
    let before = &generations[generations.len() - 2];
    let left = before.number("countdown");
    let expected = if tools { 1..=2 } else { 0..=0 };
    assert!(
        left.is_some_and(|left| expected.contains(&left)),
        "{case}: {left:?}"
    );
    assert_eq!(reminders.as_array().unwrap().len() > 1, tools, "{case}");
    let told = generations.iter().find(|it| it.text().contains("reminder"));
    let told = told.map(|it| it.text());
    assert_eq!(told, None, "{case}: the user reads of reminders");
}

#[tokio::test]
async fn the_simulated_provider_follows_prompts_by_tools() {
    for stream in [false, true] {
        check_simulated(stream).await;
    }
}

#[tokio::test]
async fn prompts_are_followed_by_tools_in_both_languages() {
    for spoken in &SPOKEN {
        for stream in [false, true] {
            check_model(spoken, true, stream).await;
        }
    }
}

#[tokio::test]
async fn prompts_are_followed_in_text_in_both_languages() {
    for spoken in &SPOKEN {
        for stream in [false, true] {
            check_model(spoken, false, stream).await;
        }
    }
}
