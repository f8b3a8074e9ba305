//! Calls apart from their results, programs, and what the server runs over several answers: cut, and whole.

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use super::{Api, split_fitted};
use crate::support::{ScriptedProvider, model_with_window, strict};

/// The request that the provider would get, and the actions.
pub(super) async fn fit(format: &str, profile: &str, body: &Value) -> (Vec<u8>, String) {
    let up = ScriptedProvider::start().await;
    let profile = find_profile(profile).unwrap();
    let proxy = up.proxy().model("m", model_with_window(8_192));
    let proxy = proxy
        .providers(|provider| provider.profile = profile)
        .start()
        .await;
    let fit = Api::new(&proxy)
        .post(&format!("fit?format={format}"), body.to_string())
        .await;
    assert_eq!(fit.status, 200, "{}", fit.text());
    let (request, report) = split_fitted(&fit.body);
    assert_eq!(report["stands_back"], Value::Null);
    (
        request.to_vec(),
        report["actions"].as_str().unwrap().to_owned(),
    )
}

pub(super) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(super) fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"})
}

pub(super) fn output(id: &str, words: usize) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": format!("{id} has it. ").repeat(words)})
}

pub(super) fn with(mut entry: Value, key: &str, value: Value) -> Value {
    entry[key] = value;
    entry
}

/// Steps with results of some 250 tokens.
pub(super) fn steps(name: &str, count: usize) -> Vec<Value> {
    let ids = (0..count).map(|at| format!("{name}{at}"));
    ids.flat_map(|id| [call(&id), output(&id, 60)]).collect()
}

pub(super) fn responses(input: &[Vec<Value>]) -> Value {
    let tools = json!([{"type": "function", "name": "look", "parameters": {"type": "object"}},
        {"type": "function", "name": "fetch", "async": true, "parameters": {"type": "object"}}]);
    // Without thinking, so that nothing is added to answers at DeepSeek.
    json!({"model": "m", "tools": tools, "input": input.concat(), "store": false,
        "reasoning": {"effort": "none"}})
}

pub(super) fn ids(body: &[u8], kind: &str) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let entries = body["input"].as_array().unwrap().iter();
    let entries = entries.filter(|entry| entry["type"] == kind);
    entries
        .map(|entry| entry["call_id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_call_that_waits_stays_and_a_pair_apart_is_whole() {
    let waits = || with(call("a"), "async", true.into());
    let by_tool = || with(call("a"), "name", "fetch".into());
    let note = || json!({"role": "developer", "content": "It is late."});
    let shapes = [
        // Pending.
        (vec![waits()], vec![]),
        (vec![by_tool(), call("b"), output("b", 60)], vec![]),
        (vec![waits(), user("And what else?")], vec![]),
        // Late.
        (vec![waits(), user("And what else?")], vec![output("a", 60)]),
        (
            vec![by_tool(), call("b"), output("b", 60)],
            vec![user("Well?"), output("a", 60)],
        ),
        // Interrupted.
        (
            vec![call("a"), user("Mind the keel."), output("a", 60)],
            vec![],
        ),
        (vec![call("a"), note(), output("a", 60)], vec![]),
    ];
    for (first, later) in shapes {
        let pending = !first.iter().chain(&later).any(|it| it == &output("a", 60));
        for (profile, results_may_be_apart) in
            [("openai", true), ("azure", true), ("deepseek", false)]
        {
            let body = responses(&[
                vec![user("Mend the ship.")],
                steps("x", 40),
                first.clone(),
                steps("y", 40),
                later.clone(),
                steps("z", 40),
                vec![user("And now?")],
            ]);
            let (sent, actions) = fit("responses", profile, &body).await;
            assert!(
                actions.contains("dropped="),
                "{actions}: {first:?} {later:?}"
            );
            let before = body.to_string();
            let broken = strict::responses::find_broken_rules(
                before.as_bytes(),
                &sent,
                results_may_be_apart,
            );
            assert_eq!(broken, [], "{first:?} {later:?}");
            let has = |kind: &str| ids(&sent, kind).contains(&"a".to_owned());
            let (called, answered) = (has("function_call"), has("function_call_output"));
            assert_eq!(
                (called, answered),
                if pending {
                    (true, false)
                } else {
                    (called, called)
                }
            );
            assert!(sent.len() < before.len() / 2, "{actions}");
        }
    }
}

/// A session in which every answer has a call whose output comes with a later one.
#[tokio::test]
async fn calls_that_overlap_all_along_do_not_pin_one_another() {
    let mut input = vec![user("Mend the ship.")];
    for at in 0..60 {
        let (own, before) = (format!("a{at}"), format!("a{}", at.max(3) - 3));
        input.push(with(call(&own), "async", true.into()));
        input.extend([call(&format!("s{at}")), output(&format!("s{at}"), 30)]);
        input.extend((at >= 3).then(|| output(&before, 30)));
    }
    let body = responses(&[input]);
    let (sent, actions) = fit("responses", "openai", &body).await;
    let before = body.to_string();
    assert_eq!(
        strict::responses::find_broken_rules_apart(before.as_bytes(), &sent),
        []
    );
    assert!(actions.contains("dropped="), "{actions}");
    assert!(
        sent.len() < before.len() / 2,
        "{actions}: {} of {}",
        sent.len(),
        before.len()
    );
    // Those that wait are there, and few besides.
    let called = ids(&sent, "function_call");
    assert!(called.contains(&"a59".to_owned()) && called.contains(&"a57".to_owned()));
}

/// Nothing but calls whose outputs come after the next answer, so that one always waits.
#[tokio::test]
async fn calls_that_always_wait_do_not_keep_the_turn_whole() {
    let mut input = vec![user("Mend the ship.")];
    for at in 0..120 {
        input.push(with(call(&format!("a{at}")), "async", true.into()));
        input.extend((at > 0).then(|| output(&format!("a{}", at - 1), 60)));
    }
    let body = responses(&[input]);
    let (sent, actions) = fit("responses", "openai", &body).await;
    let broken = strict::responses::find_broken_rules_apart(body.to_string().as_bytes(), &sent);
    assert_eq!(broken, [], "{actions}");
    assert!(actions.contains("dropped="), "{actions}");
    let text = String::from_utf8(sent).unwrap();
    assert!(text.contains(&"a118 has it. ".repeat(60)), "{text}");
}

/// Outputs that come late together share what room there is.
#[tokio::test]
async fn late_outputs_in_a_row_are_cut_alike() {
    let names = ["a", "b", "c", "d"];
    let mut input = vec![user("Mend the ship.")];
    input.extend(names.map(|id| with(call(id), "async", true.into())));
    input.push(user("And what else?"));
    input.extend(names.map(|id| output(id, 1_000)));
    let (sent, actions) = fit("responses", "openai", &responses(&[input])).await;
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let entries = sent["input"].as_array().unwrap().iter();
    let lengths = entries.filter_map(|entry| Some(entry["output"].as_str()?.len()));
    let lengths: Vec<usize> = lengths.collect();
    let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
    assert_eq!(lengths.len(), 4, "{actions}");
    assert!(*least > 2_000 && most - least < most / 10, "{lengths:?}");
}

/// A program of 30 calls, which is done, or not.
fn program(is_done: bool, words: usize) -> Vec<Value> {
    let by = |entry: Value| {
        with(
            entry,
            "caller",
            json!({"type": "program", "caller_id": "p"}),
        )
    };
    let mut entries = vec![
        json!({"type": "program", "id": "cm_1", "call_id": "p", "code": "look()", "fingerprint": "Zg=="}),
    ];
    for at in 0..30 {
        let id = format!("p{at}");
        entries.extend([by(call(&id)), by(output(&id, words))]);
    }
    let done = json!({"type": "program_output", "call_id": "p", "result": "30 leaks", "status": "completed"});
    entries.extend(is_done.then_some(done));
    entries
}

#[tokio::test]
async fn a_program_of_thirty_calls_is_whole() {
    for (is_done, words) in [(true, 60), (true, 20), (false, 20), (false, 60)] {
        let mut list = vec![
            vec![user("Mend the ship.")],
            steps("x", 80),
            program(is_done, words),
        ];
        if is_done {
            list.extend([steps("y", 60), vec![user("And now?")]]);
        }
        let body = responses(&list);
        let (sent, actions) = fit("responses", "openai", &body).await;
        let before = body.to_string();
        let broken = strict::responses::find_broken_rules_apart(before.as_bytes(), &sent);
        assert_eq!(broken, [], "{actions}");
        assert!(actions.contains("dropped="), "{actions}");
        let calls = ids(&sent, "function_call");
        let of_program = calls.iter().filter(|id| id.starts_with('p')).count();
        let is_there = ids(&sent, "program").len();
        assert_eq!(
            (of_program, is_there),
            if is_there > 0 { (30, 1) } else { (0, 0) }
        );
        assert!(is_done || is_there == 1, "it is at work");
    }
}

pub(super) fn tool_use(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "look", "input": {}})
}

pub(super) fn results(id: &str, words: usize) -> Value {
    let text = format!("{id} has it. ").repeat(words);
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]})
}

pub(super) fn answer(blocks: &[Value]) -> Value {
    json!({"role": "assistant", "content": blocks})
}

pub(super) fn messages_steps(name: &str, count: usize) -> Vec<Value> {
    let ids = (0..count).map(|at| format!("{name}{at}"));
    ids.flat_map(|id| [answer(&[tool_use(&id)]), results(&id, 60)])
        .collect()
}

/// Code that made 30 calls in as many answers, and is done, or not.
fn code_run(is_done: bool, words: usize) -> Vec<Value> {
    let run = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "look()"}});
    let caller = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_1"});
    let mut entries = Vec::new();
    for at in 0..30 {
        let id = format!("p{at}");
        let called = with(tool_use(&id), "caller", caller.clone());
        let blocks = [vec![run.clone(); usize::from(at == 0)], vec![called]].concat();
        entries.extend([answer(&blocks), results(&id, words)]);
    }
    let done = json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1",
        "content": {"type": "code_execution_result", "stdout": "30 leaks", "stderr": "", "return_code": 0}});
    entries.extend(is_done.then(|| answer(&[done, json!({"type": "text", "text": "30 leaks."})])));
    entries
}

#[tokio::test]
async fn code_that_called_thirty_times_is_whole() {
    for (is_done, words) in [(true, 60), (true, 20), (false, 20), (false, 60)] {
        let mut list = vec![
            vec![user("Mend the ship.")],
            messages_steps("x", 150),
            code_run(is_done, words),
        ];
        if is_done {
            list.extend([vec![user("Go on.")], messages_steps("y", 150)]);
        }
        let body = json!({"model": "m", "max_tokens": 500, "messages": list.concat(),
            "tools": [{"type": "code_execution_20260120", "name": "code_execution"}, {"name": "look", "input_schema": {"type": "object"}}]});
        let (sent, actions) = fit("messages", "anthropic", &body).await;
        let before = body.to_string();
        let broken = strict::messages::find_broken_rules(before.as_bytes(), &sent);
        assert_eq!(broken, [], "{actions}");
        assert!(actions.contains("dropped="), "{actions}");
        let text = String::from_utf8(sent).unwrap();
        let (calls, runs) = (
            text.matches("\"caller\"").count(),
            text.matches("server_tool_use").count(),
        );
        assert_eq!((calls, runs), if runs > 0 { (30, 1) } else { (0, 0) });
        assert!(is_done || runs == 1, "it is at work");
        assert!(
            text.len() < before.len() / 2,
            "{actions}: {} of {}",
            text.len(),
            before.len()
        );
    }
}

/// A tool of the server has its result in a later answer.
#[tokio::test]
async fn a_tool_of_the_server_goes_with_its_result_in_a_later_answer() {
    let run = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}});
    let found =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    let end = json!({"type": "text", "text": "Found."});
    let shapes = [
        // Paused, and beside a call of the client's.
        vec![
            answer(std::slice::from_ref(&run)),
            answer(&[found.clone(), end.clone()]),
            user("Go on."),
        ],
        vec![
            answer(&[run.clone(), tool_use("t")]),
            results("t", 60),
            answer(&[found, end]),
            user("Go on."),
        ],
        // The user spoke before it was done.
        vec![
            answer(&[run, tool_use("t")]),
            results("t", 60),
            user("Leave it."),
        ],
    ];
    for shape in shapes {
        let list = [
            vec![user("Mend the ship.")],
            messages_steps("x", 40),
            shape,
            messages_steps("y", 30),
        ];
        let body = json!({"model": "m", "max_tokens": 500, "messages": list.concat(),
            "tools": [{"name": "look", "input_schema": {"type": "object"}}]});
        let (sent, actions) = fit("messages", "anthropic", &body).await;
        let broken = strict::messages::find_broken_rules(body.to_string().as_bytes(), &sent);
        assert_eq!(broken, [], "{actions}");
        assert!(actions.contains("dropped="), "{actions}");
    }
}
