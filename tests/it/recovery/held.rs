//! Requests that recovery leaves alone: chats in small windows, and those whose fixed part is beyond a level.

use http::Method;
use serde_json::{Value, json};

use plimsoll::config::AddTools;

use super::{Shape, obliging_model, proxy_before, words, work};
use crate::support::{
    Agent, MessagesAgent, ModelCall, ModelReply, ModelSetup, ResponsesAgent, RunningModel,
    RunningProxy, tool,
};

/// A proxy with the default settings of chats before a window of that size, whose level is caution from 60 % on.
async fn pair_at(window: u32, chats: bool) -> (RunningProxy, RunningModel) {
    let up = ModelSetup::new(window).start(obliging_model).await;
    let shape = Shape {
        window,
        ..Shape::default()
    };
    let proxy = proxy_before(&up, &shape).set(move |config| config.recovery.chats = chats);
    (proxy.start().await, up)
}

fn chat(proxy: &RunningProxy, window: u32) -> Agent {
    let agent = Agent::bare(proxy).says("Mend the ship.");
    agent.says(&words(window as usize * 3 / 5, 0))
}

#[tokio::test]
async fn a_chat_in_a_small_window_gets_no_prompt_unless_the_settings_ask_for_it() {
    for stream in [false, true] {
        for (window, chats, prompted) in [
            (20_000, false, false),
            (32_767, false, false),
            (32_768, false, true),
            (20_000, true, true),
        ] {
            let (proxy, up) = pair_at(window, chats).await;
            let mut agent = chat(&proxy, window).set("stream", stream);
            let steps = agent.steps(4).await;
            let found = steps.iter().any(|it| it.injected().is_some());
            assert_eq!(found, prompted, "{window}, {chats}");
            let session = agent.session(&steps[3]).await;
            let held = if prompted { Value::Null } else { "chat".into() };
            assert_eq!(session["recovery_held"], held, "{window}, {chats}");
            if !prompted {
                assert_eq!(session["countdown"], Value::Null);
                let sent = up.bodies().await.pop().unwrap();
                let mut asked = agent.messages.clone();
                asked.truncate(asked.len() - 2);
                assert_eq!(sent["messages"], Value::from(asked));
            }
            up.assert_no_faults();
        }
    }
}

#[tokio::test]
async fn a_chat_of_messages_and_of_responses_is_left_alone_too() {
    for stream in [false, true] {
        let (proxy, up) = pair_at(20_000, false).await;
        let mut agent = MessagesAgent::new(&proxy).set("stream", stream);
        agent.fields.as_object_mut().unwrap().remove("tools");
        agent.push("assistant", "Aye.");
        agent.push("user", words(12_000, 0));
        let mut other = ResponsesAgent::new(&proxy).set("stream", stream);
        for name in ["tools", "tool_choice"] {
            other.fields.as_object_mut().unwrap().remove(name);
        }
        other.push([crate::support::user_entry(&words(12_000, 0))]);
        for _ in 0..4 {
            assert_eq!(agent.step().await.injected(), None);
            assert_eq!(other.step().await.injected(), None);
        }
        for body in up.bodies().await {
            assert!(!body.to_string().contains("Context notice"), "{body}");
        }
    }
}

#[tokio::test]
async fn a_request_without_tools_in_a_session_with_tools_is_decided_by_itself() {
    let (proxy, up) = pair_at(20_000, false).await;
    let mut agent = Agent::new(&proxy).says(&words(10_500, 0));
    agent.step().await;
    let tools = agent.fields["tools"].take();
    agent.fields.as_object_mut().unwrap().remove("tools");
    let plain = agent.ask().await;
    assert_eq!(plain.injected(), None);
    assert_eq!(agent.session(&plain).await["recovery_held"], "chat");
    agent.fields["tools"] = tools;
    let next = agent.step().await;
    assert_eq!(next.injected(), Some("caution"));
    assert_eq!(agent.session(&next).await["recovery_held"], Value::Null);
    up.assert_no_faults();
}

#[tokio::test]
async fn a_user_may_clear_a_chat_that_is_left_alone() {
    let (proxy, up) = pair_at(20_000, false).await;
    let mut agent = chat(&proxy, 20_000);
    let first = agent.steps(3).await.remove(0);
    let clear = format!("sessions/{}/clear", first.header("session").unwrap());
    assert_eq!(agent.api(Method::POST, &clear).await.status, 200);
    let cleared = agent.step().await;
    assert_eq!(cleared.action("course"), Some("2"));
    let after = agent.step().await;
    assert_eq!((after.course(), after.injected()), (2, None));
    up.assert_no_faults();
}

/// The tools of a chat application: `count` of some 170 tokens each.
fn many_tools(count: usize) -> Value {
    let tools = (0..count).map(|nth| {
        let mut tool = tool(&format!("tool_{nth}"));
        tool["function"]["description"] = words(150, nth).into();
        tool
    });
    tools.collect()
}

#[tokio::test]
async fn tools_that_fill_the_window_bring_no_prompts_and_no_courses() {
    for stream in [false, true] {
        let up = ModelSetup::new(8_192).start(work).await;
        let shape = Shape {
            window: 8_192,
            ..Shape::default()
        };
        let proxy = proxy_before(&up, &shape).set(|config| {
            config.models.get_mut("m").unwrap().optimal_max_tokens = None;
            config.models.get_mut("m").unwrap().critical_max_tokens = None;
        });
        let proxy = proxy.start().await;
        let mut agent = Agent::new(&proxy).set("stream", stream);
        agent.fields["tools"] = many_tools(36);
        let steps = agent.steps(24).await;
        for step in &steps {
            assert_eq!((step.injected(), step.course()), (None, 1));
        }
        let session = agent.session(steps.last().unwrap()).await;
        assert_eq!(session["recovery_held"], "tools");
        let percent = session["fixed_percent"].as_u64().unwrap();
        assert!((70..95).contains(&percent), "{percent} %");
        for body in up.bodies().await {
            assert_eq!(body["tools"].as_array().unwrap().len(), 36);
        }
        up.assert_no_faults();
    }
}

/// The model clears its mind beside a call of the client's, whose next request has tools that fill the window.
#[tokio::test]
async fn what_the_model_ordered_is_carried_out_where_recovery_is_held_back() {
    let up = ModelSetup::new(8_192)
        .start(|heard| {
            let read = ModelCall::new("c1", "read_file", &json!({"path": "a"}));
            let clear = ModelCall::new("c2", "clear_mind", &json!({}));
            match heard.messages().len() {
                3 if heard.offers_tool("clear_mind") => ModelReply::calls([read, clear]),
                3 => ModelReply::calls([read]),
                _ => ModelReply::text("Done."),
            }
        })
        .await;
    let shape = Shape {
        window: 8_192,
        ..Shape::default()
    };
    let proxy = proxy_before(&up, &shape).set(|config| {
        config.recovery.tools = AddTools::Always;
        config.models.get_mut("m").unwrap().optimal_max_tokens = None;
        config.models.get_mut("m").unwrap().critical_max_tokens = None;
    });
    let proxy = proxy.start().await;
    let mut agent = Agent::new(&proxy);
    agent
        .messages
        .push(json!({"role": "assistant", "content": "Which?"}));
    agent = agent.says("All leaks.");
    agent.messages.remove(0);
    assert_eq!(agent.messages.len(), 3, "{:?}", agent.messages);
    let first = agent.step().await;
    assert_eq!(first.course(), 1);
    agent.fields["tools"] = many_tools(36);
    let next = agent.step().await;
    let session = agent.session(&next).await;
    assert_eq!(session["recovery_held"], "tools");
    assert_eq!(
        next.action("course"),
        Some("2"),
        "{:?}",
        next.header("actions")
    );
    up.assert_no_faults();
}

/// Tools beyond caution alone: no caution prompts, but the countdown.
#[tokio::test]
async fn each_level_is_held_back_apart() {
    let up = ModelSetup::new(20_000).start(work).await;
    let proxy = proxy_before(&up, &Shape::default()).set(|config| {
        config.models.get_mut("m").unwrap().optimal_max_tokens = Some(2_000);
        config.models.get_mut("m").unwrap().critical_max_tokens = Some(9_000);
    });
    let proxy = proxy.start().await;
    let mut agent = Agent::new(&proxy);
    agent.fields["tools"] = many_tools(20);
    agent.result = |nth| words(700, nth);
    let steps = agent.steps(20).await;
    let kinds: Vec<_> = steps.iter().filter_map(|it| it.injected()).collect();
    assert!(kinds.contains(&"critical"), "{kinds:?}");
    assert!(!kinds.contains(&"caution"), "{kinds:?}");
    let session = agent.session(&steps[2]).await;
    assert_eq!(session["recovery_held"], "tools");
    assert!(steps.iter().any(|it| it.course() == 2), "{kinds:?}");
    up.assert_no_faults();
}

/// The provider's own additions are no reason.
#[tokio::test]
async fn what_a_provider_counts_beside_the_body_holds_nothing_back() {
    let up = ModelSetup::new(20_000)
        .start(|heard| {
            let reply = json!({"id": "c", "object": "chat.completion", "choices": [{"index": 0,
                "message": {"role": "assistant", "content": "Aye."}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": heard.tokens + 12_000, "completion_tokens": 3, "total_tokens": heard.tokens + 12_003}});
            let body = reply.to_string();
            ModelReply::Raw(vec![crate::support::answer("200 OK", "", body)])
        })
        .await;
    let proxy = proxy_before(&up, &Shape::default()).start().await;
    let mut agent = Agent::new(&proxy);
    let steps = agent.steps(3).await;
    assert!(steps.iter().any(|it| it.injected() == Some("caution")));
}
