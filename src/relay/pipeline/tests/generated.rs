//! What generated streams of all formats have in common: texts, arguments, damage.

use std::collections::VecDeque;

use bytes::Bytes;
use proptest::{prelude::*, sample::Index};
use serde_json::Value;

use super::{AnswerFilter, BOTH, Format, cut_at, filtering_as, run_pipeline};
use crate::relay::pipeline::PipelineOutput;

pub(super) const NO_FILTER: AnswerFilter = AnswerFilter {
    tools: &[],
    package: false,
};
pub(super) const OPENING: &str = "<continuation_package>";
pub(super) const CLOSING: &str = "</continuation_package>";
pub(super) const PROXY_TOOLS: [&str; 2] = ["add_reminder", "clear_mind"];
/// Names of called tools.
pub(super) const NAMES: &[&str] = &["get", "add", "add_reminder", "clear_mind", "clear_minds"];
pub(super) const CLIENT_NAMES: &[&str] = &["get", "add", "clear_minds"];

/// A text without its continuation blocks. One that is not closed goes on to the end.
pub(super) fn visible_text(text: &str) -> String {
    let mut visible = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPENING) {
        visible += before;
        rest = after.split_once(CLOSING).map_or("", |(_, after)| after);
    }
    visible + rest
}

/// The pieces of a text that may have continuation blocks.
pub(super) fn text_pieces() -> impl Strategy<Value = Vec<&'static str>> {
    let plain = prop::sample::select(
        &[
            "a",
            "\u{e9}\u{1f600}",
            " ",
            "\n",
            "<",
            "<continuation",
            "x\"y\\",
            "",
            "</",
        ][..],
    );
    let block = prop_oneof![
        Just(vec![OPENING, "a", CLOSING]),
        Just(vec![
            "<continuation",
            "_package>",
            "b",
            "</continuation_",
            "package>"
        ]),
        Just(vec!["<continuation_package>a\nb</continuation_package>"]),
    ];
    let part = prop_oneof![4 => plain.prop_map(|text| vec![text]), 1 => block];
    prop::collection::vec(part, 0..5).prop_map(|parts| parts.concat())
}

/// The pieces of a call's arguments.
pub(super) fn argument_pieces() -> impl Strategy<Value = Vec<&'static str>> {
    prop_oneof![
        Just(vec![]),
        Just(vec!["{}"]),
        Just(vec!["", "{\"a\"", ":", "1}"]),
        Just(vec!["{\"b\":\"\u{e9}\",", "\"a\":[1,{}]}"]),
    ]
}

/// Bytes put into a stream, or in the place of one of its bytes.
pub(super) type Damage = Vec<(Index, u8, bool)>;

pub(super) fn damage() -> impl Strategy<Value = Damage> {
    let bytes = b"\"\\{}[]:,<\r\n0u";
    let byte = prop_oneof![any::<u8>(), prop::sample::select(&bytes[..])];
    prop::collection::vec((any::<Index>(), byte, any::<bool>()), 0..6)
}

pub(super) fn damage_stream(stream: &str, damage: Damage) -> Vec<u8> {
    let mut stream = stream.as_bytes().to_vec();
    for (at, byte, replaces) in damage {
        let at = at.index(stream.len());
        if replaces {
            stream[at] = byte;
        } else {
            stream.insert(at, byte);
        }
    }
    stream
}

/// Asserts that a damaged stream, sent twice, is the same at any cut.
pub(super) fn check_damaged_stream(format: Format, stream: &[u8], size: usize) {
    let run = |size: usize, filter| {
        let mut pipeline = filtering_as(format, filter, false);
        let (mut out, mut turns) = (VecDeque::new(), Vec::new());
        for answer in [stream, stream] {
            for piece in answer.chunks(size) {
                pipeline.push(Bytes::copy_from_slice(piece), &mut out);
            }
            pipeline.finish_stream(false, &mut out);
            if !pipeline.is_for_proxy() {
                break;
            }
            turns.push(pipeline.begin_answer());
        }
        turns.push(pipeline.model_answer());
        let bytes = out.into_iter().filter_map(|piece| match piece {
            PipelineOutput::Bytes(bytes) => Some(bytes),
            PipelineOutput::End => None,
        });
        (bytes.collect::<Vec<_>>().concat(), turns)
    };
    assert_eq!(run(size, NO_FILTER).0, stream);
    let (bytes, turns) = run(size, BOTH);
    assert_eq!(run(1, BOTH), (bytes, turns.clone()));
    for turn in turns {
        let list = format!("[{}]", turn.message);
        assert!(serde_json::from_str::<Value>(&list).is_ok(), "{list}");
    }
}

/// Asserts that a stream with these events, which no provider sends, passes.
pub(super) fn check_hostile_events(format: Format, start: &str, events: &[&str]) {
    let (long, deep) = ("x".repeat(3 << 20), "[".repeat(100_000));
    let common = ["{", "null", "[]", "7", "{}", &deep, &long];
    let events = common.iter().chain(events);
    let events: String = events.map(|data| format!("data: {data}\n\n")).collect();
    let stream = format!("{start}{events}");
    for filter in [NO_FILTER, BOTH] {
        let relay = |size: usize| {
            let pipeline = filtering_as(format, filter, false);
            run_pipeline(pipeline, &[&stream], |answer| cut_at(answer, size))
        };
        let whole = relay(usize::MAX);
        assert!(relay(60_000) == whole);
        if !filter.is_active() {
            assert!(whole.bytes == stream);
        }
    }
}
