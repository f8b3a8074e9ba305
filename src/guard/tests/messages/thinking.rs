//! Thinking of rounds that the client never saw as answers of their own: it goes back once, where the model gave it.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    config::profile::find_profile,
    conversation::Format,
    guard::{
        self,
        fold::memory::SessionKnowledge,
        inject::{
            dropped_rounds::drop_round,
            injections::{
                InjectedAuthor, InjectedMessage, InjectionContent, InjectionRecord, Injections,
            },
        },
    },
    json::text::digest_text,
    support::{
        guard_properties::settings,
        plans::{apply_plan, make_policy},
        strict,
    },
};

const TASK: &str = r#"{"role":"user","content":"u"}"#;
const FIRST: &str = r#"{"type":"thinking","thinking":"I note \u00e9 it.","signature":"Zmlyc3Q="}"#;
const SECOND: &str = r#"{"type":"redacted_thinking","data":"c2Vjb25k"}"#;
const THIRD: &str = r#"{"type":"thinking","thinking":"Now I look.","signature":"dGhpcmQ="}"#;
const SEARCH: &str = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":"x"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}"#;
const CALL: &str = r#"{"type":"tool_use","id":"a","name":"f","input":{}}"#;
const RESULT: &str =
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"}]}"#;

fn text(text: &str) -> String {
    format!(r#"{{"type":"text","text":"{text}"}}"#)
}

/// A round of one proxy-executed call behind these blocks.
fn round(id: &str, blocks: &[&str]) -> Vec<InjectedMessage> {
    let call = format!(r#"{{"type":"tool_use","id":"{id}","name":"add_reminder","input":{{}}}}"#);
    let answer = Format::Messages.calls_item(&[blocks, &[&call]].concat());
    let result = format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"Kept."}}"#);
    let message = |by, json: &str| InjectedMessage {
        by,
        json: json.into(),
    };
    vec![
        message(InjectedAuthor::Model { calls: 1 }, &answer),
        message(InjectedAuthor::Tool, &result),
    ]
}

struct Sent {
    /// The content of the client's answer.
    answer: String,
    /// The whole body.
    body: String,
    tokens: u32,
}

/// Sends a conversation whose answer the client echoes with these blocks, after rounds and the text in them.
fn send(echo: &[&str], rounds: &[Vec<InjectedMessage>], spoken: &str) -> Sent {
    let rounds: Vec<_> = rounds
        .iter()
        .cloned()
        .map(InjectionContent::Round)
        .collect();
    send_with(echo, rounds, spoken)
}

/// The same with records of rounds, sent or not.
fn send_with(echo: &[&str], rounds: Vec<InjectionContent>, spoken: &str) -> Sent {
    let answer = answer_entry(echo);
    let spoken = (!spoken.is_empty()).then(|| InjectionContent::Spoken {
        chars: spoken.chars().count() as u32,
        digest: digest_text(spoken.as_bytes()),
    });
    let records = rounds.into_iter().chain(spoken);
    let (after, tokens) = plan_messages(&format!("{TASK},{answer},{RESULT}"), records);
    let found = Format::Messages.index_body(after.clone()).unwrap();
    let result = found.items.len() - 2;
    let content = found.items[result].content.span().unwrap();
    Sent {
        answer: String::from_utf8_lossy(found.span_bytes(content)).into_owned(),
        body: String::from_utf8_lossy(&after).into_owned(),
        tokens,
    }
}

fn answer_entry(blocks: &[&str]) -> String {
    format!(
        r#"{{"role":"assistant","content":[{}]}}"#,
        blocks.join(" , ")
    )
}

/// The body that is sent for messages with these records behind the task, and its raw tokens.
fn plan_messages(
    messages: &str,
    records: impl IntoIterator<Item = InjectionContent>,
) -> (Bytes, u32) {
    let body = format!(r#"{{"messages":[{messages}]}}"#);
    let conversation = Format::Messages.index_body(Bytes::from(body)).unwrap();
    let records = records.into_iter();
    let knowledge = SessionKnowledge {
        injections: Injections {
            records: records
                .map(|what| InjectionRecord { place: 1, what })
                .collect(),
            ..Injections::default()
        },
        ..SessionKnowledge::default()
    };
    let settings = settings();
    let policy = make_policy(find_profile("anthropic").unwrap(), 64_000, &settings);
    let plan = guard::plan(&conversation, &policy, &knowledge);
    assert_eq!(plan.report.stood_back, None);
    assert_eq!(plan.report.records_left_out, 0);
    let after = apply_plan(&conversation, &plan);
    assert_eq!(strict::messages::find_violations(&after), []);
    (after, plan.report.raw_after)
}

#[test]
fn thinking_of_a_round_stands_in_it_and_not_in_the_answer_too() {
    let one = [round("own-1", &[FIRST])];
    let two = [round("own-1", &[FIRST]), round("own-2", &[SECOND])];
    let spoke = [round("own-1", &[FIRST, &text("Noted.")])];
    let searched = [round("own-1", &[FIRST, SEARCH, &text("Noted.")])];
    let (noted, done) = (text("Noted."), text("Done."));
    for (echo, rounds, spoken, left) in [
        (&[FIRST, THIRD, CALL][..], &one[..], "", vec![THIRD, CALL]),
        (&[FIRST, CALL], &one, "", vec![CALL]),
        (
            &[FIRST, SECOND, THIRD, &done, CALL],
            &two,
            "",
            vec![THIRD, &done, CALL],
        ),
        (
            &[FIRST, &noted, THIRD, &done, CALL],
            &spoke,
            "Noted.",
            vec![THIRD, &done, CALL],
        ),
        (
            &[FIRST, SEARCH, &noted, THIRD, CALL],
            &searched,
            "Noted.",
            vec![THIRD, CALL],
        ),
        // A client that sends no thinking back.
        (&[&done, CALL], &one, "", vec![&done, CALL]),
        (&[&noted, &done, CALL], &spoke, "Noted.", vec![&done, CALL]),
        // Only the newest thinking is sent back.
        (&[SECOND, CALL], &two, "", vec![CALL]),
        // Other thinking than the round's.
        (&[THIRD, FIRST, CALL], &one, "", vec![THIRD, FIRST, CALL]),
    ] {
        let sent = send(echo, rounds, spoken);
        let answer: Value = serde_json::from_str(&sent.answer).unwrap();
        let left: Value = serde_json::from_str(&format!("[{}]", left.join(","))).unwrap();
        assert_eq!(answer, left, "{echo:?}");
        if !echo.contains(&FIRST) || echo[0] == FIRST {
            let times = [FIRST, SECOND, SEARCH].map(|block| sent.body.matches(block).count());
            let json = |round: &Vec<InjectedMessage>| round[0].json.to_string();
            let whole: String = rounds.iter().map(json).collect();
            let expected = [FIRST, SECOND, SEARCH].map(|block| whole.matches(block).count());
            assert_eq!(times, expected, "{echo:?}");
        }
    }
}

#[test]
fn thinking_that_the_client_spells_otherwise_is_the_same() {
    let other = r#"{ "signature":"Zmlyc3Q=", "type":"thinking","thinking":"I note é it."}"#;
    let sent = send(&[other, THIRD, CALL], &[round("own-1", &[FIRST])], "");
    assert_eq!(sent.answer, format!("[{THIRD} , {CALL}]"));
    assert!(sent.body.contains(FIRST));
}

#[test]
fn thinking_that_is_removed_weighs_nothing() {
    let long = format!(
        r#"{{"type":"thinking","thinking":"{}","signature":"s"}}"#,
        "I think. ".repeat(2_000)
    );
    let rounds = [round("own-1", &[&long])];
    let once = send(&[THIRD, CALL], &rounds, "").tokens;
    let twice = send(&[&long, THIRD, CALL], &rounds, "").tokens;
    assert!(twice.abs_diff(once) < 5, "{once} {twice}");
}

#[test]
fn an_answer_of_nothing_but_a_round_s_thinking_keeps_it() {
    let sent = send(&[FIRST, CALL], &[round("own-1", &[SECOND])], "");
    assert_eq!(sent.answer, format!("[{FIRST} , {CALL}]"));
}

#[test]
fn thinking_of_a_round_that_is_not_sent_is_removed_from_the_answer() {
    let drop = |blocks: &[&str]| drop_round(Format::Messages, &round("own-1", blocks));
    let sends = |blocks: &[&str]| InjectionContent::Round(round("own-2", blocks));
    let noted = text("Noted.");
    for (echo, rounds, spoken, left) in [
        (
            &[FIRST, &noted, THIRD, CALL][..],
            vec![drop(&[FIRST, &noted]).unwrap()],
            "Noted.",
            &[THIRD, CALL][..],
        ),
        (
            &[FIRST, SEARCH, SECOND, THIRD, CALL],
            vec![drop(&[FIRST, SEARCH]).unwrap(), sends(&[SECOND])],
            "",
            &[THIRD, CALL],
        ),
        // The client sends no thinking back, or other thinking.
        (&[CALL], vec![drop(&[FIRST]).unwrap()], "", &[CALL]),
        (
            &[THIRD, CALL],
            vec![drop(&[FIRST]).unwrap()],
            "",
            &[THIRD, CALL],
        ),
    ] {
        let sent = send_with(echo, rounds, spoken);
        let answer: Value = serde_json::from_str(&sent.answer).unwrap();
        let left: Value = serde_json::from_str(&format!("[{}]", left.join(","))).unwrap();
        assert_eq!(answer, left, "{echo:?}");
        assert!(!sent.body.contains(FIRST) && !sent.body.contains("own-1"));
    }
    assert_eq!(drop(&[&noted]), None);
}

#[test]
fn an_answer_of_nothing_but_blocks_of_the_rounds_goes_as_a_whole() {
    const NEXT: &str = r#"{"role":"user","content":"Go on."}"#;
    const SYSTEM: &str = r#"{"role":"system","content":"s"}"#;
    let answer = answer_entry(&[FIRST, SECOND]);
    let rounds = [round("own-1", &[FIRST]), round("own-2", &[SECOND])];
    let sent = || rounds.clone().map(InjectionContent::Round);
    let dropped = || [&rounds[0], &rounds[1]].map(|it| drop_round(Format::Messages, it).unwrap());
    let plain = format!("{TASK},{answer},{NEXT}");
    let bound = format!("{TASK},{SYSTEM},{answer},{NEXT}");
    let together = "user assistant user assistant user user";
    for (messages, records, roles) in [
        (&plain, sent(), together),
        (&plain, dropped(), "user user"),
        (
            &bound,
            sent(),
            "user system assistant user assistant user user",
        ),
        // An answer must stand behind a system entry.
        (&bound, dropped(), "user system assistant user"),
    ] {
        let is_sent = records == sent();
        let (body, _) = plan_messages(messages, records);
        let after: Value = serde_json::from_slice(&body).unwrap();
        let entries = after["messages"].as_array().unwrap().iter();
        let found: Vec<_> = entries.map(|it| it["role"].as_str().unwrap()).collect();
        assert_eq!(found.join(" "), roles);
        let body = String::from_utf8_lossy(&body);
        assert_eq!(body.matches(FIRST).count(), usize::from(is_sent));
        assert!(body.contains(NEXT));
    }
}
