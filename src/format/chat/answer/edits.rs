//! The edits that join several answers into one, and that remove from a chunk what is not for the
//! client.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    ChatAnswer,
    calls::CallTracker,
    current::{ChatAnswerState, ChatEvent},
};
use crate::{
    conversation::{Field, edit::Edits},
    format::{AnswerEvent, AnswerEvents, ResponseSummarizer, answer_rewriter::JoinedResponse},
    json::scan::{JsonKind, JsonString, Span},
};

impl JoinedResponse<ChatAnswerState> {
    /// Edits a chunk and reports to the summarizer what the client gets of it. Returns whether
    /// anything is left. With `closing`, finish reason and usage are removed: another answer follows.
    pub(super) fn edit_event(
        &mut self,
        event: &ChatEvent,
        current: &mut ChatAnswerState,
        closing: bool,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        self.keep_first_id(json, answer, edits);
        let Some(message) = &answer.first else {
            self.edit_reports(event, &current.calls, closing, edits, summarizer);
            return true;
        };
        let (mut had_text, mut has_text) = (false, false);
        for (text, visible) in self.visible_texts(event, current, summarizer) {
            let raw = &json[text.span.range()];
            had_text |= !raw.is_empty();
            has_text |= !visible.is_empty();
            if *visible != *raw {
                edits.replace(text.span, visible.into_owned());
            }
        }
        let hides_text = had_text && !has_text;
        let mut removed = remove_proxy_calls(event, &current.calls, edits);
        let (mut is_bare, mut has_role) = (true, false);
        for (removed, member) in removed.members.iter_mut().zip(&message.members) {
            let key = &json[member.key.span.range()];
            let is_role = key == b"role" && member.kind == JsonKind::String;
            *removed |= is_role && self.continued && self.sent.role;
            has_role |= is_role && !*removed;
            is_bare &= *removed
                || (is_role && (self.sent.role || closing))
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
        self.sent.role |= has_role;
        if removed.members.contains(&true) {
            let members: Vec<Span> = message.members.iter().map(Field::full_span).collect();
            edits.remove_items(&members, |at| removed.members[at]);
        }
        self.edit_reports(event, &current.calls, closing, edits, summarizer);
        true
    }

    /// The texts of an event, each with what the client sees of it.
    pub(super) fn visible_texts<'a>(
        &mut self,
        event: &'a ChatEvent,
        current: &mut ChatAnswerState,
        summarizer: &mut ResponseSummarizer,
    ) -> SmallVec<[(JsonString, Cow<'a, [u8]>); 1]> {
        let texts = event.answer.iter_texts().enumerate();
        let visible = texts.map(|(at, text)| {
            let raw = &event.message.data[text.span.range()];
            let visible = match &mut current.facts.scanner {
                Some(scanner) => scanner.visible_part(raw, &event.tracked.text_ranges[at]),
                None => raw.into(),
            };
            let visible = self.visible.push_text(visible, summarizer);
            if self.earlier_content.is_empty() {
                return (text, visible);
            }
            let mut joined = std::mem::take(&mut self.earlier_content);
            joined.extend_from_slice(&visible);
            (text, joined.into())
        });
        visible.collect()
    }

    fn keep_first_id(&mut self, json: &[u8], answer: &ChatAnswer, edits: &mut Edits) {
        let Some(text) = answer.id else { return };
        let id = &json[text.span.range()];
        match &self.first_id {
            None => self.first_id = Some(Bytes::copy_from_slice(id)),
            Some(first) if self.continued && *first != id => {
                edits.replace(text.span, first.clone());
            }
            Some(_) => {}
        }
    }

    /// Edits finish reason and usage, and reports all but the texts to the summarizer.
    fn edit_reports(
        &self,
        event: &ChatEvent,
        calls: &CallTracker,
        closing: bool,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) {
        let mut slots = event.tracked.slots.iter();
        for part in &event.answer.events {
            match part {
                AnswerEvent::Text(_) => {}
                AnswerEvent::Call(_) if slots.next().is_some_and(|it| calls.is_proxy_call(*it)) => {
                }
                AnswerEvent::Usage(report) if closing => edits.replace(report.span, "null"),
                AnswerEvent::Usage(report) => {
                    self.edit_usage(report, edits);
                    let usage = report.usage.map(|usage| match usage.prompt_tokens {
                        // It reports nothing yet.
                        0 => usage,
                        _ => self.add_completions(usage),
                    });
                    summarizer.add_usage(usage);
                }
                AnswerEvent::Finish(finish) if closing && finish.first => {
                    edits.replace(finish.reason.quoted_span(), "null");
                }
                part => summarizer.add_events(&event.message.data, std::slice::from_ref(part)),
            }
        }
    }
}

/// Whether the value of a member is null or empty.
fn is_empty_member(member: &Field) -> bool {
    member.kind == JsonKind::Null || (member.value.len() == 2 && member.kind != JsonKind::Number)
}

/// What goes out of a message with its proxy-executed calls.
struct RemovedCalls {
    /// For each member of the message, whether it goes as a whole.
    members: SmallVec<[bool; 8]>,
    /// A proxy-executed call was in the message.
    calls: bool,
}

/// Removes proxy-executed calls and renumbers the client's.
fn remove_proxy_calls(event: &ChatEvent, calls: &CallTracker, edits: &mut Edits) -> RemovedCalls {
    let (mut spans, mut is_proxy) = (Vec::new(), Vec::new());
    let mut removes_legacy = false;
    let has_proxy_calls = calls.count_by_executor().0 > 0;
    let tracked = event.answer.iter_calls().zip(&event.tracked.slots);
    for (call, slot) in tracked.filter(|_| has_proxy_calls) {
        let proxy = calls.is_proxy_call(*slot);
        if call.legacy {
            removes_legacy |= proxy;
            continue;
        }
        spans.push(call.span);
        is_proxy.push(proxy);
        if let (Some((_, span)), Some(index), false) =
            (call.index, calls.renumber_index(*slot), proxy)
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
