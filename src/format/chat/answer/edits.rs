//! The edits that join several answers into one, and that remove from a chunk what is not for the
//! client.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{ChatAnswer, assemble::Deltas, read_answer};
use crate::{
    conversation::{Field, edit::Edits},
    format::{
        AnswerEvent, RewrittenAnswer,
        answer_rewriter::{
            BlockAnswer, BlockState, BlockTracker, FormatRewriter, JoinedResponse, ParsedEvent,
            TrackedEvent,
        },
    },
    json::scan::{JsonKind, JsonString, Span},
};

impl BlockAnswer for ChatAnswer {
    type Assembler = Deltas;
    /// Whether the client has the role.
    type Sent = bool;

    const IS_LIST: bool = false;

    fn read_whole(json: &[u8]) -> Option<Self> {
        read_answer(json).ok()
    }

    fn id(&self) -> Option<JsonString> {
        self.id
    }

    fn model(&self) -> Option<JsonString> {
        self.model
    }

    fn track_blocks(event: &ParsedEvent<Self>, current: &mut BlockState<Self>) -> TrackedEvent {
        let (json, answer) = (&event.message.data, &event.answer);
        // A tag does not continue after a call or reasoning, so nothing has to wait for it.
        if answer.interrupts_text() {
            current.give_up_tag();
        }
        let (blocks, is_whole) = (&mut current.blocks, event.raw.is_empty());
        let calls = blocks.take_fragments(json, answer.iter_calls(), is_whole);
        current.assembler.push(json, answer, &calls);
        TrackedEvent {
            calls,
            ..TrackedEvent::default()
        }
    }

    fn may_overtake(
        event: &ParsedEvent<Self>,
        held: &VecDeque<ParsedEvent<Self>>,
        _blocks: &BlockTracker,
    ) -> bool {
        let has_call = |event: &AnswerEvent| matches!(event, AnswerEvent::Call(_));
        let has_only_calls = |held: &ParsedEvent<Self>| held.answer.events.iter().all(has_call);
        event.answer.first.is_none()
            || (event.tracked.calls.is_empty() && held.iter().all(has_only_calls))
    }

    /// With `closing`, finish reason and usage are removed.
    fn edit_event(
        joined: &mut JoinedResponse<Self>,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
        closing: bool,
        edits: &mut Edits,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        let blocks = &current.blocks;
        joined.keep_first_id(json, answer, edits);
        let Some(message) = &answer.first else {
            joined.edit_reports(event, blocks, closing, edits);
            return true;
        };
        let hides_text = joined.edit_texts(event, edits);
        let mut removed = remove_proxy_calls(event, blocks, edits);
        let (mut is_bare, mut has_role) = (true, false);
        for (removed, member) in removed.members.iter_mut().zip(&message.members) {
            let key = &json[member.key.span.range()];
            let is_role = key == b"role" && member.kind == JsonKind::String;
            *removed |= is_role && joined.continued && joined.sent;
            has_role |= is_role && !*removed;
            is_bare &= *removed
                || (is_role && (joined.sent || closing))
                || (hides_text && key == b"content")
                || is_empty_member(member);
        }
        let is_end = |event: &AnswerEvent| match event {
            AnswerEvent::Finish(finish) => finish.first,
            event => matches!(event, AnswerEvent::Usage(_) | AnswerEvent::Error),
        };
        let may_drop = (hides_text || removed.calls || closing) && is_bare;
        if may_drop && answer.choices == Some(1) && (closing || !answer.events.iter().any(is_end)) {
            return false;
        }
        joined.sent |= has_role;
        if removed.members.contains(&true) {
            let members: Vec<Span> = message.members.iter().map(Field::full_span).collect();
            edits.remove_items(&members, |at| removed.members[at]);
        }
        joined.edit_reports(event, blocks, closing, edits);
        true
    }

    fn take_whole(rewriter: &mut FormatRewriter<Self>, json: &Bytes) -> Option<RewrittenAnswer> {
        rewriter.take_message(json)
    }
}

impl JoinedResponse<ChatAnswer> {
    fn keep_first_id(&mut self, json: &[u8], answer: &ChatAnswer, edits: &mut Edits) {
        let Some(text) = answer.id else { return };
        let id = text.raw_bytes(json);
        match &self.first_id {
            None => self.first_id = Some(Bytes::copy_from_slice(id)),
            Some(first) if self.continued && *first != id => {
                edits.replace(text.span, first.clone());
            }
            Some(_) => {}
        }
    }

    /// Edits finish reason and usage, and reports all parts but texts and calls of the proxy to the summarizer. With
    /// `closing`, finish reason and usage become null and are not reported.
    fn edit_reports(
        &mut self,
        event: &ParsedEvent<ChatAnswer>,
        calls: &BlockTracker,
        closing: bool,
        edits: &mut Edits,
    ) {
        let mut slots = event.tracked.calls.iter();
        for part in &event.answer.events {
            match part {
                AnswerEvent::Text(_) => {}
                AnswerEvent::Call(_) if slots.next().is_some_and(|it| calls.is_removed(*it)) => {}
                AnswerEvent::Usage(report) if closing => edits.replace(report.span, "null"),
                AnswerEvent::Usage(report) => {
                    self.edit_usage(report, edits);
                    let usage = report.usage.map(|usage| match usage.prompt_tokens {
                        // The provider does not know the count yet.
                        0 => usage,
                        _ => self.add_completions(usage),
                    });
                    self.summarizer.add_usage(usage);
                }
                AnswerEvent::Finish(finish) if closing && finish.first => {
                    edits.replace(finish.reason.quoted_span(), "null");
                }
                part => {
                    let (json, events) = (&event.message.data, std::slice::from_ref(part));
                    self.summarizer.add_events(json, events);
                }
            }
        }
    }
}

/// Whether the value of a member is null or empty.
fn is_empty_member(member: &Field) -> bool {
    member.kind == JsonKind::Null || (member.value.len() == 2 && member.kind != JsonKind::Number)
}

/// What is removed from a message with its proxy-executed calls.
struct RemovedCalls {
    /// For each member of the message, whether the whole member is removed.
    members: SmallVec<[bool; 8]>,
    /// A proxy-executed call was in the message.
    calls: bool,
}

/// Removes proxy-executed calls and renumbers the client's.
fn remove_proxy_calls(
    event: &ParsedEvent<ChatAnswer>,
    calls: &BlockTracker,
    edits: &mut Edits,
) -> RemovedCalls {
    let (mut spans, mut is_proxy) = (Vec::new(), Vec::new());
    let mut removes_legacy = false;
    let has_proxy_calls = calls.count_calls().0 > 0;
    let tracked = event.answer.iter_calls().zip(&event.tracked.calls);
    for (call, slot) in tracked.filter(|_| has_proxy_calls) {
        let proxy = calls.is_removed(*slot);
        if call.legacy {
            removes_legacy |= proxy;
            continue;
        }
        spans.push(call.span);
        is_proxy.push(proxy);
        if let (Some((_, span)), Some(index), false) =
            (call.index, calls.renumber_call(*slot), proxy)
        {
            edits.replace(span, index.to_string());
        }
    }
    let removes_list = !is_proxy.is_empty() && is_proxy.iter().all(|proxy| *proxy);
    if !removes_list {
        edits.remove_items(&spans, |at| is_proxy[at]);
    }
    let members = event
        .answer
        .first
        .iter()
        .flat_map(|message| &message.members);
    let members = members.map(
        |member| match &event.message.data[member.key.span.range()] {
            b"tool_calls" => removes_list,
            b"function_call" => removes_legacy,
            _ => false,
        },
    );
    RemovedCalls {
        members: members.collect(),
        calls: removes_legacy || is_proxy.contains(&true),
    }
}
