//! Digests what the proxy puts, takes or changes in the part of a conversation that was sent before, and keeps the first
//! answer that was made under it, the *epoch*.
//!
//! Newer models bind their reasoning to all that stood before it. Reasoning made before the newest change by the proxy
//! is stale: one provider refuses it, another leaves it out. All that was made since stays, byte for byte. Whatever
//! changes the part already sent moves the digest, and with it the epoch, so that a mechanism of the guard need not know of
//! reasoning to be right; for the replay to count its tokens, `Replay::drop_reasoning` is called by deep cuts and early clearing.
//! Edits that are made after [`SentChanges::collect`] are not seen. What is kept is always the end of the sequence, and
//! nothing is put back, since an epoch never falls.
//!
//! The client's own bytes are not part of the digest: what the client changes is not for the proxy to judge.

use serde::{Deserialize, Serialize};

use crate::{
    conversation::{
        Author, Conversation, Item, ItemPlace,
        digest::DigestBuilder,
        edit::{Edit, Edits},
    },
    guard::{
        fold::memory::Recall,
        grammar::message_order::MessageOrder,
        inject::{injections::ToolSet, placed_injections::SentRecord},
        request::{
            epoch::{Epoch, count_places},
            view::RequestView,
        },
    },
    json::text,
};

/// Digests of what the proxy changed in the last request, and the first answer made under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentHistory {
    /// Of what stands before the messages: edits of the system text, and the proxy's tools.
    head: u64,
    /// Of the messages.
    edits: ChangeDigest,
    /// Of prompts, rounds, calls and texts that were put back.
    records: ChangeDigest,
    /// The first answer that was made under it.
    pub(in crate::guard) epoch: Epoch,
    /// The place of the first answer behind the newest cut of the replay. The replay begins with it, so that every process
    /// finds the same cuts; the epoch may be later.
    pub(in crate::guard) replayed: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ChangeDigest {
    count: u32,
    digest: u64,
}

/// A change of what the client sent.
#[derive(Clone, Copy)]
struct Change {
    /// The client's messages before it, without system messages.
    place: u32,
    digest: u128,
}

/// All changes of one request.
#[derive(Default)]
pub(in crate::guard) struct SentChanges {
    head: u64,
    edits: Vec<Change>,
    records: Vec<Change>,
    /// The newest answer, which goes out for the first time, is changed, or something stands directly before it that was
    /// not sent with its request, so that reasoning in it is stale.
    changes_newest_answer: bool,
}

impl SentHistory {
    /// Whether nothing but the client's own bytes went out.
    fn changes_nothing(&self) -> bool {
        self.head == 0 && self.edits.count == 0 && self.records.count == 0
    }

    /// Leaves out all reasoning made before `answer`: the provider dropped some of it, and what stands behind that with it,
    /// as it would in each request that has it.
    pub fn begin_with(&mut self, answer: Epoch) {
        self.epoch = self.epoch.max(answer);
    }

    /// Moves the epoch from the end of the last request to where its answer stands now.
    pub fn realign(&mut self, from: u32, to: u32) {
        for place in [&mut self.epoch.place, &mut self.replayed] {
            if *place >= from {
                *place = to;
            }
        }
    }
}

impl ChangeDigest {
    fn from_changes(changes: &[Change]) -> Self {
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
    fn continues_in(self, now: &[Change], sent: u32) -> bool {
        let count = self.count as usize;
        let Some((same, new)) = now.split_at_checked(count) else {
            return false;
        };
        Self::from_changes(same) == self && new.iter().all(|change| change.place >= sent)
    }
}

impl SentChanges {
    /// `edits`: all of the guard's, without those by which records are put back.
    pub(in crate::guard) fn collect(
        view: RequestView<'_>,
        edits: &Edits,
        order: &MessageOrder,
        records: &[SentRecord],
        tools: ToolSet,
        recall: &Recall,
    ) -> Self {
        let mut this = Self::default();
        if edits.is_empty() && records.is_empty() && tools.is_empty() && order.count_moved() == 0 {
            // Most requests: nothing of them is changed.
            return this;
        }
        let conversation = view.conversation;
        let places = count_places(conversation);
        let sent = count_sent_messages(recall);
        let mut head = DigestBuilder::default();
        if !tools.is_empty() {
            head.push_digest(b't', tools as u128);
        }
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
                this.edits.push(Change { place, digest });
            } else if system.is_some_and(|item| is_in(item.span.start, item.span.end)) {
                // Beside the messages, reasoning is bound to the system text and the tools alone.
                head.push_digest(b's', digest_edit(conversation, system, &edit));
            }
        }
        for (from, behind) in order.list_moved() {
            let mut mix = DigestBuilder::default();
            mix.push_digest(b'm', conversation.items[from].digest);
            mix.push_digest(b'p', u128::from(places[behind]));
            let (place, digest) = (places[from], mix.finish());
            this.edits.push(Change { place, digest });
        }
        this.edits.sort_by_key(|change| change.place);
        this.records.extend(records.iter().map(|record| Change {
            place: record.place,
            digest: record.digest,
        }));
        this.head = match head.is_empty() {
            true => 0,
            false => head.finish() as u64,
        };
        this
    }

    /// The history after this request. `replayed`: reasoning of answers before this one is left out whatever was sent.
    pub(in crate::guard) fn continue_history(
        &self,
        view: RequestView<'_>,
        recall: &Recall,
        replayed: Epoch,
    ) -> SentHistory {
        let before = recall.history;
        let resets = recall.leaves_out_reasoning || self.changes_history(view.conversation, recall);
        let epoch = match resets {
            true => find_next_answer(view.conversation, recall),
            false => before.epoch.max(replayed),
        };
        SentHistory {
            head: self.head,
            edits: ChangeDigest::from_changes(&self.edits),
            records: ChangeDigest::from_changes(&self.records),
            epoch,
            replayed: replayed.place,
        }
    }

    /// Whether anything differs in the part that was sent before.
    fn changes_history(&self, conversation: &Conversation, recall: &Recall) -> bool {
        let before = recall.history;
        let changes_nothing = self.head == 0 && self.edits.is_empty() && self.records.is_empty();
        if changes_nothing && before.changes_nothing() {
            return false;
        }
        if let Some(last) = find_unknown_answer(conversation, recall) {
            // How the newest answers were asked for is not known: any change before them may be new.
            let mut changes = self.edits.iter().chain(&self.records);
            return self.head != 0 || changes.any(|change| change.place <= last);
        }
        let sent = count_sent_messages(recall);
        self.changes_newest_answer
            || self.head != before.head
            || !before.edits.continues_in(&self.edits, sent)
            || !before.records.continues_in(&self.records, sent)
    }
}

impl Recall {
    /// Whether the session knows how the newest answer was asked for, so that reasoning that goes out is not stale.
    pub fn knows_newest_answer(&self, conversation: &Conversation) -> bool {
        find_unknown_answer(conversation, self).is_none()
    }
}

/// Messages of the last request whose plan is remembered, without system messages.
fn count_sent_messages(recall: &Recall) -> u32 {
    match &recall.sent {
        Some(sent) => sent.planned,
        None => recall.messages as u32,
    }
}

/// The place of the newest answer, where the session does not know how it was asked for: its state is lost or older,
/// or the guard was off.
fn find_unknown_answer(conversation: &Conversation, recall: &Recall) -> Option<u32> {
    if recall.sent.is_some() {
        return None;
    }
    let sent = recall.messages as u32;
    let places = count_places(conversation);
    let answers = conversation.items.iter().zip(&places);
    let answers = answers.filter(|(item, _)| item.author == Author::Model);
    let mut answers = answers.map(|(_, &place)| place).filter(|&it| it >= sent);
    let newest = answers.next_back()?;
    let is_known = sent > 0 && recall.memory.planned >= sent && answers.next_back().is_none();
    (!is_known).then_some(newest)
}

/// The place of the answer to this request.
pub(in crate::guard) fn find_next_answer(conversation: &Conversation, recall: &Recall) -> Epoch {
    let place = count_places(conversation).last().copied().unwrap_or(0);
    Epoch {
        place,
        round: recall.injections.count_rounds(place),
    }
}

/// The message that an edit changes, or before which it inserts.
fn find_edited_item(conversation: &Conversation, edit: &Edit) -> usize {
    // A message is removed with the comma before it, so that the edit begins in the message before it.
    let last = edit.span.end - u32::from(!edit.span.is_empty());
    conversation.find_item_at(last)
}

/// Digests what an edit makes of a message. The byte where it stands is not part of it: cache markers before it come and go.
fn digest_edit(conversation: &Conversation, item: Option<&Item>, edit: &Edit) -> u128 {
    let blocks = item.map_or(&[][..], |item| conversation.blocks_of(item));
    let before = blocks.partition_point(|block| block.span.start <= edit.span.start);
    let mut mix = DigestBuilder::default();
    mix.push_tag(u8::from(item.is_some()));
    mix.push_digest(b'b', before as u128);
    mix.push_digest(b'n', text::digest_text(&edit.with));
    mix.finish()
}
