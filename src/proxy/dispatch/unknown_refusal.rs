//! A refusal in words that no table knows, of a long request: it may be about the length.
//!
//! A request past half of the window, or larger than the last one that its session had answered, is tried once with half of
//! its tokens. Only text is cut: if a cut removed a bad image, the proxy would learn a wrong window. If the smaller request
//! is answered, a limit below the refused one is learnt for this session, and for the account once a second session was
//! refused in the same way. Else nothing is learnt, and the client gets the first error. The wording is logged once, so that
//! a row can be added.

use std::time::{Instant, SystemTime};

use super::{
    fallbacks::Fallbacks, overflow_retry::Guesses, provider_reply::ProviderReply, refusal::Refusal,
};
use crate::{
    http::tasks::run_beside_tasks,
    provider::{Window, overflow::Overflow},
    proxy::{ClientRequest, PlannedRequest, ProviderRequest, plan::halve_texts},
};

/// About how often a body is searched for parts of a wording.
const SEARCHES: usize = 64;

/// The one try with a smaller request, and its outcome.
#[derive(Default)]
pub(super) struct UnknownRefusal {
    /// The request as it was refused, while the smaller one has no answer.
    refused: Option<Box<PlannedRequest>>,
    wording: String,
    /// The answer for the client if the smaller request is not answered.
    first: Option<ProviderReply>,
}

impl UnknownRefusal {
    /// Plans a smaller request. `fallbacks`: their retry budget counts the try; without them nothing is tried. Returns
    /// whether the smaller request is sent.
    pub(super) fn try_smaller(
        &mut self,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        refusal: &Refusal,
        fallbacks: Option<&mut Fallbacks>,
        guesses: &mut Guesses,
    ) -> bool {
        let Refusal::Unknown { wording, .. } = refusal else {
            return false;
        };
        let planned = prepared.planned.as_deref();
        let followed = request.followed_conversation();
        let Some(((followed, planned), fallbacks)) = followed.zip(planned).zip(fallbacks) else {
            return false;
        };
        let (window, answered) = (planned.target.window, planned.target.answered);
        if !is_long(planned.expected_tokens(), window, answered)
            || !fallbacks.budget.has_attempts_left(Instant::now())
        {
            return false;
        }
        let Some(smaller) = halve_texts(followed, planned) else {
            return false;
        };
        let mut refused = planned.describe_refusal(&Overflow::default());
        let (learnt, key) = (&request.app.registry.learnt, prepared.target.lesson_key());
        // One session's guess holds for that session.
        refused.by_one_host |= !learnt.is_known_to_another_session(&key, SystemTime::now());
        guesses.refused.push(refused);
        fallbacks.budget.count_attempt();
        wording.clone_into(&mut self.wording);
        self.refused = prepared.planned.clone();
        prepared.set_plan(followed, smaller);
        true
    }

    /// Keeps the refusal for which a smaller request is tried now.
    pub(super) fn keep_refusal(&mut self, reply: ProviderReply) {
        if self.refused.is_some() {
            self.first.get_or_insert(reply);
        }
    }

    /// Ends the try, since a later refusal has given the reason after all.
    pub(super) fn forget(&mut self) {
        (self.refused, self.first) = (None, None);
    }

    /// Ends the try without an answer: restores the plan of the refused request, and learns nothing. Returns the first
    /// refusal.
    pub(super) fn give_up(
        &mut self,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        guesses: &mut Guesses,
    ) -> Option<ProviderReply> {
        let refused = self.refused.take()?;
        guesses.refused.clear();
        self.warn_of_wording(request, prepared);
        if let Some(followed) = request.followed_conversation() {
            prepared.restore_plan(followed, *refused);
        }
        self.first.take()
    }

    /// Chooses the answer for the client: the first refusal, if the smaller request was not answered.
    pub(super) fn choose_answer(
        &mut self,
        request: &ClientRequest,
        prepared: &mut ProviderRequest,
        guesses: &mut Guesses,
        reply: ProviderReply,
    ) -> ProviderReply {
        if reply.status().is_success() {
            if self.refused.take().is_some() {
                self.warn_of_wording(request, prepared);
            }
            return reply;
        }
        self.give_up(request, prepared, guesses).unwrap_or(reply)
    }

    fn warn_of_wording(&self, request: &ClientRequest, prepared: &ProviderRequest) {
        let body = request.parsed.conversation.as_ref().map(|it| &it.body[..]);
        let (registry, body) = (&request.app.registry, body.unwrap_or_default());
        run_beside_tasks(body.len() * SEARCHES, || {
            registry.warn_unknown_wording(&prepared.target, &self.wording, body);
        });
    }
}

/// Whether a request of so many tokens is so long that its length may be why it was refused. `answered`: the tokens of the
/// session's last request that was answered; 0 if there is none.
fn is_long(sent: u32, window: Window, answered: u32) -> bool {
    let most = window.input.unwrap_or(u32::MAX).min(window.tokens);
    sent > most / 2 || (answered > 0 && sent > answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::WindowSource;

    #[test]
    #[rustfmt::skip]
    fn a_request_is_long_past_half_of_the_window_or_past_the_last_answered_one() {
        let window = |input| Window { tokens: 10_000, input, taught: None, source: WindowSource::Config };
        for (name, sent, input, answered, expected) in [
            ("half of the window", 5_000, None, 0, false),
            ("more than half", 5_001, None, 0, true),
            ("more than half of the largest prompt", 3_001, Some(6_000), 0, true),
            ("a largest prompt beyond the window", 5_001, Some(60_000), 0, true),
            ("as long as one that was answered", 2_000, None, 2_000, false),
            ("longer than one that was answered", 2_001, None, 2_000, true),
            ("shorter, but past half", 6_000, None, 8_000, true),
        ] {
            assert_eq!(is_long(sent, window(input), answered), expected, "{name}");
        }
    }
}
