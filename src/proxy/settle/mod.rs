//! The end of an answer: the usage becomes a level, the calibration learns, recovery's clock advances, a summary
//! begins if one is due, and the new state is stored before the end of the answer is released. What was learnt is
//! published to other replicas, and the session's change to listeners. If there is no answer, or if it broke off, the
//! session's state stays as it was, and the provider's failure is counted.

mod generation_stats;
mod next_state;
mod silent_cut;

use std::time::Instant;

use async_trait::async_trait;
use http::HeaderMap;

use self::{
    generation_stats::note_generation, next_state::build_next_state, silent_cut::detect_silent_cut,
};
use crate::{
    conversation::answer_digest,
    proxy::{
        ClientRequest, JudgedAnswer, PlannedRequest, ProviderRequest, SessionContext,
        judged_answer::reported_tokens,
        plan::{last_answering_model, target_model},
        response_headers::{build_end_headers, stream_comment},
        summary::{SummarySource, begin_summary_after, keep_for_summary, run_summary},
    },
    relay::{AnswerDriver, ModelAnswer, PrecedingText, ResponseSummary, StreamFooter},
};

/// The parts of a request that are kept for the end of its streamed answer: its session and plan, and its body only if a
/// summary may need the body.
pub struct StreamEnd {
    session: Option<SessionContext>,
    planned: Option<Box<PlannedRequest>>,
    source: Option<SummarySource>,
}

impl StreamEnd {
    pub fn new(request: ClientRequest, prepared: ProviderRequest) -> Self {
        Self {
            source: keep_for_summary(&request, &prepared),
            session: request.session,
            planned: prepared.planned,
        }
    }

    /// Settles a streamed answer, if there is a conversation to follow. Returns what is added to the stream's end.
    pub async fn settle(self, response: ResponseSummary) -> StreamFooter {
        let (Some(session), Some(planned)) = (&self.session, self.planned) else {
            return StreamFooter::default();
        };
        // A broken answer does not count as a generation. An unreadable one counts, since nothing shows that it broke.
        let provider = &planned.target.provider;
        let permit = provider.breaker.force_admit();
        if !(response.is_complete() || response.unreadable) {
            let (name, model) = (&*provider.name, &*planned.target.model);
            session.note_provider_failed();
            permit.record_failure(Instant::now());
            session.app.metrics.count_attempt(name, "failed");
            tracing::warn!(
                provider = name,
                model,
                "the stream of {name} ended without a whole answer"
            );
            return StreamFooter::default();
        }
        permit.record_success();
        let trailers = settle_answer(session, *planned, &response, self.source).await;
        let comment = session.options.comment;
        StreamFooter {
            comment: comment.then(|| stream_comment(&trailers).into()),
            trailers,
        }
    }
}

/// Ends a stream that no further request follows.
#[async_trait]
impl AnswerDriver for StreamEnd {
    async fn end_answer(
        self: Box<Self>,
        response: ResponseSummary,
        _: ModelAnswer,
        _: PrecedingText,
    ) -> StreamFooter {
        self.settle(response).await
    }
}

/// Looks a window up again if this answer may have shown that it is larger: the window was guessed, or the provider counted
/// more prompt tokens than it holds (a refusal may have taught too small a window).
fn renew_window(
    session: &SessionContext,
    planned: &mut PlannedRequest,
    response: &ResponseSummary,
) {
    let (app, target) = (&session.app, &mut planned.target);
    let known = target.window.known_tokens();
    let is_longer = known.is_some_and(|known| reported_tokens(response) > Some(known));
    if !target.window.is_guessed() && !is_longer {
        return;
    }
    // An engine has loaded the model by now.
    app.registry.ask_for_window(target);
    let window = app.registry.current_window(target);
    if is_longer || window.source != target.window.source {
        target.window = window;
        planned.limits = target.compute_limits(&app.config.guard, None);
    }
}

/// Judges an answer and stores the session's new state. Returns the headers that report both. `source`: what a summary
/// needs, if one may begin after this answer.
pub async fn settle_answer(
    session: &SessionContext,
    mut planned: PlannedRequest,
    response: &ResponseSummary,
    source: Option<SummarySource>,
) -> HeaderMap {
    let (app, inherited) = (&session.app, &session.inherited);
    let mut response = response.clone();
    app.reasoning
        .mark_repeated(inherited.session, &mut response.input_changes);
    let response = &response;
    let answer = JudgedAnswer {
        response,
        silently_truncated: detect_silent_cut(session, &planned, response),
    };
    renew_window(session, &mut planned, response);
    let begin_summary = |source| begin_summary_after(session, &mut planned, answer, source);
    let job = source.and_then(begin_summary);
    let state = build_next_state(session, &planned, answer);
    let (before, by) = (
        last_answering_model(inherited),
        target_model(&planned.target),
    );
    let place = planned.plan.answer.place;
    app.reasoning
        .note_answer(inherited.session, place, before, by);
    if reported_tokens(response).is_some() {
        app.replica_sync.mark_changed(&planned.target);
    }
    let mut actions = planned.describe_actions(Some(answer));
    session.notes.facts().actions = Some(actions.clone());
    note_generation(session, &planned, response, &state.last_health());
    let digest = answer_digest(response.text, &response.call_ids);
    let (lineage, within) = (&inherited.lineage, app.config.store.save_timeout());
    let span = session.notes.trace.begin_child("plimsoll.store.save");
    let (stored, ()) = tokio::join!(
        app.sessions
            .save_state(lineage, digest, response.id, &state, within),
        app.replica_sync.publish(&app.registry, within),
    );
    drop(span);
    if stored {
        run_summary(session, &planned.compaction, job);
    } else if job.is_some() {
        // No request would find a summary that no stored state names.
        planned.compaction.memory.job = None;
        actions = planned.describe_actions(Some(answer));
        session.notes.facts().actions = Some(actions.clone());
    }
    let headers = build_end_headers(&planned, &state, actions);
    if stored && app.session_events.has_listeners() {
        let account = lineage.tenant.account();
        let view = app.sessions.view_state(account, state, &inherited.commands);
        app.session_events.publish_change(&view);
    }
    headers
}
