//! The calls of one answer: which fragments belong together, and who executes each call.
//!
//! Names come in fragments. A name that is not the beginning of a proxy-executed tool's is the
//! client's at once; any other is decided by the arguments after it, the next call, or the end.

use smallvec::SmallVec;

use crate::{format::CallFragment, json::scan::JsonKind};

/// Calls tracked in one answer; any further call passes as the client's.
const MAX_CALLS: usize = 1_024;

/// Bytes kept of a name or an id.
const MAX_NAME: usize = 1_024;

/// For each call fragment of an event, the index of its call in the tracker.
pub(super) type CallSlots = SmallVec<[Option<usize>; 2]>;

pub(super) struct CallTracker {
    /// The names of the proxy-executed tools.
    tools: &'static [&'static str],
    calls: Vec<TrackedCall>,
    /// Two calls had the same index, so calls cannot be ordered by it.
    shares_indices: bool,
    /// The answer comes in one piece: each fragment is a call.
    pub(super) whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallExecutor {
    Undecided,
    Proxy,
    Client,
}

pub(super) struct TrackedCall {
    index: Option<u64>,
    pub(super) id: Vec<u8>,
    pub(super) name: Vec<u8>,
    /// Arguments came after a name.
    has_arguments: bool,
    pub(super) executor: CallExecutor,
    pub(super) legacy: bool,
}

impl CallTracker {
    pub(super) const fn new(tools: &'static [&'static str]) -> Self {
        Self {
            tools,
            calls: Vec::new(),
            shares_indices: false,
            whole: false,
        }
    }

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

    /// The call that a fragment continues; `None` if it begins another one.
    fn find_call(
        &self,
        json: &[u8],
        fragment: &CallFragment,
        seen: &[Option<usize>],
    ) -> Option<usize> {
        let index = fragment.index.map(|(index, _)| index);
        let name = fragment.name.map(|name| &json[name.span.range()]);
        let id = fragment.id.map(|id| truncate_name(&json[id.span.range()]));
        if (index, id, name, fragment.legacy) == (None, None, None, false) {
            return self.calls.len().checked_sub(1);
        }
        let is_same = |call: &TrackedCall| call.legacy == fragment.legacy && call.index == index;
        if let (Some(id), None) = (id, index) {
            let has_id = |call: &TrackedCall| is_same(call) && call.id == id;
            if let Some(slot) = self.calls.iter().rposition(has_id) {
                return Some(slot);
            }
        }
        let slot = self.calls.iter().rposition(is_same)?;
        let call = &self.calls[slot];
        let is_new = match (id, name) {
            (Some(id), _) => !call.id.is_empty() && call.id != id,
            // Without ids: of two names in one event, or of another name after arguments, the second
            // begins another call.
            (None, Some(name)) => {
                (seen.contains(&Some(slot)) && !call.name.is_empty())
                    || (call.has_arguments && call.name != name)
            }
            (None, None) => false,
        };
        (!is_new).then_some(slot)
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
        self.shares_indices |= self.calls.iter().any(|call| call.index == index);
        self.calls.push(TrackedCall {
            index,
            id: Vec::new(),
            name: Vec::new(),
            has_arguments: false,
            executor: CallExecutor::Undecided,
            legacy: fragment.legacy,
        });
        Some(self.calls.len() - 1)
    }

    fn add_fragment(&mut self, slot: usize, json: &[u8], fragment: &CallFragment) {
        let call = &mut self.calls[slot];
        if let Some(id) = fragment.id.filter(|_| call.id.is_empty()) {
            call.id = truncate_name(&json[id.span.range()]).to_vec();
        }
        let is_undecided = call.executor == CallExecutor::Undecided;
        if let Some(name) = fragment.name.filter(|_| is_undecided) {
            // Some providers give the whole name in every fragment.
            let name = &json[name.span.range()];
            if call.name != name || !self.tools.iter().any(|tool| tool.as_bytes() == name) {
                let room = MAX_NAME.saturating_sub(call.name.len()).min(name.len());
                call.name.extend_from_slice(&name[..room]);
            }
        }
        let has_arguments = fragment.arguments.is_some_and(|(span, kind)| match kind {
            JsonKind::String => span.len() > 2,
            // Some providers give the object itself.
            _ => kind != JsonKind::Null,
        });
        call.has_arguments |= has_arguments && !call.name.is_empty();
    }

    fn decide_executor(&mut self, slot: usize, last: bool) {
        let call = &mut self.calls[slot];
        if call.executor != CallExecutor::Undecided {
            return;
        }
        let mut tools = self.tools.iter().map(|name| name.as_bytes());
        if !tools.clone().any(|name| name.starts_with(&call.name)) {
            call.executor = CallExecutor::Client;
        } else if last || call.has_arguments {
            call.executor = match tools.any(|name| name == call.name) {
                true => CallExecutor::Proxy,
                false => CallExecutor::Client,
            };
        }
    }

    /// Decides all calls, since nothing more comes.
    pub(super) fn settle_calls(&mut self) {
        for slot in 0..self.calls.len() {
            self.decide_executor(slot, true);
        }
    }

    pub(super) fn has_undecided(&self, slots: &[Option<usize>]) -> bool {
        let mut slots = slots.iter().flatten();
        slots.any(|slot| self.calls[*slot].executor == CallExecutor::Undecided)
    }

    pub(super) fn is_proxy_call(&self, slot: Option<usize>) -> bool {
        slot.is_some_and(|slot| self.calls[slot].executor == CallExecutor::Proxy)
    }

    /// The index of a call for the client, if it differs from the provider's.
    pub(super) fn renumber_index(&self, slot: Option<usize>) -> Option<u64> {
        let index = self.calls[slot?].index?;
        let is_removed_before =
            |call: &&TrackedCall| call.executor == CallExecutor::Proxy && call.index < Some(index);
        let removed = self.calls.iter().filter(is_removed_before).count() as u64;
        (removed > 0 && !self.shares_indices).then(|| index.saturating_sub(removed))
    }

    /// How many calls are the proxy's, and how many the client's.
    pub(super) fn count_by_executor(&self) -> (u32, u32) {
        let is_proxy = |call: &&TrackedCall| call.executor == CallExecutor::Proxy;
        let proxy = self.calls.iter().filter(is_proxy).count();
        (proxy as u32, (self.calls.len() - proxy) as u32)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TrackedCall> {
        self.calls.iter()
    }
}

fn truncate_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(MAX_NAME)]
}
