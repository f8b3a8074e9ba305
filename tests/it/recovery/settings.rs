//! The effect of each recovery setting.

use std::fs;

use plimsoll::config::{AddTools, Environment, Flags, RecoveryConfig, load_config};
use serde_json::{Value, json};

use super::{
    Shape, WINDOW, agent_past_optimal, first_prompted, obliging_model, proxy_before, words, work,
};
use crate::support::{
    Agent, AgentGeneration, ModelCall, ModelReply, ModelRequest, ModelSetup, PROXY_TOOLS,
    RunningModel, RunningProxy,
};

/// A proxy with these recovery settings before a model with this reply rule.
async fn proxy_with(
    settings: RecoveryConfig,
    mind: impl Fn(&ModelRequest<'_>) -> ModelReply + Send + Sync + 'static,
) -> (RunningProxy, RunningModel) {
    let up = ModelSetup::new(WINDOW).start(mind).await;
    let proxy = proxy_before(&up, &Shape::default());
    let proxy = proxy.set(|config| config.recovery = settings);
    (proxy.start().await, up)
}

/// Settings parsed from a file.
fn parse_settings(settings: &str) -> RecoveryConfig {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    fs::write(&file, format!("[recovery]\n{settings}\n")).unwrap();
    let flags = Flags {
        config: Some(file),
        listen: None,
    };
    let loaded = load_config(&flags, &Environment::from_iter([("A", "b")]));
    loaded
        .unwrap_or_else(|problems| panic!("{problems}"))
        .config
        .recovery
}

fn offers_ours(body: &Value) -> bool {
    let tools = body["tools"].as_array().into_iter().flatten();
    let mut names = tools.filter_map(|tool| tool["function"]["name"].as_str());
    names.any(|name| PROXY_TOOLS.contains(&name))
}

/// Steps large enough for a whole course within a few dozen of them.
fn striding_agent(proxy: &RunningProxy) -> Agent {
    let mut agent = agent_past_optimal(proxy);
    agent.result = |nth| words(180, nth);
    agent
}

async fn run_course(agent: &mut Agent) -> Vec<AgentGeneration> {
    let mut generations = Vec::new();
    for _ in 0..90 {
        generations.push(agent.step().await);
        if generations.last().unwrap().action("course").is_some() {
            return generations;
        }
    }
    panic!("no course began");
}

fn injected_at(generations: &[AgentGeneration], word: &str) -> Vec<usize> {
    let listed = generations.iter().enumerate();
    let such = listed.filter(|(_, it)| it.injected() == Some(word));
    such.map(|(at, _)| at).collect()
}

#[tokio::test]
async fn tools_always_offers_the_tools_from_the_start() {
    let (proxy, up) = proxy_with(parse_settings(r#"tools = "always""#), obliging_model).await;
    let mut agent = Agent::new(&proxy);
    agent.steps(3).await;
    let bodies = up.bodies().await;
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(offers_ours), "{:#}", bodies[0]);
    assert!(
        bodies
            .windows(2)
            .all(|pair| pair[0]["tools"] == pair[1]["tools"])
    );
    // A request without tools gets none.
    Agent::bare(&proxy).says("Is she sound?").step().await;
    assert!(!offers_ours(&up.bodies().await[3]));
    up.assert_no_faults();
}

#[tokio::test]
async fn tools_never_sends_no_prompt_and_carries_facts() {
    assert_eq!(parse_settings(r#"tools = "never""#).tools, AddTools::Never);
    let (proxy, up) = proxy_with(parse_settings(r#"tools = "never""#), obliging_model).await;
    let mut agent = striding_agent(&proxy);
    let generations = run_course(&mut agent).await;
    assert!(generations.iter().all(|it| it.injected().is_none()));
    let bodies = up.bodies().await;
    assert_eq!(bodies.len(), generations.len());
    assert!(!bodies.iter().any(offers_ours));
    let last = bodies.last().unwrap().to_string();
    assert!(last.contains("No reminders were saved"), "{last}");
    up.assert_no_faults();
}

#[tokio::test]
async fn configured_prompt_texts_reach_the_model() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("en")).unwrap();
    let write =
        |name: &str, text: &str| fs::write(folder.path().join("en").join(name), text).unwrap();
    write("caution-tools.txt", "Ahoy: add_reminder, before the fog.\n");
    write(
        "critical-tools.txt",
        "Rocks ahead, {remaining} cables off: add_reminder.",
    );
    write(
        "countdown-tools.txt",
        "Nearer, {remaining} cables off: add_reminder.",
    );
    write("course-reminders.txt", "Chart number {course}.");
    let settings = parse_settings(&format!("prompts_dir = {:?}", folder.path()));
    let (proxy, up) = proxy_with(settings, obliging_model).await;
    let mut agent = striding_agent(&proxy);
    run_course(&mut agent).await;
    let bodies = up.bodies().await;
    let sent: Vec<String> = bodies.iter().map(Value::to_string).collect();
    for text in [
        "\"Ahoy: add_reminder, before the fog.\"",
        "\"Rocks ahead, 5 cables off: add_reminder.\"",
        "\"Nearer, 4 cables off: add_reminder.\"",
        "\"Nearer, 1 cables off: add_reminder.\"",
        "Chart number 2.\\n\\n<reminder",
    ] {
        assert!(sent.iter().any(|body| body.contains(text)), "{text}");
    }
    assert!(!sent.iter().any(|body| body.contains("Context notice")));
    up.assert_no_faults();
}

const CHINESE: &str = "【上下文吃紧】";
const ENGLISH: &str = "[Context notice, caution.";

#[tokio::test]
async fn prompts_are_in_the_configured_language() {
    for (language, speaks_chinese, expected) in [
        ("auto", true, CHINESE),
        ("auto", false, ENGLISH),
        ("zh", false, CHINESE),
        ("en", true, ENGLISH),
    ] {
        for tools in [true, false] {
            let settings = parse_settings(&format!("language = {language:?}\nchats = true"));
            let (proxy, up) = proxy_with(settings, obliging_model).await;
            let mut agent = agent_past_optimal(&proxy);
            if speaks_chinese {
                agent.messages[1]["content"] = "请把船底的每一个漏洞都找出来并修好。".into();
            }
            if !tools {
                agent.fields.as_object_mut().unwrap().remove("tools");
            }
            first_prompted(&mut agent).await;
            let sent = up.bodies().await.pop().unwrap();
            let notices = sent.to_string().matches(expected).count();
            assert_eq!(notices, 1, "{language} {speaks_chinese} {tools}: {sent:#}");
            if tools {
                let described = sent["tools"].to_string().contains("提醒项");
                assert_eq!(described, expected == CHINESE);
            }
            up.assert_no_faults();
        }
    }
}

#[tokio::test]
async fn a_caution_prompt_names_every_tool_and_update_first() {
    for language in ["en", "zh"] {
        let settings = parse_settings(&format!("language = {language:?}"));
        let (proxy, up) = proxy_with(settings, obliging_model).await;
        let mut agent = agent_past_optimal(&proxy);
        assert_eq!(first_prompted(&mut agent).await.injected(), Some("caution"));
        let sent = up.bodies().await.pop().unwrap();
        let messages = sent["messages"].as_array().unwrap();
        let texts = messages
            .iter()
            .map(crate::support::model::notice::message_text);
        let notice = texts
            .into_iter()
            .find(|text| text.contains("add_reminder"))
            .unwrap();
        let at = |name: &str| {
            notice
                .find(name)
                .unwrap_or_else(|| panic!("no {name}: {notice}"))
        };
        assert!(at("update_reminder") < at("add_reminder"), "{notice}");
        assert!(at("delete_reminder") > 0 && at("clear_mind") > 0);
    }
}

#[tokio::test]
async fn a_model_may_have_its_own_cadence() {
    for cadence in [1, 3] {
        let up = ModelSetup::new(WINDOW).start(work).await;
        let proxy = proxy_before(&up, &Shape::default());
        let proxy = proxy.set(|config| {
            config.models.get_mut("m").unwrap().caution_cadence = Some(cadence);
        });
        let proxy = proxy.start().await;
        let mut agent = agent_past_optimal(&proxy);
        let generations = agent.steps(10).await;
        let expected: Vec<usize> = (1..10).step_by(cadence as usize).collect();
        assert_eq!(injected_at(&generations, "caution"), expected);
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_countdown_of_one_is_one_prompt() {
    let (proxy, up) = proxy_with(parse_settings("critical_countdown = 1"), obliging_model).await;
    let mut agent = striding_agent(&proxy);
    let generations = run_course(&mut agent).await;
    let began = generations.len() - 1;
    assert_eq!(injected_at(&generations, "critical"), [began - 1]);
    assert_eq!(generations[began - 2].number("countdown"), Some(1));
    assert_eq!(generations[began - 1].number("countdown"), Some(0));
    let last = "this reply included: 1.";
    let bodies = up.bodies().await;
    assert!(bodies.iter().any(|body| body.to_string().contains(last)));
    up.assert_no_faults();
}

#[tokio::test]
async fn max_rounds_limits_tool_rounds() {
    // Without the limit this would never end.
    let (proxy, up) = proxy_with(
        parse_settings("max_rounds = 1"),
        |heard: &ModelRequest<'_>| {
            let note = json!({"content": "again"});
            if heard.offers_tool("add_reminder") {
                ModelReply::calls([ModelCall::new(
                    &format!("own_{}", heard.nth),
                    "add_reminder",
                    &note,
                )])
            } else {
                work(heard)
            }
        },
    )
    .await;
    for stream in [false, true] {
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        agent.step().await;
        let before = up.count();
        let generation = agent.step().await;
        assert_eq!(generation.called(), ["read_file"]);
        assert_eq!(generation.number("reminders"), Some(1));
        let bodies = up.bodies().await.split_off(before);
        let offered: Vec<bool> = bodies.iter().map(offers_ours).collect();
        assert_eq!(
            offered,
            [true, false],
            "the last round is without our tools"
        );
    }
    up.assert_no_faults();
}
