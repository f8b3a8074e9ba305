//! The edits that make several answers one, and that take what is ours out of a chunk.

use bytes::Bytes;

use super::{calls::Calls, visible::Visible};
use crate::wire::{
    chat::answer::{Answer, Choice, Said},
    edit::Edits,
    scan::{Kind, Span},
    usage::Usage,
};

/// What of a chunk goes on. `hides`: there was text in it, and all of it was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// All of it.
    Whole,
    /// All but what is ours.
    Sifted { hides: bool },
    /// All but the calls.
    WithoutCalls { hides: bool },
    /// What it says to the client, and not that the answer is over.
    Closing { hides: bool },
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
    pub(super) fn only_calls(&self, json: &[u8], answer: &Answer, hides: bool) -> bool {
        let said = answer.first.as_ref().and_then(|first| first.said.as_ref());
        let silent = |said: &Said| {
            said.members.iter().enumerate().all(|(at, member)| {
                let key = &json[member.key.span.range()];
                matches!(key, b"role" | b"tool_calls" | b"function_call")
                    || is_silent(said, json, at, hides)
            })
        };
        answer.choices == 1 && said.is_some_and(silent)
    }

    /// Leaves the calls of a chunk, and no usage.
    pub(super) fn calls_only(&mut self, json: &[u8], answer: &Answer) -> Edits {
        self.only(json, answer, &[b"tool_calls", b"function_call"])
    }

    /// Leaves the content of a chunk, which becomes `text`.
    pub(super) fn content_only(&mut self, json: &[u8], answer: &Answer, text: &[u8]) -> Edits {
        let mut edits = self.only(json, answer, &[b"content"]);
        let said = answer.first.as_ref().and_then(|first| first.said.as_ref());
        if let Some(content) = said.and_then(|said| said.member(json, b"content")) {
            edits.replace(content.value, [b"\"", text, b"\""].concat());
        }
        edits
    }

    fn only(&mut self, json: &[u8], answer: &Answer, kept: &[&[u8]]) -> Edits {
        let mut edits = Edits::default();
        self.id_of_first(json, answer, &mut edits);
        no_usage(answer, &mut edits);
        if let Some(said) = answer.first.as_ref().and_then(|first| first.said.as_ref()) {
            let keys: Vec<_> = said.members.iter().map(|member| member.key).collect();
            let gone = |at: usize| !kept.contains(&&json[keys[at].span.range()]);
            edits.take_out(&spans(said), gone);
        }
        edits
    }

    /// Takes what is ours out of a chunk; gives whether anything is left of it.
    pub(super) fn sift(
        &mut self,
        json: &[u8],
        answer: &Answer,
        calls: (&Calls, &[Option<usize>]),
        shape: Shape,
        edits: &mut Edits,
    ) -> bool {
        let Some(first) = &answer.first else {
            return true;
        };
        let empty = Said::default();
        let said = first.said.as_ref().unwrap_or(&empty);
        let without_calls = matches!(shape, Shape::WithoutCalls { .. });
        let mut gone = take_calls(json, said, calls, without_calls, edits);
        let took = gone.iter().any(|gone| *gone) || take_count(said, calls, without_calls);
        for (at, member) in said.members.iter().enumerate() {
            gone[at] |= self.continued
                && self.role_sent
                && is_role(json, said, at)
                && member.kind == Kind::String;
        }
        let closing = matches!(shape, Shape::Closing { .. });
        let hides = match shape {
            Shape::Whole => false,
            Shape::Sifted { hides } | Shape::WithoutCalls { hides } | Shape::Closing { hides } => {
                hides
            }
        };
        let bare = said.members.iter().enumerate().all(|(at, _)| {
            gone[at]
                || (is_role(json, said, at) && (self.role_sent || closing))
                || is_silent(said, json, at, hides)
        });
        let ends = !closing && (first.finish.is_some() || !answer.reports.is_empty());
        if bare && !ends && answer.choices == 1 && (took || hides || closing) {
            return false;
        }
        if closing {
            not_over(answer, first, edits);
        }
        let role = |at: usize| !gone[at] && is_role(json, said, at);
        self.role_sent |= (0..said.members.len()).any(role);
        if gone.contains(&true) {
            edits.take_out(&spans(said), |at| gone[at]);
        }
        true
    }
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

fn is_role(json: &[u8], said: &Said, at: usize) -> bool {
    &json[said.members[at].key.span.range()] == b"role"
}

/// Whether a member says nothing.
fn is_silent(said: &Said, json: &[u8], at: usize, hides: bool) -> bool {
    let member = said.members[at];
    let content = &json[member.key.span.range()] == b"content";
    (hides && content)
        || member.kind == Kind::Null
        || (member.value.len() == 2 && member.kind != Kind::Number)
}

/// Whether single calls were taken out, if not all.
fn take_count(said: &Said, (calls, slots): (&Calls, &[Option<usize>]), all: bool) -> bool {
    !said.calls.is_empty() && (all || slots.iter().any(|slot| calls.is_ours(*slot)))
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
