//! The calls of one answer: which fragments belong together, and who executes each call.
//!
//! A call is the proxy's or the client's once its name cannot become another one: a name that is no
//! prefix of a proxy-executed tool is the client's at once, any other is decided by the arguments that
//! follow it, by the next call, or by the end.

use smallvec::SmallVec;

use crate::{
    format::CallFragment,
    json::scan::{JsonKind, Span},
};

/// Calls followed of one answer; what comes beyond them passes as the client's.
const MAX_CALLS: usize = 1_024;

/// Bytes of a name or an id that are kept.
const MAX_NAME: usize = 1_024;

/// The numbers of the calls that the fragments of one piece belong to.
pub(super) type CallSlots = SmallVec<[Option<usize>; 2]>;

pub(super) struct CallTracker {
    /// The names of the proxy-executed tools.
    tools: &'static [&'static str],
    calls: Vec<TrackedCall>,
    /// Two calls had the same index, so that indices say nothing of the order.
    shared: bool,
    /// The answer comes in one piece: each part is a call of its own.
    pub(super) whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallExecutor {
    /// Not known yet.
    Undecided,
    Proxy,
    Client,
}

pub(super) struct TrackedCall {
    index: Option<u64>,
    pub(super) id: Vec<u8>,
    pub(super) name: Vec<u8>,
    /// Arguments came after a name.
    argued: bool,
    pub(super) executor: CallExecutor,
    pub(super) legacy: bool,
}

impl CallTracker {
    pub(super) const fn new(tools: &'static [&'static str]) -> Self {
        Self {
            tools,
            calls: Vec::new(),
            shared: false,
            whole: false,
        }
    }

    /// Takes the fragments of one piece.
    pub(super) fn take_fragments<'a>(
        &mut self,
        json: &[u8],
        fragments: impl Iterator<Item = &'a CallFragment>,
    ) -> CallSlots {
        let mut seen = CallSlots::new();
        for fragment in fragments {
            let slot = match self.find_call(json, fragment, &seen) {
                Some(slot) if !self.whole => Some(slot),
                _ => self.begin_call(fragment),
            };
            if let Some(slot) = slot {
                self.add_fragment(slot, json, fragment);
                self.decide_executor(slot, false);
            }
            seen.push(slot);
        }
        seen
    }

    /// The call that a fragment goes on with.
    fn find_call(
        &self,
        json: &[u8],
        fragment: &CallFragment,
        seen: &[Option<usize>],
    ) -> Option<usize> {
        let raw = |span: Span| &json[span.range()];
        let index = fragment.index.map(|(index, _)| index);
        let alike = |call: &TrackedCall| call.legacy == fragment.legacy && call.index == index;
        let id = fragment.id.map(|id| raw(id.span));
        let id = id.map(|id| &id[..id.len().min(MAX_NAME)]);
        if (index, id, fragment.name, fragment.legacy) == (None, None, None, false) {
            return self.calls.len().checked_sub(1);
        }
        if let (Some(id), None) = (id, index) {
            let known = |call: &TrackedCall| alike(call) && call.id == id;
            if let Some(slot) = self.calls.iter().rposition(known) {
                return Some(slot);
            }
        }
        let slot = self.calls.iter().rposition(alike)?;
        let call = &self.calls[slot];
        let again = match id {
            Some(id) => !call.id.is_empty() && call.id != id,
            // Without ids: two at once that both say their names are two.
            None => fragment.name.is_some() && seen.contains(&Some(slot)) && !call.name.is_empty(),
        };
        // A name after the arguments, and another one, begins another call.
        let renamed = fragment
            .name
            .is_some_and(|name| call.argued && call.name != raw(name.span));
        (!again && (id.is_some() || !renamed)).then_some(slot)
    }

    fn begin_call(&mut self, fragment: &CallFragment) -> Option<usize> {
        if self.calls.len() >= MAX_CALLS {
            return None;
        }
        for slot in 0..self.calls.len() {
            if !self.calls[slot].name.is_empty() {
                self.decide_executor(slot, true);
            }
        }
        let index = fragment.index.map(|(index, _)| index);
        self.shared |= self.calls.iter().any(|call| call.index == index);
        self.calls.push(TrackedCall {
            index,
            id: Vec::new(),
            name: Vec::new(),
            argued: false,
            executor: CallExecutor::Undecided,
            legacy: fragment.legacy,
        });
        Some(self.calls.len() - 1)
    }

    fn add_fragment(&mut self, slot: usize, json: &[u8], fragment: &CallFragment) {
        let call = &mut self.calls[slot];
        if let Some(id) = fragment.id.filter(|_| call.id.is_empty()) {
            let id = &json[id.span.range()];
            call.id.extend_from_slice(&id[..id.len().min(MAX_NAME)]);
        }
        if let Some(name) = fragment
            .name
            .filter(|_| call.executor == CallExecutor::Undecided)
        {
            // Some providers say the whole name in every fragment.
            let name = &json[name.span.range()];
            let again = call.name == name && self.tools.iter().any(|it| it.as_bytes() == name);
            if !again {
                let room = MAX_NAME.saturating_sub(call.name.len());
                call.name.extend_from_slice(&name[..name.len().min(room)]);
            }
        }
        let says = fragment.arguments.is_some_and(|(span, kind)| match kind {
            JsonKind::String => span.len() > 2,
            // Some providers give the object itself.
            _ => kind != JsonKind::Null,
        });
        call.argued |= says && !call.name.is_empty();
    }

    fn decide_executor(&mut self, slot: usize, last: bool) {
        let call = &mut self.calls[slot];
        if call.executor != CallExecutor::Undecided {
            return;
        }
        let mut tools = self.tools.iter().map(|name| name.as_bytes());
        if !tools.clone().any(|name| name.starts_with(&call.name)) {
            call.executor = CallExecutor::Client;
        } else if last || call.argued {
            call.executor = match tools.any(|name| name == call.name) {
                true => CallExecutor::Proxy,
                false => CallExecutor::Client,
            };
        }
    }

    /// Nothing more comes: whatever is not the proxy's by now is the client's.
    pub(super) fn settle_calls(&mut self) {
        for slot in 0..self.calls.len() {
            self.decide_executor(slot, true);
        }
    }

    /// Whether it is not known yet who executes one of these calls.
    pub(super) fn has_undecided(&self, slots: &[Option<usize>]) -> bool {
        let mut slots = slots.iter().flatten();
        slots.any(|slot| self.calls[*slot].executor == CallExecutor::Undecided)
    }

    pub(super) fn is_proxy_call(&self, slot: Option<usize>) -> bool {
        slot.is_some_and(|slot| self.calls[slot].executor == CallExecutor::Proxy)
    }

    /// The index by which the client knows a call, where that is another than the provider's.
    pub(super) fn renumber_index(&self, slot: Option<usize>) -> Option<u64> {
        let index = self.calls[slot?].index?;
        let before =
            |call: &&TrackedCall| call.executor == CallExecutor::Proxy && call.index < Some(index);
        let own = self.calls.iter().filter(before).count() as u64;
        (own > 0 && !self.shared).then(|| index - own.min(index))
    }

    /// How many are the proxy's, and the client's.
    pub(super) fn count_by_executor(&self) -> (u32, u32) {
        let own = self.calls.iter();
        let own = own
            .filter(|call| call.executor == CallExecutor::Proxy)
            .count();
        (own as u32, (self.calls.len() - own) as u32)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedCall> {
        self.calls.iter()
    }
}
