//! Whether the provider's prompt cache of a conversation is gone, so that a cut costs nothing now.

use std::sync::atomic::Ordering;

use crate::{
    conversation::Conversation, provider::Target, session::InheritedSession, unix_time::unix_ms_now,
};

/// Whether the cache of the session's last request is gone: that request began longer ago than the provider's caches live,
/// or an engine on this machine was unreachable since. False without a stored state, and after another model's answer.
pub(super) fn is_cache_cold(
    conversation: &Conversation,
    inherited: &InheritedSession,
    target: &Target,
) -> bool {
    let state = inherited.state.as_ref();
    let Some(state) = state.filter(|state| state.asked_ms > 0) else {
        return false;
    };
    let provider = &target.provider;
    if !super::is_same_model(inherited, target) {
        return false;
    }
    let was_away = || provider.unreachable_ms.load(Ordering::Relaxed) > state.asked_ms;
    if provider.is_on_this_machine() && was_away() {
        return true;
    }
    let now = unix_ms_now();
    let profile = target.profile();
    let mut asked = profile.asked_cache_lives.iter();
    let asked = asked.find(|(ttl, _)| conversation.asks_for_cache_of(ttl));
    let life = asked.map(|(_, life)| *life).or(profile.cache_life_s);
    life.is_some_and(|life| now.saturating_sub(state.asked_ms) > 1_000 * u64::from(life))
}
