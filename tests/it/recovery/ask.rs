//! Tool options of a request, and their effect on injected tools.

use serde_json::{Value, json};

use super::{
    Shape, WINDOW, agent_past_optimal, injected_texts, obliging_model, pair, proxy_before, work,
};
use crate::support::{
    Agent, AgentGeneration, ModelCall, ModelReply, ModelSetup, PROXY_TOOLS, RunningModel, tool,
};

fn offered_names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| tool["function"]["name"].as_str());
    let functions = body["functions"].as_array().into_iter().flatten();
    names
        .chain(functions.filter_map(|function| function["name"].as_str()))
        .collect()
}

fn with_ours(bodies: &[Value]) -> bool {
    let ours = |body: &Value| {
        PROXY_TOOLS
            .iter()
            .all(|name| offered_names(body).contains(name))
    };
    bodies.iter().any(ours)
}

/// A few generations of an agent with these fields, and all upstream requests.
async fn play_steps(
    stream: bool,
    fields: &[(&str, Value)],
) -> (Vec<AgentGeneration>, Vec<Value>, RunningModel) {
    let (proxy, up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy).set("stream", stream);
    for (name, value) in fields {
        agent = agent.set(name, value.clone());
    }
    let generations = agent.steps(5).await;
    up.assert_no_faults();
    let bodies = up.bodies().await;
    (generations, bodies, up)
}

#[tokio::test]
async fn injected_tools_come_with_the_first_prompt_and_stay() {
    let (generations, bodies, _) = play_steps(false, &[]).await;
    assert_eq!(generations[0].injected(), None);
    assert_eq!(generations[1].injected(), Some("caution"));
    assert_eq!(offered_names(&bodies[0]), ["read_file"]);
    for body in &bodies[1..] {
        let offered = offered_names(body);
        assert_eq!(offered[0], "read_file");
        assert!(
            PROXY_TOOLS.iter().all(|name| offered.contains(name)),
            "{offered:?}"
        );
        assert_eq!(
            injected_texts(body),
            1,
            "the prompt stays where it was given"
        );
    }
    let tools: Vec<&Value> = bodies[1..].iter().map(|body| &body["tools"]).collect();
    assert!(tools.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn tool_choice_none_is_kept() {
    for stream in [false, true] {
        let (generations, bodies, _) = play_steps(stream, &[("tool_choice", "none".into())]).await;
        assert!(generations.iter().all(|it| it.called().is_empty()));
        assert!(bodies.iter().all(|body| body["tool_choice"] == "none"));
    }
}

#[tokio::test]
async fn tool_choice_required_is_met_by_a_client_tool() {
    let named = json!({"type": "function", "function": {"name": "read_file"}});
    for choice in [json!("required"), named] {
        for stream in [false, true] {
            let (generations, bodies, _) =
                play_steps(stream, &[("tool_choice", choice.clone())]).await;
            for generation in &generations {
                assert_eq!(generation.called(), ["read_file"]);
            }
            assert!(bodies.iter().all(|body| body["tool_choice"] == choice));
        }
    }
}

#[tokio::test]
async fn parallel_tool_calls_false_is_kept() {
    for stream in [false, true] {
        let (generations, bodies, _) =
            play_steps(stream, &[("parallel_tool_calls", false.into())]).await;
        assert!(generations.iter().all(|it| it.called() == ["read_file"]));
        assert!(
            bodies
                .iter()
                .all(|body| body["parallel_tool_calls"] == false)
        );
        assert!(with_ours(&bodies));
    }
}

#[tokio::test]
async fn with_several_choices_all_answers_are_the_clients() {
    let (proxy, up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy).set("n", 2);
    for _ in 0..5 {
        let generation = agent.step().await;
        let body = generation.answer.json();
        let choices = body["choices"].as_array().unwrap();
        assert_eq!(choices.len(), 2);
        for choice in choices {
            let calls = choice["message"]["tool_calls"].as_array().unwrap();
            assert_eq!(calls[0]["function"]["name"], "read_file", "{choice}");
        }
    }
    up.assert_no_faults();
}

#[tokio::test]
async fn injected_tools_are_strict_beside_strict_tools() {
    let mut strict = tool("read_file");
    strict["function"]["strict"] = true.into();
    strict["function"]["parameters"]["additionalProperties"] = false.into();
    let (generations, bodies, _) = play_steps(false, &[("tools", json!([strict]))]).await;
    assert!(with_ours(&bodies));
    for tool in bodies
        .iter()
        .flat_map(|body| body["tools"].as_array().unwrap())
    {
        if tool["function"]["strict"] == true {
            let parameters = &tool["function"]["parameters"];
            assert_eq!(parameters["additionalProperties"], false, "{tool}");
            let properties = parameters["properties"].as_object().unwrap();
            let required = parameters["required"].as_array().unwrap();
            let all = properties
                .keys()
                .all(|name| required.contains(&name.as_str().into()));
            assert!(all, "{tool}");
        }
    }
    assert!(generations.iter().all(|it| it.called() == ["read_file"]));
}

#[tokio::test]
async fn injected_tools_are_functions_beside_legacy_functions() {
    for stream in [false, true] {
        let (proxy, up) = pair(obliging_model).await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        let functions = json!([tool("read_file")["function"]]);
        agent.fields["functions"] = functions;
        agent.fields.as_object_mut().unwrap().remove("tools");
        let before = up.count();
        let generations = agent.steps(4).await;
        for generation in &generations {
            assert_eq!(generation.message["function_call"]["name"], "read_file");
            assert_eq!(generation.finish, "function_call");
        }
        let bodies = up.bodies().await.split_off(before);
        assert!(bodies.iter().all(|body| body.get("tools").is_none()));
        assert!(with_ours(&bodies), "{bodies:#?}");
        assert!(bodies.len() > generations.len(), "a round was gone through");
        up.assert_no_faults();
    }
}

#[tokio::test]
async fn a_client_tool_of_the_same_name_is_kept() {
    for name in PROXY_TOOLS {
        for stream in [false, true] {
            // The model calls the client's tool of that name every time.
            let model = ModelSetup::new(WINDOW);
            let up = model
                .start(move |heard| {
                    let path = json!({"path": "x"});
                    ModelReply::calls([ModelCall::new(&format!("c{}", heard.nth), name, &path)])
                })
                .await;
            let proxy = proxy_before(&up, &Shape::default()).start().await;
            let mut agent = agent_past_optimal(&proxy)
                .set("stream", stream)
                .set("tools", json!([tool(name)]));
            let generations = agent.steps(4).await;
            assert!(generations.iter().all(|it| it.called() == [name]));
            let bodies = up.bodies().await;
            assert_eq!(bodies.len(), 4);
            assert!(bodies.iter().all(|body| offered_names(body) == [name]));
            up.assert_no_faults();
        }
    }
}

#[tokio::test]
async fn nothing_is_injected_into_auxiliary_requests() {
    let (proxy, up) = pair(obliging_model).await;
    let mut agent = agent_past_optimal(&proxy);
    agent.steps(2).await;
    let mut title = Agent::bare(&proxy);
    title.messages = agent.messages.clone();
    let title = title.says("A title, please.").set("max_tokens", 20);
    let before = up.count();
    title.ask().await;
    let bodies = up.bodies().await.split_off(before);
    assert_eq!(bodies.len(), 1);
    assert!(offered_names(&bodies[0]).is_empty());
    let last = bodies[0]["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["content"], "A title, please.");
    up.assert_no_faults();
}

#[tokio::test]
async fn an_unprompted_reminder_call_is_executed() {
    // The tools stay, so the model may call them without a prompt.
    let (proxy, up) = pair(|heard| match heard.nth {
        4 if heard.offers_tool("add_reminder") => ModelReply::calls([ModelCall::new(
            "own",
            "add_reminder",
            &json!({"content": "by the way"}),
        )]),
        _ => work(heard),
    })
    .await;
    let mut agent = agent_past_optimal(&proxy);
    let generations = agent.steps(7).await;
    assert_eq!(up.count(), 8);
    assert_eq!(generations.last().unwrap().number("reminders"), Some(1));
    up.assert_no_faults();
}
