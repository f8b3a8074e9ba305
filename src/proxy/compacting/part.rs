//! Compaction's part in one request: whether it is switched on, what goes out, what is in the making.

use super::vain::Whose;
use crate::{
    compaction::{Job, JobId, Memory, Outcome},
    provider::Target,
    proxy::{
        App,
        request_options::{Asker, Wish},
    },
    session::Inherited,
    store::Key,
    wire::chat::Conversation,
};

/// Compaction in one request.
#[derive(Clone, Debug)]
pub struct Part {
    /// As it will be, if the generation comes about.
    memory: Memory,
    /// Generations of the session, this one included.
    generations: u32,
    /// Names the request; `None` for one that belongs to no conversation, or to one of which nobody
    /// knows for now whether it has a summary.
    key: Option<Key>,
    /// The guard may change the request, so that a summary would go out.
    guards: bool,
    /// Summaries are made without being asked for.
    auto: bool,
    /// A source names the window.
    known: bool,
    /// One is asked for from outside; [`Memory::ordered`] is to be this then.
    ordered: Option<u32>,
    /// The one in use goes out with this request first.
    fresh: bool,
    /// The request goes out without the one in use.
    aside: bool,
}

impl Part {
    /// Who decides whether it is on: the request, else the session, else the settings.
    pub fn begin(
        app: &App,
        conversation: &Conversation,
        inherited: &Inherited,
        asker: Asker,
        target: &Target,
    ) -> Self {
        let state = inherited.state.as_ref();
        let said = asker.auto_compact.or(inherited.orders.auto_compact);
        let ordered = inherited.compact_ordered;
        let keys = inherited.lineage.keys(0);
        if inherited.compacted {
            app.compacting.claimed(Whose::of(inherited));
            app.compacting.claimed(Whose::account(inherited));
        }
        let part = Self {
            memory: state.map_or_else(Memory::default, |state| state.compaction.clone()),
            generations: state.map_or(0, |state| state.generations).saturating_add(1),
            key: keys.filter(|_| !inherited.lost).map(|keys| keys.bare),
            guards: asker.wish == Wish::Guard && !conversation.is_auxiliary(),
            auto: said.unwrap_or(app.config.compaction.auto),
            known: false,
            ordered: ordered.then_some(inherited.orders.compacts),
            fresh: inherited.compacted,
            aside: false,
        };
        part.at(app, target)
    }

    /// The same for another place.
    pub fn at(mut self, app: &App, target: &Target) -> Self {
        self.known = target.window.known().is_some();
        if self.auto && self.guards && !self.known {
            app.compacting.say_unknown(target);
        }
        self
    }

    /// What is remembered after the generation. One that is being made already is the one that was
    /// asked for.
    pub fn memory(&self) -> Memory {
        let mut memory = self.memory.clone();
        if let Some(ordered) = self.ordered.filter(|_| self.guards && memory.job.is_some()) {
            memory.ordered = ordered;
        }
        memory
    }

    pub(super) const fn key(&self) -> Option<Key> {
        self.key
    }

    /// The one that is being made.
    pub(super) fn job(&self) -> Option<JobId> {
        self.memory.job.map(|job| job.id)
    }

    /// Whether one is asked for from outside, and not begun yet.
    pub const fn is_ordered(&self) -> bool {
        self.ordered.is_some() && self.guards
    }

    /// Whether they are made without being asked for.
    pub const fn is_on(&self) -> bool {
        self.auto && self.known && self.guards
    }

    /// Whether one may be begun with this request.
    pub fn may_begin(&self) -> bool {
        let free = match self.is_ordered() {
            true => self.memory.job.is_none(),
            false => self.is_on() && self.memory.may_ask(self.generations),
        };
        free && self.key.is_some()
    }

    /// One is being made from now on; that it was asked for is done with.
    pub(super) fn begun(&mut self, id: JobId) {
        self.memory.job = Some(Job {
            id,
            since: self.generations,
        });
        self.carried();
    }

    /// What was asked for from outside is done, or came to nothing.
    pub(super) fn carried(&mut self) {
        if let Some(ordered) = self.ordered.take() {
            self.memory.ordered = ordered;
        }
    }

    /// One that would have been begun has failed before.
    pub(super) fn failed(&mut self) {
        self.memory.failed(self.generations);
        self.carried();
    }

    /// What became of the one that was being made. Whether there is a new one to go out.
    pub(super) fn take_over(&mut self, outcome: &Outcome) -> bool {
        let made = self.memory.made;
        let outcomes = std::slice::from_ref(outcome);
        self.memory.take_over(outcomes, self.generations);
        let new = self.memory.made > made;
        self.fresh |= new;
        new
    }

    /// The one that was just begun will not be made.
    pub fn forget_job(&mut self) {
        self.memory.job = None;
    }

    /// Whether the request goes out without the summary that it has.
    pub fn set_aside(&mut self, aside: bool) {
        self.aside = aside;
    }

    /// Whether the summary in use goes out for the first time.
    pub const fn goes_out_first(&self) -> bool {
        self.fresh && self.guards && !self.aside && self.memory.summary.is_some()
    }

    /// Up to which message the summary tells that goes out with the request, counted as
    /// [`Summary::boundary`] is.
    ///
    /// [`Summary::boundary`]: crate::guard::record::Summary::boundary
    pub(super) fn carried_boundary(&self) -> Option<u32> {
        let summary = self.memory.summary.as_ref().filter(|_| !self.aside);
        summary.map(|summary| summary.boundary)
    }

    /// What the client is told was done.
    pub fn actions(&self) -> impl Iterator<Item = &'static str> + use<> {
        let compacted = self.goes_out_first();
        let compacting = self.memory.job.is_some();
        let words = [(compacted, "compacted"), (compacting, "compacting")];
        words
            .into_iter()
            .filter_map(|(done, word)| done.then_some(word))
    }
}
