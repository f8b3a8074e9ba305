//! What of ours belongs into an answer that the client echoes: calls that were kept from it, text
//! that was taken out of it, and text that stands in a round before it.
//!
//! What cannot be put in without touching what the client said is left out whole: an answer with
//! other calls than it had, text with half a surrogate pair, a part with a cache breakpoint.

mod echoed_answer;

use self::echoed_answer::{EchoCut, EchoedAnswer, SpokenBefore};
use super::{
    estimate::Weights,
    injected_turns,
    injections::{InjectedCall, InjectionContent},
};
use crate::{
    conversation::{Conversation, Item, edit::Edits},
    json::text,
};

/// What becomes of one echoed answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Echo {
    pub(super) edits: Edits,
    /// Calls of ours that were put in.
    pub(super) calls: u32,
    /// Their results, which follow the message.
    pub(super) results: u32,
    /// Raw tokens of calls, results and text.
    pub(super) tokens: u32,
    /// Raw tokens that were left out, since they stand in a round.
    pub(super) spared: u32,
    /// Records that could not be put in.
    pub(super) left_out: usize,
}

/// Puts the records of an answer into message `at`. What was spoken in a round is left out here
/// only where the `round` stands before it.
pub(super) fn edit_echo(
    conversation: &Conversation,
    at: usize,
    records: &[&InjectionContent],
    round: bool,
    weights: &Weights,
) -> Echo {
    let mut echo = Echo::default();
    let message = &conversation.items[at];
    let mut added = Vec::new();
    let mut spoken = None;
    for record in records {
        match record {
            InjectionContent::Calls {
                theirs,
                calls,
                results,
            } => {
                let fits = lists_calls(conversation, message, *theirs)
                    && echo.add_calls(conversation, message, calls, results, weights);
                echo.left_out += usize::from(!fits);
            }
            InjectionContent::Text { before_chars, text } => {
                added.push((*before_chars as usize, &**text))
            }
            &&InjectionContent::Spoken { chars, digest } if round => {
                spoken = Some(SpokenBefore {
                    chars: chars as usize,
                    digest,
                });
            }
            InjectionContent::Spoken { .. } => echo.left_out += 1,
            InjectionContent::Prompt(_) | InjectionContent::Round(_) => {}
        }
    }
    if !added.is_empty() || spoken.is_some() {
        let said = EchoedAnswer::from_item(conversation, message);
        echo.edit_text(said.as_ref(), &added, spoken, weights);
    }
    echo
}

/// Whether an answer has exactly so many calls, all of them in a list.
fn lists_calls(conversation: &Conversation, message: &Item, theirs: u32) -> bool {
    let calls = conversation.calls_of(message);
    theirs > 0 && calls.len() == theirs as usize && calls.iter().all(|call| call.listed)
}

impl Echo {
    /// Puts calls between the client's, and their results after the message; not where they do
    /// not fit together.
    fn add_calls(
        &mut self,
        conversation: &Conversation,
        message: &Item,
        calls: &[InjectedCall],
        results: &[Box<str>],
        weights: &Weights,
    ) -> bool {
        let Some(tokens) = injected_turns::weigh_step(conversation.format, calls, results, weights)
        else {
            return false;
        };
        let theirs = conversation.calls_of(message);
        for call in calls {
            match (theirs.get(call.before as usize), theirs.last()) {
                (Some(next), _) => self
                    .edits
                    .insert(next.span.start, format!("{},", call.json)),
                (None, Some(last)) => self.edits.insert(last.span.end, format!(",{}", call.json)),
                (None, None) => return false,
            }
        }
        for result in results {
            self.edits.insert(message.span.end, format!(",{result}"));
        }
        self.calls += calls.len() as u32;
        self.results += results.len() as u32;
        self.tokens = self.tokens.saturating_add(tokens);
        true
    }

    /// Puts text in, and leaves out what was spoken before.
    fn edit_text(
        &mut self,
        said: Option<&EchoedAnswer<'_>>,
        added: &[(usize, &str)],
        spoken: Option<SpokenBefore>,
        weights: &Weights,
    ) {
        let Some(said) = said else {
            self.left_out += added.len() + usize::from(spoken.is_some());
            return;
        };
        let adds = added.iter().any(|(_, text)| !text.trim().is_empty());
        let calls = self.calls > 0 || !said.message.calls.is_empty();
        let spoken = spoken.filter(|spoken| spoken.chars > 0);
        let cut = spoken.map_or(EchoCut::Nothing, |spoken| {
            said.find_cut(spoken, adds, calls)
        });
        self.left_out += usize::from(spoken.is_some() && cut == EchoCut::Nothing);
        let gone = match cut {
            EchoCut::Nothing => 0,
            EchoCut::All => {
                let empty = said.conversation.format.empty_content();
                self.edits.replace(said.span, empty);
                self.spared = said.tokens(usize::MAX, weights);
                self.left_out += added.len();
                return;
            }
            EchoCut::First(chars) => {
                said.take_out_first(chars, adds, &mut self.edits);
                self.spared = said.tokens(chars, weights);
                chars
            }
        };
        let whole: String;
        let mut added = added;
        let all;
        if said.is_null() && !added.is_empty() {
            // One string takes its place.
            whole = added.iter().map(|(_, text)| *text).collect();
            all = [(0, whole.as_str())];
            added = &all;
        }
        for (before, text) in added {
            let escaped = text::escape_text(text);
            let tokens = weights.count_json_tokens(escaped.as_bytes());
            if said.insert_text((*before).max(gone), gone, &escaped, &mut self.edits) {
                self.tokens = self.tokens.saturating_add(tokens);
            } else {
                self.left_out += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
