//! Requests that repeat a session's last one: each goes out as that one did.
//!
//! In Messages, a request with the `fallback_credit_token` of a refusal repeats the refused one at another model. Only what is
//! sent as it was has the credit. It is a turn of the session like any other.
//!
//! All others keep the provider's cache warm.
//! Clients that repeat a request: pi (a cap of 1 token), OpenAI's and Codex' `prewarm`, Messages with a cap of 0. Cut by
//! their own plan, they would fill the cache with a prompt that no request has. They store no state and move no clock.

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
/// restart, or with other settings, a repeat is planned as any request. If it says that it fills the cache, it still stores
/// nothing.
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

    /// Remembers a request as it was sent, unless it repeats one to warm a cache, or asks for a summary of the same messages.
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

/// Plans a repeat as the request that it repeats; `None` if that one went to another target (with a credit: to another
/// provider), or in another mode. A window that is too small for its plan is fitted.
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
    let planned_for = match is_same || is_smaller {
        true => target,
        false => &before.target,
    };
    let mut planned = PlannedRequest {
        target: planned_for.clone(),
        ..before.clone()
    };
    keep_cuts(&mut planned);
    planned.asked_ms = unix_ms_now();
    let mut planned = replan_request(followed, planned);
    if !is_same {
        planned.target = target.clone();
        let policy = planned.build_policy(&followed.session.app);
        planned.limits = level_limits(followed.conversation, &policy, target, &planned.knowledge);
    }
    Some(planned)
}
