//! Sessions over real sockets in a window of 8,192 tokens, of which system text and tools take some 6,000.

use plimsoll::conversation::Format;
use serde_json::{Value, json};

use crate::support::{
    Agent, AgentGeneration, MessagesAgent, ModelCall, ModelReply, ModelRequest, ModelSetup,
    PROXY_TOOLS, ResponsesAgent, RunningModel, RunningProxy, model_with_window,
    wide_tools::define_tool, words,
};

const WINDOW: u32 = 8_192;
const STEPS: usize = 60;
/// Tools of the sessions, of some 4,500 tokens.
const TOOLS: usize = 14;

/// Tools of about 6,000 tokens; the first is the one that the model calls.
fn long_tools(format: Format) -> Value {
    list_tools(format, 18)
}

fn list_tools(format: Format, count: usize) -> Value {
    let tools = (0..count).map(|nth| {
        let name = if nth == 0 {
            "read_file".to_owned()
        } else {
            format!("mend_{nth}")
        };
        let text = format!("Mends part {nth} of the ship. It {}.", words(200, nth));
        let part = format!("The part, e.g. a mast. Or {}.", words(60, nth));
        let schema = json!({"type": "object", "title": name, "required": ["path"],
            "properties": {"path": {"type": "string", "title": "Path", "description": part},
                "title": {"type": "string", "examples": ["a", "b"]}}});
        define_tool(format, &name, &text, &schema)
    });
    tools.collect()
}

/// Works with the client's first tool, and says now and then that a part is done.
fn work(heard: &ModelRequest<'_>) -> ModelReply {
    let nth = heard.nth;
    if nth % 5 == 4 {
        return ModelReply::text(&format!("Part {nth} is done. {}", words(60, nth)));
    }
    let call = ModelCall::new(
        &format!("c{nth}"),
        "read_file",
        &json!({"path": format!("p{nth}")}),
    );
    ModelReply::calls([call])
}

async fn start(recovers: bool, reserve: Option<u32>) -> (RunningProxy, RunningModel) {
    let up = ModelSetup::new(WINDOW).start(work).await;
    let proxy = up.provider.proxy().set(move |config| {
        config.models.insert("m".into(), model_with_window(WINDOW));
        config.recovery.enabled = recovers;
        config.guard.reserve_tokens = reserve;
    });
    (proxy.start().await, up)
}

/// With tools that leave room for a few steps before the first cut.
async fn drive(format: Format, proxy: &RunningProxy) -> Vec<AgentGeneration> {
    let tools = list_tools(format, TOOLS);
    let mut generations = Vec::new();
    match format {
        Format::Chat => {
            let mut agent = Agent::new(proxy).set("tools", tools);
            agent.result = |nth| words(260, nth);
            return agent.steps(STEPS).await;
        }
        Format::Messages => {
            let mut agent = MessagesAgent::new(proxy).set("tools", tools);
            agent.result = 260;
            for _ in 0..STEPS {
                generations.push(agent.step().await);
            }
        }
        _ => {
            let mut agent = ResponsesAgent::new(proxy).set("tools", tools);
            agent.result = 260;
            for _ in 0..STEPS {
                generations.push(agent.step().await);
            }
        }
    }
    generations
}

/// The client's tools among those that were sent.
fn client_tools(body: &Value) -> Vec<Value> {
    let is_ours = |tool: &&Value| {
        let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
        name.is_some_and(|name| PROXY_TOOLS.contains(&name) || name == "recall")
    };
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter(|tool| !is_ours(tool)).cloned().collect()
}

#[tokio::test]
async fn a_session_with_long_tools_lives_on_in_a_small_window() {
    for format in super::FORMATS {
        for recovers in [true, false] {
            let (proxy, up) = start(recovers, None).await;
            let generations = drive(format, &proxy).await;
            let case = format!("{format:?}, recovery {recovers}");
            up.assert_no_faults();
            assert_eq!(up.overflows(), 0, "{case}");
            let first = generations[0].number("prompt-tokens").unwrap();
            assert!((3_500..6_500).contains(&first), "{case}: {first} tokens");
            // The tools change once, with the first cut, which is told from then on.
            let short: Vec<bool> = generations
                .iter()
                .map(|it| it.action("tools-shortened") == Some("14"))
                .collect();
            let begun = short.iter().position(|short| *short).unwrap();
            assert!((1..16).contains(&begun), "{case}: {begun}");
            assert!(
                short[begun..].iter().all(|short| *short),
                "{case}: {short:?}"
            );
            let whole = list_tools(format, TOOLS);
            let bodies = up.bodies().await;
            let mut lists: Vec<_> = bodies.iter().map(client_tools).collect();
            lists.dedup();
            assert_eq!(lists.len(), 2, "{case}: {} lists of tools", lists.len());
            assert_eq!(Value::from(lists[0].clone()), whole, "{case}");
            let session = generations[0].header("session");
            assert!(
                generations.iter().all(|it| it.header("session") == session),
                "{case}"
            );
            let largest = generations
                .iter()
                .filter_map(|it| it.number("prompt-tokens"));
            assert!(largest.max() <= Some(WINDOW), "{case}");
        }
    }
}

/// What stays of the window is shared between the answer and the conversation, unless the reserve is set.
#[tokio::test]
async fn a_reserve_gives_way_where_system_and_tools_leave_little() {
    for (set, held) in [(None, true), (Some(2_000), false)] {
        let up = ModelSetup::new(WINDOW)
            .start(|heard| ModelReply::text(&words(1_100, heard.nth)))
            .await;
        let proxy = up.provider.proxy().set(move |config| {
            config.models.insert("m".into(), model_with_window(WINDOW));
            config.guard.reserve_tokens = set;
            config.guard.tools = plimsoll::config::ToolsMode::Whole;
        });
        let proxy = proxy.start().await;
        let mut agent = Agent::new(&proxy).set("tools", long_tools(Format::Chat));
        let steps = agent.steps(3).await;
        let reserve = steps[2]
            .action("reserve")
            .map(|tokens| tokens.parse::<u32>().unwrap());
        assert_eq!(reserve.is_some(), held, "{:?}", steps[2].header("actions"));
        assert!(
            reserve.is_none_or(|tokens| (500..2_048).contains(&tokens)),
            "{reserve:?}"
        );
        assert!(!steps[2].has_action("tools-shortened"));
    }
}

/// A cut of a request that has no room for it adds no tool, and says so.
#[tokio::test]
async fn recall_and_recovery_give_way_where_system_and_tools_leave_little() {
    let up = ModelSetup::new(WINDOW).start(work).await;
    let proxy = up.provider.proxy().set(move |config| {
        config.models.insert("m".into(), model_with_window(WINDOW));
        config.guard.tools = plimsoll::config::ToolsMode::Whole;
    });
    let proxy = proxy.start().await;
    let mut agent = Agent::new(&proxy).set("tools", long_tools(Format::Chat));
    agent.result = |nth| words(260, nth);
    let steps = agent.steps(30).await;
    let cut = steps.iter().filter(|it| it.has_action("no-recall")).count();
    assert!(cut > 10, "{cut}");
    for (step, body) in steps.iter().zip(up.bodies().await) {
        assert_eq!((step.injected(), step.course()), (None, 1));
        assert_eq!(body["tools"], long_tools(Format::Chat));
    }
    let session = agent.session(&steps[29]).await;
    assert!(session["recovery_held"].is_string());
    up.assert_no_faults();
}
