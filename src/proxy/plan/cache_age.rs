//! Whether the provider's prompt cache of a conversation is gone, so that a cut costs nothing now.

use std::{sync::atomic::Ordering, time::SystemTime};

use memchr::memmem;

use crate::{
    conversation::Conversation,
    provider::{Target, learnt_windows::wall_ms},
    session::InheritedSession,
};

/// Whether the cache of the session's last request is gone: that request began longer ago than the provider's caches
/// live, or an engine on this machine was away since. Not without a stored state, and not after another model's answer.
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
    let now = wall_ms(SystemTime::now());
    let profile = provider.config.profile;
    let marked = profile
        .marked_cache_life_s
        .filter(|_| asks_for_an_hour(conversation));
    let life = marked.or(profile.cache_life_s);
    life.is_some_and(|life| now.saturating_sub(state.asked_ms) > 1_000 * u64::from(life))
}

/// Whether a cache breakpoint says `"ttl": "1h"`.
fn asks_for_an_hour(conversation: &Conversation) -> bool {
    let mut marked = conversation.blocks.iter().filter(|block| block.marked);
    marked.any(|block| memmem::find(conversation.span_bytes(block.span), br#""1h""#).is_some())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::asks_for_an_hour;
    use crate::format::chat::index_body;

    #[test]
    fn a_breakpoint_may_ask_for_an_hour() {
        let asks = |part: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
            asks_for_an_hour(&index_body(Bytes::from(body)).unwrap())
        };
        let marker = r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#;
        assert!(asks(&format!(r#"{{"type":"text","text":"x",{marker}}}"#)));
        let short = r#""cache_control":{"type":"ephemeral"}"#;
        assert!(!asks(&format!(r#"{{"type":"text","text":"x",{short}}}"#)));
        // The text may speak of it.
        let text = r#""text":"{\"ttl\":\"1h\"}""#;
        assert!(!asks(&format!(r#"{{"type":"text",{text},{short}}}"#)));
        assert!(!asks(r#"{"type":"text","text":"x"}"#));
    }
}
