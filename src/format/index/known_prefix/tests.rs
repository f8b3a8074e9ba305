use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::{KnownPrefixes, MAX_BYTES, index_bytes};
use crate::{
    conversation::{Conversation, Format},
    json::scan::{JsonScanner, MalformedJson, Span},
    support::{
        generate::any_conversation, generate_messages::any_messages,
        generate_responses::any_responses,
    },
};

const ACCOUNT: [u8; 16] = [1; 16];
const OTHER: [u8; 16] = [2; 16];

/// A body as large as those whose prefix is looked up.
fn pad(body: &[u8]) -> Vec<u8> {
    let end = body.iter().rposition(|it| *it == b'}').unwrap();
    let padding = format!(",\"padding\":\"{}\"", "x".repeat(super::MIN_BODY));
    [&body[..end], padding.as_bytes(), &body[end..]].concat()
}

/// The entries of the list of a body.
fn entries(format: Format, body: &[u8]) -> (Span, Vec<Span>) {
    let found = format.index_body(body.to_vec().into()).unwrap();
    let mut spans = Vec::new();
    let mut scan = JsonScanner::new(&found.body, found.list.start as usize);
    let list = scan.walk_array(|scan| {
        spans.push(scan.take_value()?.0);
        Ok::<_, MalformedJson>(())
    });
    (list.unwrap(), spans)
}

/// The body with the first entries of its list alone.
fn shorten(body: &[u8], list: Span, entries: &[Span]) -> Bytes {
    let end = entries.last().map_or(list.start + 1, |it| it.end);
    [&body[..end as usize], &body[list.end as usize - 1..]]
        .concat()
        .into()
}

fn show(found: &Conversation) -> String {
    format!("{found:?}")
}

fn index(format: Format, body: &Bytes, known: &KnownPrefixes, account: [u8; 16]) -> Conversation {
    let known = Some((known, account));
    format.index_known_body(body.clone(), known).unwrap()
}

/// Sends a conversation step by step, and with an edit in its midst: each index is that of the body alone.
fn check_growth(
    format: Format,
    body: &[u8],
    step: usize,
    edited: prop::sample::Index,
) -> Result<(), TestCaseError> {
    let body = pad(body);
    let known = KnownPrefixes::default();
    let (list, spans) = entries(format, &body);
    let mut sizes: Vec<usize> = (0..=spans.len()).step_by(step).collect();
    sizes.extend([spans.len(), spans.len() / 2, spans.len()]);
    for size in sizes {
        let sent = shorten(&body, list, &spans[..size]);
        let alone = format.index_body(sent.clone()).unwrap();
        prop_assert_eq!(show(&index(format, &sent, &known, ACCOUNT)), show(&alone));
    }
    // One byte of a text becomes another.
    let letters: Vec<usize> = (list.range())
        .filter(|at| body[*at].is_ascii_uppercase() && body[at - 1] == b' ')
        .collect();
    if !letters.is_empty() {
        let mut other = body.clone();
        other[letters[edited.index(letters.len())]] = b'#';
        for sent in [other, body] {
            let alone = format.index_body(sent.clone().into()).unwrap();
            let found = index(format, &sent.into(), &known, ACCOUNT);
            prop_assert_eq!(show(&found), show(&alone));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn known_chats_have_the_index_of_their_body(case in any_conversation(12), step in 1..4_usize, edited: prop::sample::Index) {
        check_growth(Format::Chat, &case.body(), step, edited)?;
    }

    #[test]
    fn known_messages_have_the_index_of_their_body(case in any_messages(12), step in 1..4_usize, edited: prop::sample::Index) {
        check_growth(Format::Messages, &case.body, step, edited)?;
    }

    #[test]
    fn known_responses_have_the_index_of_their_body(case in any_responses(12), step in 1..4_usize, edited: prop::sample::Index) {
        check_growth(Format::Responses, &case.body, step, edited)?;
    }
}

fn chat(messages: usize, marked: Option<usize>) -> Bytes {
    let message = |at: usize| {
        let part = if marked == Some(at) {
            json!({"type": "text", "text": format!("Line {at}."), "cache_control": {"type": "ephemeral"}})
        } else {
            json!({"type": "text", "text": format!("Line {at}.")})
        };
        json!({"role": "user", "content": [part]})
    };
    let messages: Vec<_> = (0..messages).map(message).collect();
    pad(json!({ "messages": messages }).to_string().as_bytes()).into()
}

/// Changes what is kept, so that one sees what is copied.
fn mark_kept(known: &KnownPrefixes) {
    for (_, (prefix, _)) in &mut known.kept.lock().prefixes {
        let prefix = Arc::get_mut(prefix).unwrap();
        let mut items = prefix.items.iter_mut();
        items.by_ref().for_each(|it| it.read_by_program = true);
    }
}

fn count_copied(found: &Conversation) -> usize {
    found.items.iter().filter(|it| it.read_by_program).count()
}

#[test]
fn a_list_is_known_to_who_has_sent_it_up_to_its_first_marker() {
    let known = KnownPrefixes::default();
    index(Format::Chat, &chat(10, Some(8)), &known, ACCOUNT);
    mark_kept(&known);
    let other = index(Format::Chat, &chat(12, None), &known, OTHER);
    assert_eq!(count_copied(&other), 0);
    let again = index(Format::Chat, &chat(12, None), &known, ACCOUNT);
    assert_eq!(count_copied(&again), 6);
    // What was read now is known too.
    mark_kept(&known);
    let again = index(Format::Chat, &chat(14, None), &known, ACCOUNT);
    assert_eq!(count_copied(&again), 10);
}

#[test]
fn each_format_knows_its_lists() {
    let known = KnownPrefixes::default();
    for format in [Format::Chat, Format::Messages, Format::Responses] {
        let entry = |at: usize| {
            let (role, kind) = match (at % 2, format) {
                (1, Format::Responses) => ("assistant", "output_text"),
                (1, _) => ("assistant", "text"),
                (_, Format::Responses) => ("user", "input_text"),
                _ => ("user", "text"),
            };
            let part = json!({"type": kind, "text": format!("Line {at}.")});
            json!({"role": role, "content": [part, part]})
        };
        let body = |entries: usize| {
            let list: Vec<_> = (0..entries).map(entry).collect();
            let name = match format {
                Format::Responses => "input",
                _ => "messages",
            };
            Bytes::from(pad(json!({ name: list }).to_string().as_bytes()))
        };
        index(format, &body(9), &known, ACCOUNT);
        mark_kept(&known);
        let again = index(format, &body(11), &known, ACCOUNT);
        // The answer among the first entries of Responses ends behind them.
        let known = if format == Format::Responses { 8 } else { 7 };
        assert_eq!(count_copied(&again), known, "{format:?}");
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let known = KnownPrefixes::default();
    for account in 0..32 {
        index(Format::Chat, &chat(5_000, None), &known, [account; 16]);
    }
    let kept = known.kept.lock();
    let prefixes = kept.prefixes.iter();
    let bytes: usize = prefixes
        .map(|(_, (it, _))| index_bytes(it.first_end, it.end))
        .sum();
    assert_eq!(bytes, kept.bytes);
    assert!(bytes <= MAX_BYTES);
    assert!((4..32).contains(&kept.prefixes.len()));
    drop(kept);
    // One that is too long pushes none out.
    let count = || known.kept.lock().prefixes.len();
    let before = count();
    index(Format::Chat, &chat(50_000, None), &known, ACCOUNT);
    assert_eq!(count(), before);
}
