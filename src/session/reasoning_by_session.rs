//! What this process remembers of the reasoning in sessions, in addition to their states.
//!
//! - Who answered which part of a session, if several models did: a model cannot read reasoning that another provider,
//!   or a model of another family, has signed or encrypted. After a restart, all answers count as those of the model
//!   that gave the last one.
//! - What a session learnt when a provider refused thinking. The session's state holds the same, but a client that
//!   edits its history in each request continues a state from before the refusal. After a restart, the provider
//!   refuses such a session once more.
//! - Which answers in the middle of a session have reasoning that no longer fits, although the reasoning before them does.
//!   After a restart, the provider refuses the reasoning of these answers once more, and the earlier reasoning no more than
//!   before.
//! - Which reasoning the model did not read, as the session's last answer reported, since OpenAI repeats this report. After
//!   a restart, the same report counts once more.

use std::{num::NonZeroUsize, ops::Range};

use lru::LruCache;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::lineage::Lineage;
use crate::{
    config::profile::is_other_family,
    format::{InputChanges, block_binding::MismatchField},
    store::SessionId,
};

/// Most entries of each map; beyond this the least recently used entry is forgotten.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::new(4_096).expect("not zero");
/// Parts of one session that are remembered. If there are more, the newest are kept.
const MAX_CHANGES: usize = 32;

/// A model of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Maker {
    pub provider: Box<str>,
    pub model: Box<str>,
}

impl Maker {
    /// Whether this model cannot read reasoning that the other one has signed or encrypted.
    pub fn is_foreign_to(&self, other: &Self) -> bool {
        self.provider != other.provider || is_other_family(&self.model, &other.model)
    }
}

/// What a session's model taught about the reasoning that clients send back. In a state, it holds for the state's
/// model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningMemory {
    /// The model refused reasoning, mostly because messages before the reasoning had changed. This can be so even if no rule
    /// for the model's name says that its reasoning is bound to these messages.
    pub is_bound: bool,
    /// Each request asks the provider, by this field, to drop such reasoning: the provider does not remember that an
    /// earlier request asked for that.
    pub drop_by: Option<MismatchField>,
    /// The running turn, as [`find_running_turn`](crate::guard::running_turn::find_running_turn) counts it, if its
    /// thinking was refused although the client asks for turns that begin with thinking. Until this turn ends, the
    /// model is asked not to think.
    pub turn_without_thinking: Option<u32>,
    /// Reasoning had to be left out a second time: the client changes its history in each request. From then on no
    /// reasoning is sent.
    pub leaves_out_all: bool,
}

#[derive(Debug)]
pub struct ReasoningBySession {
    makers: Mutex<LruCache<SessionId, Vec<Answered>>>,
    lessons: Mutex<LruCache<(SessionId, Maker), ReasoningMemory>>,
    /// The answers whose reasoning no longer fitted, although the reasoning before them did.
    gaps: Mutex<LruCache<SessionId, ReasoningGap>>,
    /// The ids of reasoning that the newest answer said the model did not read.
    unread: Mutex<LruCache<SessionId, Vec<u64>>>,
}

/// Answers whose reasoning a model cannot read.
#[derive(Clone, Debug, Default)]
pub struct ForeignReasoning {
    /// The places of these answers; the last range may have no end.
    pub places: Vec<Range<u32>>,
    /// The newest answer is one of them.
    pub has_newest: bool,
}

/// Where reasoning does not fit any more, in the conversation that begins so.
#[derive(Clone, Debug)]
struct ReasoningGap {
    opening: u64,
    places: Range<u32>,
}

/// The model that gave the answers from a place on. The place of an answer is the number of the client's messages
/// before it, without system messages.
#[derive(Clone, Debug)]
struct Answered {
    from: u32,
    by: Maker,
}

impl Default for ReasoningBySession {
    fn default() -> Self {
        Self {
            makers: Mutex::new(LruCache::new(MAX_SESSIONS)),
            lessons: Mutex::new(LruCache::new(MAX_SESSIONS)),
            gaps: Mutex::new(LruCache::new(MAX_SESSIONS)),
            unread: Mutex::new(LruCache::new(MAX_SESSIONS)),
        }
    }
}

impl ReasoningBySession {
    pub fn find_lesson(&self, session: SessionId, model: Maker) -> Option<ReasoningMemory> {
        self.lessons.lock().get(&(session, model)).copied()
    }

    pub fn note_lesson(&self, session: SessionId, model: Maker, learnt: ReasoningMemory) {
        self.lessons.lock().put((session, model), learnt);
    }

    /// The places of answers whose reasoning is left out, although the reasoning before them is kept. They belong to one
    /// conversation of the session, by its opening; another conversation has none. The places are forgotten if the
    /// conversation was taken back to before their end.
    pub fn find_left_out_places(
        &self,
        session: SessionId,
        lineage: &Lineage,
    ) -> Option<Range<u32>> {
        let mut gaps = self.gaps.lock();
        let gap = gaps.get(&session)?;
        let places = gap.places.clone();
        if gap.opening != lineage.opening {
            return None;
        }
        if lineage.messages < places.end {
            gaps.pop(&session);
            return None;
        }
        Some(places)
    }

    pub fn note_left_out_places(&self, session: SessionId, lineage: &Lineage, places: Range<u32>) {
        let opening = lineage.opening;
        self.gaps
            .lock()
            .put(session, ReasoningGap { opening, places });
    }

    /// Marks the changes that the session's previous answer reported too.
    pub fn mark_repeated(&self, session: SessionId, changes: &mut InputChanges) {
        let mut unread = self.unread.lock();
        if !changes.is_empty() || unread.contains(&session) {
            changes.mark_repeated(unread.get_or_insert_mut(session, Vec::new));
        }
    }

    /// Notes which model gave the answer at `place`. The model `before` gave the previous answer.
    pub fn note_answer(&self, session: SessionId, place: u32, before: Option<Maker>, by: Maker) {
        let mut sessions = self.makers.lock();
        let is_same = before
            .as_ref()
            .is_none_or(|before| !by.is_foreign_to(before));
        if is_same && !sessions.contains(&session) {
            return;
        }
        let parts = sessions.get_or_insert_mut(session, Vec::new);
        parts.retain(|part| part.from < place);
        if parts.is_empty() {
            parts.extend(before.map(|by| Answered { from: 0, by }));
        }
        if parts.last().is_none_or(|last| by.is_foreign_to(&last.by)) {
            parts.push(Answered { from: place, by });
        }
        if parts.len() > MAX_CHANGES {
            parts.remove(0);
        }
    }

    /// The answers whose reasoning the `reader` cannot read. The model `last` gave the session's last answer, or is to give the
    /// first one.
    pub fn list_foreign(
        &self,
        session: SessionId,
        last: &Maker,
        reader: &Maker,
    ) -> ForeignReasoning {
        let mut sessions = self.makers.lock();
        let only = [Answered {
            from: 0,
            by: last.clone(),
        }];
        let known = sessions.get(&session).filter(|parts| !parts.is_empty());
        let parts = known.map_or(&only[..], |parts| parts);
        // The last part has no end yet.
        let ends = parts[1..].iter().map(|part| part.from).chain([u32::MAX]);
        let is_foreign = |part: &Answered| reader.is_foreign_to(&part.by);
        let foreign = parts.iter().zip(ends).filter(|(part, _)| is_foreign(part));
        ForeignReasoning {
            places: foreign.map(|(part, end)| part.from..end).collect(),
            has_newest: parts.last().is_some_and(is_foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::session::{
        ClientIdentity, Tenants,
        installation_secret::InstallationSecret,
        tests::fixture::{assistant, conversation, user},
    };

    fn maker(provider: &str, model: &str) -> Maker {
        Maker {
            provider: provider.into(),
            model: model.into(),
        }
    }

    #[test]
    fn places_hold_for_one_conversation_until_it_is_taken_back() {
        let tenants = Tenants::new(InstallationSecret::from_bytes([1; 32]));
        let tenant = tenants.derive_tenant(ClientIdentity::Named("a"), &HeaderMap::new(), None);
        let lineage = |opening: &str, rounds: usize| {
            let mut messages = vec![user(opening)];
            for _ in 0..rounds {
                messages.extend([assistant("Well."), user("On.")]);
            }
            Lineage::from_conversation(&conversation(&messages), &tenant)
        };
        let (memory, session) = (ReasoningBySession::default(), SessionId::default());
        let find = |lineage: &Lineage| memory.find_left_out_places(session, lineage);
        memory.note_left_out_places(session, &lineage("A task.", 4), 3..9);
        assert_eq!(find(&lineage("A task.", 4)), Some(3..9));
        assert_eq!(find(&lineage("Another one.", 8)), None);
        assert_eq!(find(&lineage("A task.", 8)), Some(3..9));
        assert_eq!(find(&lineage("A task.", 2)), None);
        assert_eq!(find(&lineage("A task.", 8)), None, "it was taken back");
    }

    #[test]
    fn each_part_is_foreign_to_the_others() {
        let (makers, session) = (ReasoningBySession::default(), SessionId::default());
        let (home, away) = (maker("a", "gpt-6"), maker("b", "gpt-6"));
        let list = |last: &Maker, reader: &Maker| {
            let foreign = makers.list_foreign(session, last, reader);
            let ends = foreign.places.iter().map(|it| (it.start, it.end));
            ends.collect::<Vec<_>>()
        };
        assert_eq!(list(&home, &home), []);
        assert_eq!(list(&home, &away), [(0, u32::MAX)]);
        makers.note_answer(session, 1, None, home.clone());
        makers.note_answer(session, 3, Some(home.clone()), home.clone());
        assert_eq!(list(&home, &home), []);
        makers.note_answer(session, 5, Some(home.clone()), away.clone());
        assert_eq!(list(&away, &home), [(5, u32::MAX)]);
        assert_eq!(list(&away, &away), [(0, 5)]);
        makers.note_answer(session, 7, Some(away.clone()), home.clone());
        assert_eq!(list(&home, &home), [(5, 7)]);
        // Another branch from before the change.
        makers.note_answer(session, 5, Some(home.clone()), home.clone());
        assert_eq!(list(&home, &home), []);
        // A model of another family at the same provider.
        assert_eq!(list(&home, &maker("a", "claude-opus-5-5")), [(0, u32::MAX)]);
    }
}
