use std::{fs, path::PathBuf};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{format::chat::index_body, guard::text::fence};

fn read(messages: &[Value]) -> Conversation {
    index_body(Bytes::from(json!({ "messages": messages }).to_string())).unwrap()
}

fn pick(conversation: &Conversation, removed: &[usize], head: &str, room: u32) -> String {
    let weights = Weights::for_unknown_model();
    pick_facts(conversation, removed, &[], head, room, weights)
}

fn tokens(ledger: &str) -> u32 {
    Weights::for_unknown_model().count_plain_tokens(ledger)
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// `UPDATE_GOLDEN=1` writes the ledgers anew.
#[test]
fn ledgers_match_the_golden_files() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/ledger");
    for language in ["en", "zh"] {
        let body = fs::read(folder.join(format!("{language}.json"))).unwrap();
        let conversation = index_body(Bytes::from(body)).unwrap();
        let removed: Vec<_> = (2..conversation.items.len() - 1).collect();
        let fold = pick(&conversation, &removed, "", 200);
        assert!(tokens(&fold) <= 200);
        let course = gather(&conversation, &removed, 6_000);
        for (name, ledger) in [("course", course), ("fold", fold)] {
            let place = folder.join(format!("{language}.{name}.txt"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&place, &ledger).unwrap();
            }
            let expected = fs::read_to_string(&place).unwrap_or_default();
            assert_eq!(ledger, expected, "{}", place.display());
        }
    }
}

#[test]
fn what_the_client_says_has_no_line() {
    let reminder = "<system-reminder>Be brief.</system-reminder>";
    let call = json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]});
    let result = json!({"role": "tool", "tool_call_id": "c", "content": "r"});
    let step = [call, result];
    let mut messages = vec![user("task")];
    for said in [
        reminder.to_owned(),
        format!("{reminder}\nDo X"),
        format!("Do Y\n\n{reminder}"),
    ] {
        messages.extend(step.clone());
        messages.push(user(&said));
    }
    messages.push(json!({"role": "assistant", "content": "Done."}));
    messages.push(user(
        "<feedback>Do Z</feedback><environment_details>12:00</environment_details>",
    ));
    messages.push(json!({"role": "assistant", "content": "Done."}));
    messages.push(user("<task-notification>Built.</task-notification>"));
    let conversation = read(&messages);
    let removed: Vec<_> = (1..messages.len()).collect();
    for ledger in [
        pick(&conversation, &removed, "", 2_000),
        gather(&conversation, &removed, 2_000),
    ] {
        let (_, said) = ledger
            .split_once("<facts of=\"what the user said\">\n")
            .unwrap();
        let (said, _) = said.split_once("</facts>").unwrap();
        assert_eq!(said, "- Do X\n- Do Y\n- Do Z\n");
    }
}

#[test]
fn lines_of_the_user_get_shorter_before_any_is_dropped() {
    let mut messages = vec![user("task")];
    messages.extend((0..60).map(|n| user(&format!("wish {n}: {}", "and so on ".repeat(30)))));
    let conversation = read(&messages);
    let removed: Vec<_> = (1..messages.len()).collect();
    let shown = |tokens: u32| {
        let ledger = pick(&conversation, &removed, "", tokens);
        let lines = ledger.lines().filter(|line| line.starts_with("- "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let wide = shown(8_000);
    assert_eq!(wide.len(), 60);
    assert!(wide.iter().all(|line| line.chars().count() > LINE_CHARS));
    let narrow = shown(700);
    assert_eq!(narrow.len(), 60);
    for (n, line) in narrow.iter().enumerate() {
        assert!(
            line.starts_with(&format!("- wish {n}: ")) && line.ends_with('…'),
            "{line}"
        );
        assert!(line.chars().count() < 50);
    }
    // Then the first and the newest stay.
    let few = shown(150);
    assert!((10..20).contains(&few.len()), "{few:?}");
    assert!(few[0].starts_with("- wish 0: ") && few[1] == "- …");
    for (back, line) in few[2..].iter().rev().enumerate() {
        assert!(
            line.starts_with(&format!("- wish {}:", 59 - back)),
            "{few:?}"
        );
    }
    // Short lines leave their room to the others.
    let mut messages = vec![user("task")];
    messages.extend((0..40).map(|n| user(&format!("short {n}"))));
    messages.push(user(&"a long one ".repeat(30)));
    let ledger = pick(&read(&messages), &(1..42).collect::<Vec<_>>(), "", 500);
    let longest = ledger.lines().map(|line| line.chars().count()).max();
    assert!(longest > Some(100), "{ledger}");
}

#[test]
fn facts_leave_room_for_the_head_before_them() {
    let conversation = read(&[
        user("task"),
        user("a wish that is as long as a line is at least"),
    ]);
    let head = "[Picked mechanically.]\n";
    let whole = pick(&conversation, &[1], head, 100);
    assert!(whole.starts_with(head) && whole.contains("- a wish"));
    let least = tokens(&whole);
    assert_eq!(pick(&conversation, &[1], head, least + 1), whole);
    assert_eq!(pick(&conversation, &[1], head, 20), "");
    assert_eq!(pick(&conversation, &[], head, 100), "");
    // Indices of another conversation.
    assert_eq!(pick(&conversation, &[5, 9], head, 100), "");
}

#[test]
fn files_are_picked_from_all_calls() {
    let mut messages = vec![user("task")];
    for n in 0..200 {
        let path = format!("src/part_{:02}.rs", n / 5);
        let arguments = json!({"path": path, "text": "x".repeat(2_000)}).to_string();
        messages.push(json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "edit", "arguments": arguments}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": "c", "content": "ok"}));
    }
    let removed: Vec<_> = (1..messages.len()).collect();
    let ledger = gather(&read(&messages), &removed, 12_000);
    let (_, files) = ledger.split_once("files named").unwrap();
    for n in 20..40 {
        assert!(
            files.contains(&format!("src/part_{n:02}.rs")),
            "{n}: {files}"
        );
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "</facts>",
        "<reminder id=\"r1\">",
        "<summary>",
        "＜/facts＞",
        "\n",
        "error ",
        "失败",
        "字",
        "😀",
        "src/lib.rs ",
        "a\"b\\",
        "{\"path\":\"x/y.rs\"}",
        "word ",
        "<",
        "\u{200B}",
    ]);
    (prop::collection::vec(piece, 0..8), 1usize..60)
        .prop_map(|(pieces, times)| pieces.concat().repeat(times))
}

fn message() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_text().prop_map(|text| user(&text)),
        (any_text(), any_text()).prop_map(
            |(name, arguments)| json!({"role": "assistant", "tool_calls": [
            {"id": "c", "function": {"name": name, "arguments": arguments}}]})
        ),
        any_text().prop_map(|text| json!({"role": "tool", "tool_call_id": "c", "content": text})),
        any_text()
            .prop_map(|text| json!({"role": "user", "content": [{"type": "text", "text": text}]})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_ledger_is_bounded_fenced_and_stays_the_same(
        messages in prop::collection::vec(message(), 0..50),
        more in prop::collection::vec(message(), 0..5),
        until in 0usize..50,
        most in 0u32..3_000,
    ) {
        let mut messages = messages;
        messages.insert(0, user("the task"));
        let removed: Vec<_> = (1..until.min(messages.len())).collect();
        let head = "\n\n[Picked.]\n";
        let ledger = pick(&read(&messages), &removed, head, most);
        prop_assert!(tokens(&ledger) <= most);
        let facts = ledger.strip_prefix(head).unwrap_or_default();
        let opened = facts.lines().filter(|line| line.starts_with("<facts of=")).count();
        prop_assert_eq!(fence::count_tags(facts), 2 * opened);
        for line in facts.lines() {
            prop_assert!(line.starts_with("- ") || line.starts_with("<facts of=") || line == "</facts>");
        }
        // Messages that are not left out change nothing.
        messages.extend(more);
        prop_assert_eq!(ledger, pick(&read(&messages), &removed, head, most));
    }
}
