//! What one answer said, of all that matters to us.

use super::{assemble::Assembled, blocks::Blocks, calls::Calls};
use crate::{
    relay::{Sifting, Spoken},
    wire::{chat::answer::Answer, usage::Usage},
};

pub(super) struct One {
    pub(super) calls: Calls,
    pub(super) blocks: Option<Blocks>,
    pub(super) message: Assembled,
    pub(super) finish: Box<str>,
    pub(super) usage: Option<Usage>,
    /// The provider reported an error.
    pub(super) error: bool,
}

impl One {
    pub(super) fn new(sifting: Sifting) -> Self {
        Self {
            calls: Calls::new(sifting.tools),
            blocks: sifting.package.then(Blocks::default),
            message: Assembled::default(),
            finish: Box::default(),
            usage: None,
            error: false,
        }
    }

    pub(super) fn report(&mut self, answer: &Answer) {
        for usage in answer.reports.iter().filter_map(|report| report.usage) {
            self.usage = Some(Usage::later(self.usage, usage));
        }
    }

    /// What of a text the client may see. `last`: no more text comes.
    pub(super) fn visible(&mut self, raw: &[u8], last: bool) -> Vec<u8> {
        let Some(blocks) = &mut self.blocks else {
            return raw.to_vec();
        };
        let mut visible = blocks.push(raw);
        if last {
            visible.extend(blocks.finish());
        }
        visible
    }

    /// Whether the answer, which is over, was for us alone and is to be gone on with.
    pub(super) fn is_ours(&self) -> bool {
        let (ours, theirs) = self.calls.count();
        if self.error || theirs > 0 {
            return false;
        }
        if ours > 0 {
            return !self.cut_off();
        }
        let blocks = self.blocks.as_ref();
        let package = blocks.and_then(|blocks| blocks.package(false));
        package.is_some_and(|package| package.alone) && !self.cut_off()
    }

    /// Whether the answer ended before the model wanted it to. Of other reasons there are as many
    /// spellings as providers, and an answer that is taken for cut off ends a client's loop.
    fn cut_off(&self) -> bool {
        let finish = self.finish.to_ascii_lowercase();
        let words = [
            "length",
            "max",
            "filter",
            "safety",
            "sensitive",
            "error",
            "window",
        ];
        let names = [
            "refusal",
            "recitation",
            "insufficient_system_resource",
            "cancelled",
        ];
        words.iter().any(|word| finish.contains(word)) || names.contains(&&*finish)
    }

    /// `message` and the elements of calls as the provider gave them.
    pub(super) fn spoken(&self, message: String, call: impl Fn(usize) -> Option<String>) -> Spoken {
        let (ours, theirs) = self.calls.count();
        let blocks = self.blocks.as_ref();
        Spoken {
            message: message.into(),
            own: self.calls.own(call),
            theirs,
            package: blocks.and_then(|blocks| blocks.package(ours + theirs > 0)),
            finish: self.finish.clone(),
            usage: self.usage,
        }
    }
}
