//! The edits that make several answers one, and that take what is ours out of a chunk.

use bytes::Bytes;

use super::{Taken, calls::Calls, visible::Visible};
use crate::{
    json::scan::{Kind, Span},
    wire::{
        chat::answer::{Answer, Choice, Member, Said},
        edit::Edits,
        usage::Usage,
    },
};

/// What of a chunk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// All but what is ours.
    Sifted,
    /// All but the calls.
    WithoutCalls,
    /// What it says to the client, and not that the answer is over.
    Closing,
}

/// What one response to the client keeps over its answers.
#[derive(Default)]
pub(super) struct Session {
    pub(super) visible: Visible,
    /// The id of the first answer, between its quotes.
    id: Option<Bytes>,
    /// This is not the first answer.
    continued: bool,
    /// Completion tokens of the answers before.
    completions: u64,
    role_sent: bool,
}

impl Session {
    /// The next answer comes.
    pub(super) fn turn(&mut self, usage: Option<Usage>) {
        let tokens = usage.and_then(|usage| usage.completion_tokens);
        self.completions += u64::from(tokens.unwrap_or(0));
        self.continued = true;
        self.visible.turn();
    }

    /// Makes id and usage those of one answer.
    pub(super) fn as_one(&mut self, json: &[u8], answer: &Answer, edits: &mut Edits) {
        self.id_of_first(json, answer, edits);
        self.add_usage(answer, edits);
    }

    fn id_of_first(&mut self, json: &[u8], answer: &Answer, edits: &mut Edits) {
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

    /// The client pays for the answers before too: their completions are added.
    pub(super) fn add_usage(&self, answer: &Answer, edits: &mut Edits) {
        let spoke = |usage: Usage| usage.prompt_tokens > 0;
        for report in answer
            .reports
            .iter()
            .filter(|report| report.usage.is_some_and(spoke))
        {
            if self.completions == 0 {
                continue;
            }
            for (count, span) in [report.completion, report.total].into_iter().flatten() {
                let sum = count.saturating_add(self.completions);
                edits.replace(span, sum.to_string());
            }
        }
    }

    /// Whether a chunk says nothing but calls, so that all of it can wait.
    pub(super) fn only_calls(&self, taken: &Taken) -> bool {
        let json = taken.chunk.json();
        let silent = |said: &Said| {
            said.members.iter().all(|member| {
                let key = &json[member.key.span.range()];
                matches!(key, b"role" | b"tool_calls" | b"function_call")
                    || is_silent(key, *member, taken.hides)
            })
        };
        taken.answer.choices == 1 && said(&taken.answer).is_some_and(silent)
    }

    /// Leaves the calls of a chunk, and no usage.
    pub(super) fn calls_only(&mut self, taken: &Taken) -> Edits {
        let kept: [&[u8]; 2] = [b"tool_calls", b"function_call"];
        self.only(taken.chunk.json(), &taken.answer, &kept)
    }

    /// Leaves the content of a chunk, which becomes `text`.
    pub(super) fn content_only(&mut self, json: &[u8], answer: &Answer, text: &[u8]) -> Edits {
        let mut edits = self.only(json, answer, &[b"content"]);
        if let Some(content) = said(answer).and_then(|said| said.member(json, b"content")) {
            edits.replace(content.value, [b"\"", text, b"\""].concat());
        }
        edits
    }

    fn only(&mut self, json: &[u8], answer: &Answer, kept: &[&[u8]]) -> Edits {
        let mut edits = Edits::default();
        self.id_of_first(json, answer, &mut edits);
        no_usage(answer, &mut edits);
        if let Some(said) = said(answer) {
            let keys: Vec<_> = said.members.iter().map(|member| member.key).collect();
            let gone = |at: usize| !kept.contains(&&json[keys[at].span.range()]);
            edits.take_out(&spans(said), gone);
        }
        edits
    }

    /// Takes what is ours out of a chunk; gives whether anything is left of it.
    pub(super) fn sift(&mut self, taken: &mut Taken, calls: &Calls, shape: Shape) -> bool {
        let json = taken.chunk.json();
        let (answer, edits) = (&taken.answer, &mut taken.edits);
        let Some(first) = &answer.first else {
            return true;
        };
        let empty = Said::default();
        let said = first.said.as_ref().unwrap_or(&empty);
        let all = shape == Shape::WithoutCalls;
        let ours = |slot: Option<usize>| all || calls.is_ours(slot);
        let mut gone = take_calls(json, said, (calls, &taken.slots), all, edits);
        let closing = shape == Shape::Closing;
        let took = taken.hides || closing || taken.slots.iter().any(|slot| ours(*slot));

        let mut bare = true;
        let mut role = false;
        for (at, member) in said.members.iter().enumerate() {
            let key = &json[member.key.span.range()];
            let names_role = key == b"role" && member.kind == Kind::String;
            gone[at] |= names_role && self.continued && self.role_sent;
            role |= names_role && !gone[at];
            bare &= gone[at]
                || (names_role && (self.role_sent || closing))
                || is_silent(key, *member, taken.hides);
        }
        let ends = !closing && (first.finish.is_some() || !answer.reports.is_empty());
        if took && bare && !ends && answer.choices == 1 {
            return false;
        }
        if closing {
            not_over(answer, first, edits);
        }
        self.role_sent |= role;
        if gone.contains(&true) {
            edits.take_out(&spans(said), |at| gone[at]);
        }
        true
    }
}

fn said(answer: &Answer) -> Option<&Said> {
    answer.first.as_ref()?.said.as_ref()
}

fn not_over(answer: &Answer, first: &Choice, edits: &mut Edits) {
    if let Some(finish) = first.finish {
        edits.replace(finish.quoted(), "null");
    }
    no_usage(answer, edits);
}

fn no_usage(answer: &Answer, edits: &mut Edits) {
    for report in &answer.reports {
        edits.replace(report.span, "null");
    }
}

fn spans(said: &Said) -> Vec<Span> {
    said.members.iter().map(|member| member.span()).collect()
}

/// Whether a member says nothing. `hides`: the content was taken out.
fn is_silent(key: &[u8], member: Member, hides: bool) -> bool {
    (hides && key == b"content")
        || member.kind == Kind::Null
        || (member.value.len() == 2 && member.kind != Kind::Number)
}

/// Takes our calls out, or all, and renumbers the others. Gives which members must go altogether.
pub(super) fn take_calls(
    json: &[u8],
    said: &Said,
    (calls, slots): (&Calls, &[Option<usize>]),
    all: bool,
    edits: &mut Edits,
) -> Vec<bool> {
    let mut elements = Vec::new();
    let (mut legacy, mut any_left) = (false, false);
    for (fragment, slot) in said.calls.iter().zip(slots) {
        let gone = all || calls.is_ours(*slot);
        if fragment.legacy {
            legacy |= gone;
            continue;
        }
        any_left |= !gone;
        elements.push((fragment.span, gone));
        if let (Some((_, span)), Some(index), false) =
            (fragment.index, calls.renumbered(*slot), gone)
        {
            edits.replace(span, index.to_string());
        }
    }
    let list = !elements.is_empty() && !any_left;
    if any_left {
        let spans: Vec<_> = elements.iter().map(|(span, _)| *span).collect();
        edits.take_out(&spans, |at| elements[at].1);
    }
    let keys = said
        .members
        .iter()
        .map(|member| &json[member.key.span.range()]);
    keys.map(|key| (key == b"tool_calls" && list) || (key == b"function_call" && legacy))
        .collect()
}
