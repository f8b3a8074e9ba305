//! What sessions learnt when a provider refused thinking, by their ids.
//!
//! A session's state has it too. But a client that edits its history in each request continues a state from before its
//! edits, which knows nothing of the newest refusal. After a restart such a session is refused once more.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use super::ReasoningMemory;
use crate::store::SessionId;

/// Beyond this the least recently used session is forgotten.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::new(4_096).expect("not zero");

#[derive(Debug)]
pub struct ReasoningLessons(Mutex<LruCache<LessonKey, ReasoningMemory>>);

/// A session, and the names of its provider and model.
type LessonKey = (SessionId, Box<str>, Box<str>);

impl Default for ReasoningLessons {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_SESSIONS)))
    }
}

impl ReasoningLessons {
    pub fn find_lesson(
        &self,
        session: SessionId,
        provider: &str,
        model: &str,
    ) -> Option<ReasoningMemory> {
        let key = (session, provider.into(), model.into());
        self.0.lock().get(&key).copied()
    }

    pub fn note_lesson(
        &self,
        session: SessionId,
        provider: &str,
        model: &str,
        learnt: ReasoningMemory,
    ) {
        let key = (session, provider.into(), model.into());
        self.0.lock().put(key, learnt);
    }
}
