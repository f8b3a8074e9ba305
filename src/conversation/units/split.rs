//! Divides a conversation into its units, and pairs calls with their results.
//!
//! In most formats they pair by position, never by a map of ids: clients reuse an id in later turns, even for another call.
//! In a format whose results may be apart from their calls, a result answers the nearest call before it that has its id.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Bond, MAX_LOADERS, Unit, UnitKind, find_pinned_end, keep_needed, pin_task};
use crate::conversation::{Author, Conversation, LinkKind};

/// The id of a call; a result without one answers a call without one.
type CallId = Option<u128>;

/// Divides a conversation into its units. Calls and results that do not pair stay, as the client sent them.
pub fn split_units(conversation: &Conversation) -> Vec<Unit> {
    let mut splitter = Splitter {
        conversation,
        results_may_be_apart: conversation.format.rules().results_may_be_apart,
        units: Vec::with_capacity(conversation.items.len()),
        sources: BTreeMap::new(),
        open: 0,
        answered: 0,
        served: HashSet::new(),
        keeps_apart: false,
        pending: Vec::new(),
        bonds: Vec::new(),
        loaders: HashMap::new(),
    };
    (0..conversation.items.len()).for_each(|at| splitter.add_item(at));
    splitter.finish()
}

/// The newest unit with calls of an id, or with what the server runs under that id.
struct Source {
    unit: usize,
    /// How many of these have no result so far.
    open: usize,
}

struct Splitter<'a> {
    conversation: &'a Conversation,
    results_may_be_apart: bool,
    units: Vec<Unit>,
    sources: BTreeMap<CallId, Source>,
    /// Open calls of the last unit.
    open: usize,
    /// The unit that the last unit answers, if the last unit has results alone.
    answered: usize,
    /// The ids of what the server runs in the current turn; cleared when the turn ends.
    served: HashSet<CallId>,
    /// An item with `stands_apart` was read.
    keeps_apart: bool,
    /// Units that still wait for something, or that refer to something that is not in the conversation.
    pending: Vec<usize>,
    bonds: Vec<(usize, usize)>,
    /// The newest unit that loads a tool, by the tool's name.
    loaders: HashMap<u128, usize>,
}

impl Splitter<'_> {
    fn add_item(&mut self, at: usize) {
        let item = &self.conversation.items[at];
        if item.is_bound {
            self.end_step();
            if let Some(last) = self.units.last_mut() {
                last.messages.end = at + 1;
                return;
            }
        }
        if item.author.is_tool() {
            self.add_result(at);
            return self.add_links(at);
        }
        self.end_step();
        if item.by_client
            && let Some(last) = self.units.last_mut()
        {
            last.messages.end = at + 1;
            last.counted += 1;
            // Results that are written as texts.
            if last.kind == UnitKind::Assistant {
                last.kind = UnitKind::Step;
            }
            return;
        }
        let kind = match item.author {
            Author::System => UnitKind::System,
            Author::User => UnitKind::User,
            Author::Model => UnitKind::Assistant,
            Author::Tool | Author::Unknown => UnitKind::Other,
        };
        // The unit before the second such item, and before each later one, keeps these items apart.
        if item.stands_apart
            && std::mem::replace(&mut self.keeps_apart, true)
            && let Some(last) = self.units.last_mut()
        {
            last.is_pinned = true;
        }
        self.push_unit(at, kind);
        match item.author {
            Author::User => self.served.clear(),
            Author::Model => self.add_answer(at),
            _ => {}
        }
    }

    fn push_unit(&mut self, at: usize, kind: UnitKind) {
        let item = &self.conversation.items[at];
        self.units.push(Unit {
            kind,
            messages: at..at + 1,
            counted: usize::from(kind != UnitKind::System),
            says_nothing: kind == UnitKind::User && self.conversation.says_nothing(item),
            messages_before: match self.units.last() {
                Some(last) => last.messages_through(),
                None => self.conversation.summarised as usize,
            },
            follows_reasoning: item.follows_reasoning,
            is_pinned: item.is_pinned || matches!(kind, UnitKind::System | UnitKind::Other),
            is_history_summary: item.is_history_summary,
            is_needed: false,
            bond: None,
            loader: None,
        });
    }

    /// Notes the calls and links of an answer.
    fn add_answer(&mut self, at: usize) {
        let (conversation, unit) = (self.conversation, self.units.len() - 1);
        let calls = conversation.calls_of(&conversation.items[at]);
        if !self.results_may_be_apart && conversation.links.is_empty() {
            self.sources.clear();
        }
        self.open = calls.len();
        for call in calls {
            self.add_source(call.id.map(|id| conversation.digest_text(id)), unit);
            let name = call.name.filter(|_| !self.loaders.is_empty());
            let loader = name.and_then(|name| self.loaders.get(&conversation.digest_text(name)));
            let loader = loader.filter(|&&loader| loader != unit);
            if let Some(loader) = loader.and_then(|&at| self.units[at].loader.as_mut())
                && loader.callers.last() != Some(&unit)
            {
                loader.callers.push(unit);
            }
        }
        self.add_links(at);
    }

    /// Notes the links of an item of the last unit.
    fn add_links(&mut self, at: usize) {
        let (conversation, unit) = (self.conversation, self.units.len() - 1);
        for link in conversation.links_of(&conversation.items[at]) {
            let id = Some(conversation.digest_text(link.id));
            match link.kind {
                LinkKind::Use => {
                    self.add_source(id, unit);
                    self.served.insert(id);
                }
                LinkKind::Result => self.add_reference(id, unit, 1),
                LinkKind::Caller => self.add_reference(id, unit, 0),
                LinkKind::Load => self.add_loaded(conversation.digest_text(link.id), unit),
            }
        }
    }

    /// Releases the oldest of too many units that load tools, as if their tools were loaded anew by the unit with which
    /// there were too many.
    fn retire_loaders(&mut self) {
        let all = self.units.iter().enumerate();
        let loaders: Vec<usize> = all
            .filter(|(_, it)| it.loader.is_some())
            .map(|(at, _)| at)
            .collect();
        for (&at, &newer) in loaders.iter().zip(loaders.iter().skip(MAX_LOADERS)) {
            if let Some(loader) = &mut self.units[at].loader {
                let until = if loader.newest > 0 {
                    newer
                } else {
                    loader.until
                };
                (loader.newest, loader.until) = (0, until.min(newer));
            }
        }
    }

    /// Notes that a unit loads a tool.
    fn add_loaded(&mut self, tool: u128, unit: usize) {
        let before = self.loaders.insert(tool, unit);
        if before == Some(unit) {
            return;
        }
        self.units[unit].loader.get_or_insert_default().newest += 1;
        if let Some(before) = before.and_then(|at| self.units[at].loader.as_mut()) {
            before.newest -= 1;
            before.until = unit;
        }
    }

    fn add_source(&mut self, id: CallId, unit: usize) {
        let source = self.sources.entry(id).or_insert(Source { unit, open: 0 });
        if source.unit != unit {
            let before = std::mem::replace(source, Source { unit, open: 0 });
            self.pending
                .extend((before.open > 0).then_some(before.unit));
        }
        source.open += 1;
    }

    /// Bonds a unit to the unit that it refers to, and counts `closed` open calls there as answered. A unit that refers to
    /// an unknown id stays.
    fn add_reference(&mut self, id: CallId, unit: usize, closed: usize) {
        let Some(source) = self.sources.get_mut(&id) else {
            self.pending.push(unit);
            return;
        };
        source.open = source.open.saturating_sub(closed);
        if source.unit != unit {
            self.bonds.push((source.unit, unit));
        }
    }

    fn add_result(&mut self, at: usize) {
        let conversation = self.conversation;
        let call_id = conversation.items[at].call_id;
        let id = call_id.map(|id| conversation.digest_text(id));
        let last = self.units.len().checked_sub(1);
        let is_next = |last: &Unit| last.unbound_messages().end == at;
        let is_parted =
            !self.results_may_be_apart && at > 0 && conversation.items[at - 1].by_client;
        let last = last.filter(|&last| is_next(&self.units[last]) && !is_parted);
        let source = self.sources.get_mut(&id);
        let source = source.filter(|it| self.results_may_be_apart || Some(it.unit) == last);
        let answered = source.map(|source| {
            self.open = self.open.saturating_sub(usize::from(source.open > 0));
            source.open = source.open.saturating_sub(1);
            source.unit
        });
        match (answered, last) {
            (Some(answered), Some(last)) if answered == last => self.extend_unit(last, at),
            (Some(answered), last) => match last {
                Some(last)
                    if self.units[last].kind == UnitKind::Results && self.answered == answered =>
                {
                    self.extend_unit(last, at);
                }
                _ => {
                    self.answered = answered;
                    self.bonds.push((answered, self.units.len()));
                    self.push_unit(at, UnitKind::Results);
                }
            },
            (None, Some(last)) if !self.results_may_be_apart && self.makes_calls(last) => {
                self.extend_unit(last, at);
                self.mark_unpaired(last);
            }
            (None, _) => self.push_unit(at, UnitKind::Other),
        }
    }

    /// Adds a result to the unit directly before it.
    fn extend_unit(&mut self, unit: usize, at: usize) {
        let unit = &mut self.units[unit];
        unit.messages.end = at + 1;
        unit.counted += 1;
        if unit.kind == UnitKind::Assistant {
            unit.kind = UnitKind::Step;
        }
    }

    fn makes_calls(&self, unit: usize) -> bool {
        let first = &self.conversation.items[self.units[unit].messages.start];
        !first.calls.is_empty()
    }

    fn mark_unpaired(&mut self, unit: usize) {
        let unit = &mut self.units[unit];
        (unit.kind, unit.is_pinned) = (UnitKind::Other, true);
    }

    /// Ends the last unit, since no more results directly follow it. If it has open calls, and calls pair by position, then
    /// it is marked as unpaired.
    fn end_step(&mut self) {
        let open = std::mem::take(&mut self.open);
        if let Some(last) = self.units.len().checked_sub(1)
            && open > 0
            && !self.results_may_be_apart
        {
            self.mark_unpaired(last);
        }
    }

    fn finish(mut self) -> Vec<Unit> {
        self.end_step();
        self.retire_loaders();
        let sources = self.sources.iter().filter(|(id, source)| {
            source.open > 0 && (self.results_may_be_apart || self.served.contains(*id))
        });
        self.pending.extend(sources.map(|(_, source)| source.unit));
        let mut units = self.units;
        pin_task(self.conversation, &mut units);
        tie_bonds(&mut units, &self.bonds);
        let pinned = find_pinned_end(&units);
        let mut removed: Vec<bool> = units.iter().map(|unit| !unit.is_pinned).collect();
        removed[..pinned].fill(false);
        self.pending.iter().for_each(|&unit| removed[unit] = false);
        keep_needed(&units, &mut removed);
        for (unit, removed) in units.iter_mut().zip(removed).skip(pinned) {
            unit.is_needed = !removed && !unit.is_pinned;
        }
        units
    }
}

/// Makes a ring of all units that are bonded, directly or through others.
fn tie_bonds(units: &mut [Unit], bonds: &[(usize, usize)]) {
    let mut firsts: BTreeMap<usize, usize> = BTreeMap::new();
    let find_first = |firsts: &mut BTreeMap<usize, usize>, mut at: usize| {
        while let Some(&first) = firsts.get(&at).filter(|&&first| first != at) {
            // Path compression: it shortens the way for the next search.
            let next = firsts.get(&first).copied().unwrap_or(first);
            firsts.insert(at, next);
            at = first;
        }
        firsts.insert(at, at);
        at
    };
    for &(one, other) in bonds {
        let one = find_first(&mut firsts, one);
        let other = find_first(&mut firsts, other);
        firsts.insert(one.max(other), one.min(other));
    }
    let mut rings: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for unit in firsts.keys().copied().collect::<Vec<_>>() {
        let first = find_first(&mut firsts, unit);
        rings.entry(first).or_default().push(unit);
    }
    for ring in rings.values() {
        let (first, last) = (ring[0], ring[ring.len() - 1]);
        let next = ring[1..].iter().copied().chain([first]);
        for (&unit, next) in ring.iter().zip(next) {
            units[unit].bond = Some(Bond { next, last });
        }
    }
}
