//! Digests of what the proxy adds, removes or changes in the part of a conversation that was sent before; and the *epoch*,
//! the first answer that was made under these changes.
//!
//! Newer models bind their reasoning to everything before it in the prompt. Reasoning that was made before the newest change
//! by the proxy is stale: one provider refuses it, another leaves it out. Reasoning that was made since then stays, byte for
//! byte.
//!
//! Whatever the proxy changes in the part already sent changes the digests, and changed digests move the epoch. So a
//! mechanism of the guard need not know about reasoning. Only the replay counts the tokens of reasoning: deep cuts and early
//! clearing call `Replay::drop_reasoning` to take them off. [`SentChanges::seal`] takes
//! the edits and returns them as [`SealedEdits`]. To these only what needs no digest of an edit can be added: records, which have
//! digests of their own, with what follows from them, and the answer cap, which reasoning is not bound to.
//!
//! The epoch never moves back to an earlier answer. So reasoning that was left out never comes back, and the reasoning that
//! is kept is always that of the newest answers.
//!
//! The client's own bytes are not part of the digests: the proxy does not judge what the client changes.

use serde::{Deserialize, Serialize};

use crate::{
    conversation::{
        Author, Conversation, Item, ItemPlace, PlaceMap,
        digest::DigestBuilder,
        edit::{Edit, Edits},
    },
    guard::{
        grammar::message_order::MessageOrder,
        inject::{
            injections::ToolSet,
            placed_injections::{InsertedRecords, PlacedInjections, SentChange},
        },
        request::{
            answer_place::{AnswerPlace, count_places},
            view::RequestView,
        },
    },
    json::text,
};

/// Digests of what the proxy changed in the last request, and the first answer made under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentHistory {
    /// Digest of the changes before the messages: edits of the system text and of the client's tools, and the tools that the
    /// proxy adds.
    head: u64,
    /// Digest of the edits of messages.
    edits: ChangeDigest,
    /// Digest of the prompts, tool rounds, calls and texts that were put back.
    records: ChangeDigest,
    /// The first answer that was made under these changes.
    pub(in crate::guard) epoch: AnswerPlace,
    /// The place of the first answer behind the newest cut of the replay. The next replay begins with this place, so that
    /// every process finds the same cuts; the epoch may be later.
    pub(in crate::guard) replayed: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ChangeDigest {
    count: u32,
    digest: u64,
}

/// All changes of one request.
#[derive(Default)]
pub(in crate::guard) struct SentChanges {
    head: u64,
    edits: Vec<SentChange>,
    records: Vec<SentChange>,
    /// The newest answer, which is sent back for the first time, is edited, or something is inserted directly before it that
    /// was not in its own request. The reasoning in this answer is then stale.
    changes_newest_answer: bool,
}

/// The edits of a request whose changes are digested. What is added to them is digested by itself (records), or is not bound to
/// reasoning (the answer cap).
pub(in crate::guard) struct SealedEdits(Edits);

impl SealedEdits {
    /// Puts the records back among the messages that are `kept`. Leaves out the reasoning before `epoch`, if the model
    /// refuses it.
    pub(in crate::guard) fn put_records_back(
        &mut self,
        injected: &PlacedInjections<'_>,
        kept: &[bool],
        is_cut: bool,
        order: MessageOrder,
        epoch: AnswerPlace,
    ) -> InsertedRecords {
        injected.insert_records(kept, is_cut, order, epoch, &mut self.0)
    }

    /// Lowers every answer cap of the request to `tokens`.
    pub(in crate::guard) fn lower_answer_caps(&mut self, conversation: &Conversation, tokens: u32) {
        conversation.lower_answer_caps(tokens, &mut self.0);
    }

    pub(in crate::guard) fn into_edits(self) -> Edits {
        self.0
    }
}

impl SentHistory {
    /// Moves the epoch to `answer`, so that all reasoning made before it is left out. One reason is a provider that dropped
    /// some of this reasoning, and with it the reasoning behind it: it would drop the same in every request that has it.
    pub fn begin_with(&mut self, answer: AnswerPlace) {
        self.epoch = self.epoch.max(answer);
    }

    /// The place of the first answer that was made under what was sent.
    pub const fn first_answer(&self) -> u32 {
        self.epoch.place
    }

    /// Returns this history for a request that begins with a summary of what `sent` had before `boundary`, so that no
    /// reasoning behind the boundary is stale. `None` if the proxy changed something behind the boundary, or if its changes
    /// to the system text or to the tools differ.
    pub(in crate::guard) fn continue_behind_summary(
        self,
        sent: &Self,
        boundary: u32,
    ) -> Option<Self> {
        let goes_on = self.head == sent.head && sent.epoch.place <= boundary;
        goes_on.then_some(Self {
            epoch: sent.epoch,
            replayed: sent.replayed,
            ..self
        })
    }

    /// Moves the epoch from the end of the last request, `from`, to the place `to`, where the answer to that request is now.
    pub fn realign(&mut self, from: u32, to: u32) {
        for place in [&mut self.epoch.place, &mut self.replayed] {
            if *place >= from {
                *place = to;
            }
        }
    }

    /// Moves the epoch to where its answers stand in a conversation that the client has edited.
    pub fn follow_edits(&mut self, places: &PlaceMap) {
        for place in [&mut self.epoch.place, &mut self.replayed] {
            *place = places.find_boundary(*place);
        }
    }
}

impl ChangeDigest {
    fn from_changes(changes: &[SentChange]) -> Self {
        let mut mix = DigestBuilder::default();
        for change in changes {
            mix.push_digest(b'p', u128::from(change.place));
            mix.push_digest(b'd', change.digest);
        }
        Self {
            count: changes.len() as u32,
            digest: match changes {
                [] => 0,
                _ => mix.finish() as u64,
            },
        }
    }

    /// Whether `now` begins with these changes, and has others only behind the first `sent` messages.
    fn continues_in(self, now: &[SentChange], sent: u32) -> bool {
        let count = self.count as usize;
        let Some((same, new)) = now.split_at_checked(count) else {
            return false;
        };
        Self::from_changes(same) == self && new.iter().all(|change| change.place >= sent)
    }
}

impl SentChanges {
    /// Collects the changes of a request, and seals its edits. `edits`: all edits of the guard, without those that put records
    /// back. `sent`: the number of messages of the last request, without system messages.
    pub(in crate::guard) fn seal(
        view: RequestView<'_>,
        edits: Edits,
        order: &MessageOrder,
        records: Vec<SentChange>,
        tools: ToolSet,
        sent: u32,
    ) -> (SealedEdits, Self) {
        let changes = Self::collect(view, &edits, order, records, tools, sent);
        (SealedEdits(edits), changes)
    }

    fn collect(
        view: RequestView<'_>,
        edits: &Edits,
        order: &MessageOrder,
        records: Vec<SentChange>,
        tools: ToolSet,
        sent: u32,
    ) -> Self {
        let mut this = Self {
            records,
            ..Self::default()
        };
        if edits.is_empty() && this.is_empty() && tools.is_empty() && order.count_moved() == 0 {
            // Most requests: nothing of them is changed.
            return this;
        }
        let conversation = view.conversation;
        let places = count_places(conversation);
        let mut head = DigestBuilder::default();
        if !tools.is_empty() {
            head.push_digest(b't', tools as u128);
        }
        let lists = conversation.tool_lists();
        let system = conversation.items.first();
        let system = system.filter(|item| item.place == ItemPlace::Outside);
        for edit in edits.ordered_edits(&conversation.body) {
            let is_in = |start: u32, end: u32| (start..end).contains(&edit.span.start);
            if is_in(conversation.list.start, conversation.list.end) {
                let at = find_edited_item(conversation, &edit);
                let item = conversation.items.get(at);
                let place = places[at];
                // Also where something is inserted directly before it.
                let is_answer = item.is_some_and(|item| item.author == Author::Model);
                this.changes_newest_answer |= is_answer && place >= sent;
                let item = item.filter(|item| item.span.start <= edit.span.start);
                let digest = digest_edit(conversation, item, &edit);
                this.edits.push(SentChange { place, digest });
            } else if system.is_some_and(|item| is_in(item.span.start, item.span.end)) {
                // Beside the messages, reasoning is bound to the system text and the tools alone.
                head.push_digest(b's', digest_edit(conversation, system, &edit));
            } else if lists
                .iter()
                .any(|list| is_in(list.span.start, list.span.end))
            {
                head.push_digest(b'd', digest_edit(conversation, None, &edit));
            }
        }
        for (from, behind) in order.list_moved() {
            let mut mix = DigestBuilder::default();
            mix.push_digest(b'm', conversation.items[from].digest);
            mix.push_digest(b'p', u128::from(places[behind]));
            let (place, digest) = (places[from], mix.finish());
            this.edits.push(SentChange { place, digest });
        }
        this.edits.sort_by_key(|change| change.place);
        this.head = if head.is_empty() {
            0
        } else {
            head.finish() as u64
        };
        this
    }

    const fn is_empty(&self) -> bool {
        self.head == 0 && self.edits.is_empty() && self.records.is_empty()
    }

    /// Whether neither this request nor the last one was changed.
    pub(in crate::guard) const fn nothing_changed(&self, before: &SentHistory) -> bool {
        let had_none = before.head == 0 && before.edits.count == 0 && before.records.count == 0;
        had_none && self.is_empty()
    }

    /// Whether this request differs from the last one in the part that was sent before: the first `sent` messages.
    /// `unknown`: the place of the newest answer, if it is not known how the request of that answer was sent; any change
    /// before it may then be new.
    pub(in crate::guard) fn change_history(
        &self,
        before: &SentHistory,
        sent: u32,
        unknown: Option<u32>,
    ) -> bool {
        if let Some(last) = unknown {
            let mut changes = self.edits.iter().chain(&self.records);
            return self.head != 0 || changes.any(|change| change.place <= last);
        }
        self.changes_newest_answer
            || self.head != before.head
            || !before.edits.continues_in(&self.edits, sent)
            || !before.records.continues_in(&self.records, sent)
    }

    /// The history after a request with these changes.
    pub(in crate::guard) fn to_history(&self, epoch: AnswerPlace, replayed: u32) -> SentHistory {
        SentHistory {
            head: self.head,
            edits: ChangeDigest::from_changes(&self.edits),
            records: ChangeDigest::from_changes(&self.records),
            epoch,
            replayed,
        }
    }
}

/// The message that an edit changes, or before which it inserts.
fn find_edited_item(conversation: &Conversation, edit: &Edit) -> usize {
    // A message is removed with the comma before it, so that the edit begins in the message before it.
    let last = edit.span.end - u32::from(!edit.span.is_empty());
    conversation.find_item_at(last)
}

/// Digests what an edit makes of a message. The byte position of the edit is not part of the digest: cache markers before it
/// come and go.
fn digest_edit(conversation: &Conversation, item: Option<&Item>, edit: &Edit) -> u128 {
    let blocks = item.map_or(&[][..], |item| conversation.blocks_of(item));
    let before = blocks.partition_point(|block| block.span.start <= edit.span.start);
    let mut mix = DigestBuilder::default();
    mix.push_tag(u8::from(item.is_some()));
    mix.push_digest(b'b', before as u128);
    mix.push_digest(b'n', text::digest_text(&edit.with));
    mix.finish()
}
