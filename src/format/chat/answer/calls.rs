//! The calls of one answer: which fragments belong together, and who executes each call.
//!
//! Names come in fragments. As soon as no proxy-executed tool has a name that begins with the fragments so far, the call
//! is the client's. Any other call is decided by the arguments after its name, by the next call, or by the end of the
//! answer.

use smallvec::SmallVec;

use crate::{
    format::{
        CallFragment,
        answer_rewriter::{
            BlockFate, BlockTracker, MAX_NAME, TrackedBlock, TrackedKind, truncate_name,
        },
    },
    json::scan::JsonKind,
};

/// For each call fragment of an event, the slot of its call.
type CallSlots = SmallVec<[Option<usize>; 2]>;

impl BlockTracker {
    /// Takes the call fragments of an event, and returns the slots of their calls. `whole`: the answer comes in one
    /// piece, so that each fragment is a call.
    pub(super) fn take_fragments<'a>(
        &mut self,
        json: &[u8],
        fragments: impl Iterator<Item = &'a CallFragment>,
        whole: bool,
    ) -> CallSlots {
        let mut seen = CallSlots::new();
        for fragment in fragments {
            let slot = match self.find_call(json, fragment, &seen) {
                Some(slot) if !whole => Some(slot),
                _ => self.begin_call(fragment),
            };
            if let Some(slot) = slot {
                self.add_fragment(slot, json, fragment);
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
        let name = fragment.name.map(|name| name.raw_bytes(json));
        let id = fragment.id.map(|id| truncate_name(id.raw_bytes(json)));
        if (index, id, name, fragment.legacy) == (None, None, None, false) {
            return self.blocks.len().checked_sub(1);
        }
        let is_same = |call: &TrackedBlock| call.legacy == fragment.legacy && call.index == index;
        if let (Some(id), None) = (id, index) {
            let has_id = |call: &TrackedBlock| is_same(call) && call.id == id;
            if let Some(slot) = self.blocks.iter().rposition(has_id) {
                return Some(slot);
            }
        }
        let slot = self.blocks.iter().rposition(is_same)?;
        let call = &self.blocks[slot];
        let is_new = match (id, name) {
            (Some(id), _) => !call.id.is_empty() && call.id != id,
            // Without ids, a second name in one event, or another name after arguments, begins another call.
            (None, Some(name)) => {
                (seen.contains(&Some(slot)) && !call.name.is_empty())
                    || (call.has_arguments && call.name != name)
            }
            (None, None) => false,
        };
        (!is_new).then_some(slot)
    }

    fn begin_call(&mut self, fragment: &CallFragment) -> Option<usize> {
        let index = fragment.index.map(|(index, _)| index);
        let slot = self.push_block(index, TrackedKind::Call)?;
        self.blocks[slot].legacy = fragment.legacy;
        for earlier in 0..slot {
            if !self.blocks[earlier].name.is_empty() {
                self.end_block(earlier);
            }
        }
        Some(slot)
    }

    /// Takes a fragment, and decides who gets the call if the fragment shows that.
    fn add_fragment(&mut self, slot: usize, json: &[u8], fragment: &CallFragment) {
        let is_undecided = self.fate(Some(slot)) == BlockFate::Undecided;
        let (tools, call) = (self.tools, &mut self.blocks[slot]);
        if let Some(id) = fragment.id.filter(|_| call.id.is_empty()) {
            call.id = truncate_name(id.raw_bytes(json)).to_vec();
        }
        if let Some(name) = fragment.name.filter(|_| is_undecided) {
            // Some providers give the whole name in every fragment.
            let name = name.raw_bytes(json);
            if call.name != name || !tools.iter().any(|tool| tool.as_bytes() == name) {
                call.name.extend_from_slice(name);
                call.name.truncate(MAX_NAME);
            }
        }
        let has_arguments = fragment.arguments.is_some_and(|(span, kind)| match kind {
            JsonKind::String => span.len() > 2,
            // Some providers give the object itself.
            _ => kind != JsonKind::Null,
        });
        call.has_arguments |= has_arguments && !call.name.is_empty();
        let begins_tool = |tool: &&str| tool.as_bytes().starts_with(&call.name);
        if call.has_arguments || !tools.iter().any(begins_tool) {
            self.end_block(slot);
        }
    }

    /// The index of a call for the client, if it differs from the provider's.
    pub(super) fn renumber_call(&self, slot: Option<usize>) -> Option<u64> {
        let index = self.blocks[slot?].index?;
        let renumbered = self.renumber(index);
        (renumbered != index && !self.shares_indices).then_some(renumbered)
    }
}
