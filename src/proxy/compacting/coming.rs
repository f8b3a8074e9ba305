//! Whether a summary is coming that may make a caution prompt needless, so that the prompt waits.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::{vain::Whose, who};
use crate::{
    compaction, provider::breaker::State, proxy::generation::Generation, wire::chat::Conversation,
};

impl Generation {
    /// Since when the caution prompt that is due with this request waits for a summary, in
    /// milliseconds since 1970; `None` where it does not wait. It waits for
    /// `compaction.timeout_ms` at most, in which a summary is made or fails.
    pub(in crate::proxy) fn caution_waits_since(&self, conversation: &Conversation) -> Option<u64> {
        if !self.recovering.caution_is_due() || !self.summary_is_coming(conversation) {
            return None;
        }
        let state = self.inherited.state.as_ref();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let since = state.and_then(|state| state.caution_waits_since_ms);
        let since = since.unwrap_or(now);
        let most = self.app.config.compaction.timeout.as_millis();
        // A clock that was set back must not prolong the wait.
        (u128::from(now.abs_diff(since)) < most).then_some(since)
    }

    /// Whether a summary was taken over with this request, is being made, or is due with it; only
    /// where compaction is on and works. What a summary that was just taken over does to the level
    /// is known after this request's answer.
    fn summary_is_coming(&self, conversation: &Conversation) -> bool {
        if !self.compaction.is_on() || !self.guards() {
            return false;
        }
        if self.compaction.goes_out_first() {
            return true;
        }
        let seed = self.inherited.session.seed();
        let target = who::target(&self.app, &self.target, seed);
        let reachable = target.provider.breaker.state(Instant::now()) == State::Closed;
        if !reachable || self.app.compacting.is_paused(&target) {
            return false;
        }
        self.compaction.job().is_some() || self.summary_is_due(conversation)
    }

    /// Whether one will be begun with this request, by the estimate of what goes out.
    fn summary_is_due(&self, conversation: &Conversation) -> bool {
        let whose = Whose::of(&self.inherited);
        self.compaction.may_begin()
            && !self.app.compacting.is_in_vain(whose)
            && self.is_past_threshold(self.expected(), conversation)
            && compaction::due(
                conversation,
                &self.policy(),
                &self.plan.memory,
                &self.ours(),
            )
            .is_some()
    }
}
