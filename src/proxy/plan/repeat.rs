//! Requests that repeat a session's last request. Each is sent as the last request was sent.
//!
//! In Messages, a request with the `fallback_credit_token` of a refusal repeats the refused request at another model. Only a
//! prompt that is sent as before has the credit. Such a request belongs to the session like any other.
//!
//! All other repeats keep the provider's cache warm. Clients that send them: pi (a cap of 1 token), OpenAI's and Codex'
//! `prewarm`, Messages with a cap of 0. If they were cut by a plan of their own, they would fill the cache with a prompt
//! that no other request has. They store no state and do not advance the clock.

use std::{num::NonZeroUsize, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;

use super::{PlannedRequest, keep_cuts, level_limits, replan_request};
use crate::{
    conversation::edit::Edits, provider::Target, proxy::FollowedConversation, store::SessionId,
    unix_time::unix_ms_now,
};

/// Requests that are remembered; beyond this the least recently used one is forgotten. One takes some kilobytes, and at
/// most twice what the state of its session takes.
const MAX_REQUESTS: NonZeroUsize = NonZeroUsize::new(512).expect("not zero");

/// The last answered requests of sessions, by the digest of what their prompts are made of. Kept in memory only: after a
/// restart, or with other settings, a repeat is planned like any other request. If it says that it only fills the cache, it
/// still stores no state.
pub struct LastRequests(Mutex<LruCache<u128, Arc<LastRequest>>>);

/// A request that was answered.
pub struct LastRequest {
    pub session: SessionId,
    planned: PlannedRequest,
}

impl LastRequest {
    pub fn is_guarded(&self) -> bool {
        self.planned.is_guarded()
    }
}

impl Default for LastRequests {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_REQUESTS)))
    }
}

impl LastRequests {
    pub fn find(&self, digest: u128) -> Option<Arc<LastRequest>> {
        self.0.lock().get(&digest).cloned()
    }

    /// Remembers a request as it was sent, unless it stores no state (as a repeat that warms a cache), or asks for a summary
    /// of the same messages.
    pub fn note_request(&self, followed: FollowedConversation<'_>, planned: &PlannedRequest) {
        let inherited = &followed.session.inherited;
        let is_other = followed.conversation.asks_to_compact();
        if is_other || !inherited.lineage.stores_state() {
            return;
        }
        let digest = inherited.lineage.digest_prompt(followed.conversation);
        let mut last = LastRequest {
            session: inherited.session,
            planned: planned.clone(),
        };
        last.planned.plan.edits = Edits::default();
        self.0.lock().put(digest, Arc::new(last));
    }
}

/// Plans a repeat like the request that it repeats. Returns `None` if that request went to another target (with a credit: to
/// another provider), or in another mode. If the target's window is smaller, the request is fitted to it.
pub(super) fn plan_repeat(
    followed: FollowedConversation<'_>,
    last: &LastRequest,
    target: &Target,
) -> Option<PlannedRequest> {
    let (before, mode) = (&last.planned, followed.session.options.mode);
    let is_same = before.target.id() == target.id();
    let may_differ = || followed.conversation.redeems_credit();
    if before.mode != mode
        || before.target.provider.endpoint != target.provider.endpoint
        || !is_same && !may_differ()
    {
        return None;
    }
    let is_smaller = target.window.tokens < before.target.window.tokens;
    let planned_for = if is_same || is_smaller {
        target
    } else {
        &before.target
    };
    let mut planned = PlannedRequest {
        target: planned_for.clone(),
        ..before.clone()
    };
    keep_cuts(&mut planned);
    planned.asked_ms = unix_ms_now();
    // With the cuts that were made without it, the summary that was left out could fit now.
    let left_out = planned.compaction.left_out;
    let summary = planned.compaction.memory.summary.take_if(|_| left_out);
    let mut planned = replan_request(followed, planned);
    if summary.is_some() {
        (
            planned.compaction.memory.summary,
            planned.compaction.left_out,
        ) = (summary, left_out);
    }
    if !is_same {
        planned.target = target.clone();
        let policy = planned.build_policy(&followed.session.app);
        planned.limits = level_limits(followed.conversation, &policy, target, &planned.knowledge);
    }
    Some(planned)
}
