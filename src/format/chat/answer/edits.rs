//! The edits that make several answers one, and that take out of a chunk what is not for the client.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    ChatAnswer, Member, MessageSpans,
    calls::CallTracker,
    current::{AnswerState, ParsedEvent},
};
use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, ResponseSummarizer, UsageCount, UsageCountKind, UsageReport, usage::Usage,
        visible_text::VisibleText,
    },
    json::scan::{JsonKind, JsonString, Span},
};

/// What one response to the client keeps over its answers.
#[derive(Default)]
pub(super) struct JoinedResponse {
    pub(super) visible: VisibleText,
    /// Tokens left out of the request that is being answered.
    pub(super) left_out: u32,
    /// The id of the first answer, between its quotes.
    id: Option<Bytes>,
    /// This is not the first answer.
    continued: bool,
    /// Completion tokens of the answers before.
    completions: u32,
    role_sent: bool,
    /// Text of earlier whole answers, which goes ahead of the next text.
    pub(super) earlier: Vec<u8>,
}

/// Which members of a message go.
type RemovedMembers = SmallVec<[bool; 8]>;

impl JoinedResponse {
    pub(super) fn new(left_out: Option<u32>) -> Self {
        Self {
            left_out: left_out.unwrap_or(0),
            ..Self::default()
        }
    }

    /// The next answer comes.
    pub(super) fn begin_answer(&mut self, usage: Option<Usage>, listener: &mut ResponseSummarizer) {
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        self.completions = self.completions.saturating_add(tokens.unwrap_or(0));
        self.continued = true;
        self.visible.begin_answer(listener);
        listener.begin_answer();
    }

    /// Edits a chunk and tells what of it the client gets; gives whether anything is left of it. `closing`:
    /// that the answer is over stays behind.
    pub(super) fn edit_event(
        &mut self,
        event: &ParsedEvent,
        current: &mut AnswerState,
        closing: bool,
        edits: &mut Edits,
        listener: &mut ResponseSummarizer,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        self.keep_first_id(json, answer, edits);
        let Some(message) = &answer.first else {
            self.edit_reports(event, &current.calls, closing, edits, listener);
            return true;
        };
        let (mut came, mut left) = (false, false);
        for (text, visible) in self.visible_texts(event, current, listener) {
            let raw = &json[text.span.range()];
            came |= !raw.is_empty();
            left |= !visible.is_empty();
            if *visible != *raw {
                edits.replace(text.span, visible.into_owned());
            }
        }
        let hides = came && !left;
        let own = event
            .slots
            .iter()
            .any(|slot| current.calls.is_proxy_call(*slot));
        let mut gone = remove_calls(json, message, event, &current.calls, edits);
        let (mut bare, mut role) = (true, false);
        for (gone, member) in gone.iter_mut().zip(&message.members) {
            let key = &json[member.key.span.range()];
            let names_role = key == b"role" && member.kind == JsonKind::String;
            *gone |= names_role && self.continued && self.role_sent;
            role |= names_role && !*gone;
            bare &= *gone
                || (names_role && (self.role_sent || closing))
                || (hides && key == b"content")
                || is_silent(*member);
        }
        let mut events = answer.events.iter();
        let ends = events.any(|event| match event {
            AnswerEvent::Finish(finish) => finish.first,
            event => matches!(event, AnswerEvent::Usage(_) | AnswerEvent::Error),
        });
        let took = hides || own || closing;
        if took && bare && (closing || !ends) && answer.choices == Some(1) {
            return false;
        }
        self.role_sent |= role;
        remove_members(message, &gone, edits);
        self.edit_reports(event, &current.calls, closing, edits, listener);
        true
    }

    /// What the client sees of the texts.
    pub(super) fn visible_texts<'a>(
        &mut self,
        event: &'a ParsedEvent,
        current: &mut AnswerState,
        listener: &mut ResponseSummarizer,
    ) -> SmallVec<[(JsonString, Cow<'a, [u8]>); 1]> {
        let texts = event.answer.iter_texts().enumerate();
        let visible = texts.map(|(at, text)| {
            let raw = &event.message.data[text.span.range()];
            let visible = match &mut current.blocks {
                Some(blocks) => blocks.visible_part(raw, &event.places[at]),
                None => raw.into(),
            };
            let mut visible = self.visible.push_text(visible, listener);
            if !self.earlier.is_empty() {
                visible = [std::mem::take(&mut self.earlier), visible.into_owned()]
                    .concat()
                    .into();
            }
            (text, visible)
        });
        visible.collect()
    }

    fn keep_first_id(&mut self, json: &[u8], answer: &ChatAnswer, edits: &mut Edits) {
        let Some(text) = answer.id else { return };
        let id = &json[text.span.range()];
        match &self.id {
            None => self.id = Some(Bytes::copy_from_slice(id)),
            Some(first) if self.continued && *first != id => {
                edits.replace(text.span, first.clone());
            }
            Some(_) => {}
        }
    }

    /// Edits finish reason and usage, and tells the listener all but the texts.
    fn edit_reports(
        &self,
        taken: &ParsedEvent,
        calls: &CallTracker,
        closing: bool,
        edits: &mut Edits,
        listener: &mut ResponseSummarizer,
    ) {
        let json = &taken.message.data;
        let mut slots = taken.slots.iter();
        for event in &taken.answer.events {
            match event {
                AnswerEvent::Text(_) => {}
                AnswerEvent::Call(_) if slots.next().is_some_and(|it| calls.is_proxy_call(*it)) => {
                }
                AnswerEvent::Usage(report) if closing => edits.replace(report.span, "null"),
                AnswerEvent::Usage(report) => {
                    self.add_usage(report, edits);
                    let usage = report.usage.map(|usage| self.add_completions(usage));
                    listener.add_usage(usage);
                }
                AnswerEvent::Finish(finish) if closing && finish.first => {
                    edits.replace(finish.reason.quoted_span(), "null");
                }
                event => listener.add_events(json, std::slice::from_ref(event)),
            }
        }
    }

    /// The client pays for the answers before too, and may want to read the tokens of what it sent: both
    /// are added.
    pub(super) fn add_usage(&self, report: &UsageReport, edits: &mut Edits) {
        // A prompt of 0: the provider has nothing to say yet.
        let silent = |count: &UsageCount| count.kind == UsageCountKind::Prompt && count.tokens == 0;
        if report.counts.iter().any(silent) {
            return;
        }
        for count in &report.counts {
            let more = match count.kind {
                UsageCountKind::Prompt => self.left_out.into(),
                UsageCountKind::Completion => u64::from(self.completions),
                UsageCountKind::Total => u64::from(self.left_out) + u64::from(self.completions),
            };
            if more > 0 && (count.tokens > 0 || count.kind == UsageCountKind::Completion) {
                edits.replace(count.span, (u64::from(count.tokens) + more).to_string());
            }
        }
    }

    /// A report with what the answers before cost.
    fn add_completions(&self, usage: Usage) -> Usage {
        if usage.prompt_tokens == 0 {
            return usage;
        }
        let add = |tokens: u32| tokens.saturating_add(self.completions);
        Usage {
            completion_tokens: usage.completion_tokens.map(add),
            ..usage
        }
    }
}

/// Whether a member says nothing.
fn is_silent(member: Member) -> bool {
    member.kind == JsonKind::Null || (member.value.len() == 2 && member.kind != JsonKind::Number)
}

/// Takes proxy-executed calls out, and renumbers the others. Gives which members must go altogether.
fn remove_calls(
    json: &[u8],
    message: &MessageSpans,
    event: &ParsedEvent,
    calls: &CallTracker,
    edits: &mut Edits,
) -> RemovedMembers {
    let mut gone = RemovedMembers::from_elem(false, message.members.len());
    if calls.count_by_executor().0 == 0 {
        return gone;
    }
    let (mut spans, mut own) = (Vec::new(), Vec::new());
    let mut legacy = false;
    for (call, slot) in event.answer.iter_calls().zip(&event.slots) {
        let is_own = calls.is_proxy_call(*slot);
        if call.legacy {
            legacy |= is_own;
            continue;
        }
        spans.push(call.span);
        own.push(is_own);
        if let (Some((_, span)), Some(index), false) =
            (call.index, calls.renumber_index(*slot), is_own)
        {
            edits.replace(span, index.to_string());
        }
    }
    let all = !own.is_empty() && own.iter().all(|own| *own);
    if !all {
        edits.take_out(&spans, |at| own[at]);
    }
    for (gone, member) in gone.iter_mut().zip(&message.members) {
        *gone = match &json[member.key.span.range()] {
            b"tool_calls" => all,
            b"function_call" => legacy,
            _ => false,
        };
    }
    gone
}

fn remove_members(message: &MessageSpans, gone: &[bool], edits: &mut Edits) {
    if gone.contains(&true) {
        let members: Vec<Span> = message.members.iter().map(|it| it.full_span()).collect();
        edits.take_out(&members, |at| gone[at]);
    }
}
