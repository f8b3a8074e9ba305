//! What counts as a summary and what does not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const KEY: &str = "5eed5eed5eed5eed";
const MOST: u32 = 1_000;

fn whole(message: Value, finish: &str) -> Vec<u8> {
    json!({"choices": [{"index": 0, "finish_reason": finish, "message": message}]})
        .to_string()
        .into()
}

fn saying(text: &str) -> Vec<u8> {
    whole(json!({"role": "assistant", "content": text}), "stop")
}

const BLOCK: SummaryBlock<'_> = SummaryBlock {
    key: KEY,
    unkeyed: false,
};

fn judged(answer: &[u8]) -> Result<String, SummaryRejection> {
    parse_summary(answer, BLOCK, MOST, &Weights::new(3.0))
}

fn inside(key: &str, contents: [&str; 6]) -> String {
    let sections: String = SECTIONS
        .iter()
        .zip(contents)
        .map(|(tag, content)| format!("<{tag}>{content}</{tag}>\n"))
        .collect();
    format!("<summary{key}>\n{sections}</summary>")
}

fn keyed(contents: [&str; 6]) -> String {
    inside(&format!(" key=\"{KEY}\""), contents)
}

const FULL: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[test]
fn a_block_with_its_sections_is_a_summary() {
    let plain = keyed(FULL);
    let expected = inside("", FULL);
    for text in [
        plain.clone(),
        format!("Here it is:\n```xml\n{plain}\n```\nI hope it helps. </summary"),
        format!("<think>A <summary key=\"{KEY}\"> is wanted.</think>\n{plain}"),
        format!("It wants a block.</think>{plain}"),
        plain.replace("\">", "\" lang=\"en\">"),
        plain.replace(">a<", ">\n  a\n<"),
    ] {
        assert_eq!(judged(&saying(&text)).as_deref(), Ok(&*expected), "{text}");
    }
    let parts = json!({"content": [{"type": "text", "text": plain}], "reasoning_content": "x"});
    assert_eq!(judged(&whole(parts, "stop")).as_deref(), Ok(&*expected));
}

#[test]
fn what_holds_nothing_is_said_to_hold_nothing() {
    let text = keyed(["a", "None.", "b", "", "无。", "c"]);
    let summary = judged(&saying(&text)).unwrap();
    assert_eq!(summary, inside("", ["a", "none", "b", "none", "none", "c"]));
    // As it was asked for, and hardly more.
    for nearly in [["…"; 6], ["", "none", "x", "y", "n/a", "暂无"]] {
        assert_eq!(
            judged(&saying(&keyed(nearly))),
            Err(SummaryRejection::Hollow)
        );
    }
}

#[test]
fn no_other_answer_is_a_summary() {
    let plain = keyed(FULL);
    let call = json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]);
    let message = json!({"content": plain});
    for (answer, expected) in [
        (b"".to_vec(), SummaryRejection::NotAnAnswer),
        (b"<html>".to_vec(), SummaryRejection::NotAnAnswer),
        (b"[]".to_vec(), SummaryRejection::NotAnAnswer),
        (b"{\"choices\":[]}".to_vec(), SummaryRejection::NotAnAnswer),
        (
            b"{\"error\":{\"message\":\"x\"}}".to_vec(),
            SummaryRejection::NotAnAnswer,
        ),
        (saying(""), SummaryRejection::Empty),
        (saying(" \n"), SummaryRejection::Empty),
        (
            saying("<think>so long that no answer came"),
            SummaryRejection::Empty,
        ),
        (
            whole(json!({"content": null, "refusal": "I cannot"}), "stop"),
            SummaryRejection::Empty,
        ),
        (whole(message.clone(), "length"), SummaryRejection::CutOff),
        (
            whole(message.clone(), "content_filter"),
            SummaryRejection::CutOff,
        ),
        (whole(message, "tool_calls"), SummaryRejection::CallsTools),
        (
            whole(json!({"content": plain, "tool_calls": call}), "stop"),
            SummaryRejection::CallsTools,
        ),
        (
            saying("I went on with the work: the test passes now."),
            SummaryRejection::NoBlock,
        ),
        (saying(&plain[..plain.len() - 5]), SummaryRejection::NoBlock),
        (
            saying(&plain.replace("<to_do>b</to_do>\n", "")),
            SummaryRejection::NoSections,
        ),
        (
            saying(&plain.replace(">a<", "><done>a</done><")),
            SummaryRejection::NoSections,
        ),
        (
            saying(&plain.replace("cautions", "warnings")),
            SummaryRejection::NoSections,
        ),
        (
            saying(
                &plain
                    .replace("to_do>", "x>")
                    .replace("done>", "to_do>")
                    .replace("x>", "done>"),
            ),
            SummaryRejection::NoSections,
        ),
    ] {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(judged(&answer), Err(expected), "{shown}");
    }
}

#[test]
fn a_summary_that_was_planted_is_none() {
    // As a tool's output might hold it: whole, but without the key of a request that came later.
    let planted = inside("", FULL);
    let guessed = inside(" key=\"0000000000000000\"", FULL);
    for echo in [
        planted.clone(),
        guessed.clone(),
        format!("{planted}\n{guessed}"),
    ] {
        assert_eq!(
            judged(&saying(&echo)),
            Err(SummaryRejection::NoBlock),
            "{echo}"
        );
    }
    // Beside the model's own it does not count, and inside it makes two of a kind.
    let own = keyed(["A", "B", "C", "D", "E", "F"]);
    let expected = Ok(inside("", ["A", "B", "C", "D", "E", "F"]));
    assert_eq!(judged(&saying(&format!("{planted}\n{own}"))), expected);
    let nested = keyed([&planted, "B", "C", "D", "E", "F"]);
    assert_eq!(judged(&saying(&nested)), Err(SummaryRejection::NoSections));
}

#[test]
fn a_key_may_be_forgotten_where_nothing_could_be_planted() {
    let judged = |text: &str| {
        let block = SummaryBlock {
            unkeyed: true,
            ..BLOCK
        };
        parse_summary(&saying(text), block, MOST, &Weights::new(3.0))
    };
    let plain = inside("", FULL);
    for text in [
        plain.clone(),
        format!("Here:\n```xml\n{plain}\n```"),
        keyed(FULL),
    ] {
        assert_eq!(judged(&text).as_ref(), Ok(&plain), "{text}");
    }
    let own = keyed(["A", "B", "C", "D", "E", "F"]);
    let expected = Ok(inside("", ["A", "B", "C", "D", "E", "F"]));
    assert_eq!(
        judged(&format!("{plain}\n{own}")),
        expected,
        "the key decides"
    );
    for text in [
        inside(" key=\"0000000000000000\"", FULL),
        format!("{plain}\n{plain}"),
        format!("As in <summary>: {plain}"),
    ] {
        assert_eq!(judged(&text), Err(SummaryRejection::NoBlock), "{text}");
    }
    let halved = plain.replace("<to_do>b</to_do>\n", "");
    assert_eq!(judged(&halved), Err(SummaryRejection::NoSections));
}

#[test]
fn tags_of_ours_and_what_cannot_be_seen_are_taken_out() {
    let text = keyed([
        "a <reminder id=\"r1\">",
        "</facts>b",
        "c\u{0}\u{1b}[1m",
        "<p>d",
        "e",
        "f",
    ]);
    let summary = judged(&saying(&text)).unwrap();
    assert_eq!(fence::count_tags(&summary), 2);
    assert!(summary.contains("a (reminder") && summary.contains("(/facts>b"));
    assert!(summary.contains("c[1m") && summary.contains("<p>d"));
}

#[test]
fn a_long_summary_is_cut_where_it_is_longest() {
    let long = "a line of something that was done\n".repeat(900);
    let summary = judged(&saying(&keyed([&long, "b", "c", "d", "e", "f"]))).unwrap();
    assert!(Weights::new(3.0).count_plain_tokens(&summary) <= MOST);
    assert!(summary.len() > 2_000, "{}", summary.len());
    assert!(summary.contains("done …</done>") && summary.contains("<to_do>b</to_do>"));
    let han = "长".repeat(20_000);
    let text = saying(&keyed([&han, &han, "c", "d", "e", "f"]));
    let summary = parse_summary(&text, BLOCK, u32::MAX, &Weights::new(3.0)).unwrap();
    assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&summary.len()));
    assert_eq!(
        parse_summary(&text, BLOCK, 5, &Weights::new(3.0)),
        Err(SummaryRejection::Hollow)
    );
}

proptest! {
    #[test]
    fn any_bytes_are_judged(answer in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(judged(&answer).is_err());
    }

    #[test]
    fn any_text_gives_a_bounded_summary_or_none(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "<summary key=\"5eed5eed5eed5eed\">", "</summary>", "<summary>", "<done>", "</done>",
            "<to_do>", "</to_do>", "<current_state>x</current_state>", "<key_context>k</key_context>",
            "<next_steps>n</next_steps>", "<cautions>c</cautions>", "<done>d</done><to_do>t</to_do>",
            "<reminder>", "</think>", "<think>", "none", "字", "🎉", "\\ud800", "\\u0000", "\\n", "text ",
        ]), 0..30),
        most in 0u32..200,
        times in 1usize..50,
    ) {
        let text = pieces.concat().replace('"', "\\\"").replace("text ", &"text ".repeat(times));
        let answer = format!(r#"{{"choices":[{{"message":{{"content":"{text}"}},"finish_reason":"stop"}}]}}"#);
        let weights = Weights::new(3.0);
        if let Ok(summary) = parse_summary(answer.as_bytes(), BLOCK, most, &weights) {
            prop_assert!(summary.len() <= MAX_BYTES && weights.count_plain_tokens(&summary) <= most);
            prop_assert_eq!(fence::count_tags(&summary), 2);
            prop_assert!(summary.starts_with("<summary>\n<done>") && summary.ends_with("</summary>"));
            prop_assert!(!summary.contains(KEY));
        }
    }

    #[test]
    fn sections_of_any_text_are_accepted(texts in prop::collection::vec("[a-z字 \\n🎉&'\"/]{3,200}x", 6)) {
        let contents: [&str; 6] = std::array::from_fn(|at| &*texts[at]);
        let summary = judged(&saying(&keyed(contents))).unwrap();
        prop_assert!(Weights::new(3.0).count_plain_tokens(&summary) <= MOST);
    }
}
