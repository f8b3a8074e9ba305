//! A refusal in words that no table knows, of a long request: it may be about the length.
//!
//! A request past half of the window, or larger than the last one that its session had answered, is tried once with half of
//! its tokens. Only text is cut: if a cut removed a bad image, the proxy would learn a wrong window. If the smaller request
//! is answered, a limit below the refused one is learnt for this session, and for the account once a second session was
//! refused in the same way. Else nothing is learnt, and the client gets the first error. The wording is logged once, so that
//! a row can be added.

use std::time::{Instant, SystemTime};

use super::{fallbacks::Fallbacks, overflow_retry::Guesses, provider_reply::ProviderReply};
use crate::{
    http::tasks::run_beside_tasks,
    provider::overflow::Overflow,
    proxy::{
        ClientRequest, PlacedRequest, PlannedRequest,
        plan::{halve_texts, log_cuts},
    },
};

/// About how often a body is searched for parts of a wording.
const SEARCHES: usize = 64;

/// The one try with a smaller request, and its outcome.
#[derive(Default)]
pub(super) struct UnknownRefusal {
    was_tried: bool,
    /// The request as it was refused, while the smaller one has no answer.
    refused: Option<Box<PlannedRequest>>,
    wording: String,
    /// The answer for the client if the smaller request is not answered.
    first: Option<ProviderReply>,
}

impl UnknownRefusal {
    /// Plans a smaller request, once. `fallbacks`: their retry budget counts the try; without them nothing is tried. Returns
    /// whether the smaller request is sent.
    pub(super) fn try_smaller(
        &mut self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        wording: &str,
        fallbacks: Option<&mut Fallbacks>,
        guesses: &mut Guesses,
    ) -> bool {
        let planned = placed.planned.as_deref();
        let followed = request.followed_conversation();
        let Some(((followed, planned), fallbacks)) = followed.zip(planned).zip(fallbacks) else {
            return false;
        };
        let may_try = !self.was_tried && is_long(planned);
        if !may_try || !fallbacks.budget.has_attempts_left(Instant::now()) {
            return false;
        }
        let Some(smaller) = halve_texts(followed, planned) else {
            return false;
        };
        let mut refused = planned.describe_refusal(&Overflow::default());
        let (learnt, key) = (&request.app.registry.learnt, placed.target.lesson_key());
        // One session's guess holds for that session.
        refused.by_one_host |= !learnt.is_known_to_another_session(&key, SystemTime::now());
        guesses.refused.push(refused);
        fallbacks.budget.count_attempt();
        log_cuts(followed.session.inherited.session, &smaller);
        self.was_tried = true;
        wording.clone_into(&mut self.wording);
        self.refused = placed.planned.take();
        placed.set_plan(followed, smaller);
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
        placed: &mut PlacedRequest,
        guesses: &mut Guesses,
    ) -> Option<ProviderReply> {
        let refused = self.refused.take()?;
        guesses.refused.clear();
        self.warn_of_wording(request, placed);
        if let Some(followed) = request.followed_conversation() {
            placed.set_plan(followed, *refused);
        }
        self.first.take()
    }

    /// Chooses the answer for the client: the first refusal, if the smaller request was not answered.
    pub(super) fn choose_answer(
        &mut self,
        request: &ClientRequest,
        placed: &mut PlacedRequest,
        guesses: &mut Guesses,
        reply: ProviderReply,
    ) -> ProviderReply {
        if reply.status().is_success() {
            if self.refused.take().is_some() {
                self.warn_of_wording(request, placed);
            }
            return reply;
        }
        self.give_up(request, placed, guesses).unwrap_or(reply)
    }

    fn warn_of_wording(&self, request: &ClientRequest, placed: &PlacedRequest) {
        let body = request.parsed.conversation.as_ref().map(|it| &it.body[..]);
        let (registry, body) = (&request.app.registry, body.unwrap_or_default());
        run_beside_tasks(body.len() * SEARCHES, || {
            registry.warn_unknown_wording(&placed.target, &self.wording, body);
        });
    }
}

/// Whether a request is so long that its length may be why it was refused.
fn is_long(planned: &PlannedRequest) -> bool {
    let (sent, target) = (planned.expected_tokens(), &planned.target);
    let window = target.window.input.unwrap_or(u32::MAX);
    let window = window.min(target.window.tokens);
    sent > window / 2 || (target.answered > 0 && sent > target.answered)
}
