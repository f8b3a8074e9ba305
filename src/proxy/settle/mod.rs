//! The end of an answer: the usage becomes a level, the calibration learns, recovery's clock advances, a summary
//! begins where one is due, and the new state is stored before the end of the answer is released. What was learnt is
//! published to other replicas, and the session's change to listeners. A request without an answer, or whose answer
//! broke off, changes nothing.

mod generation_stats;
mod next_state;
mod silent_cut;

use http::HeaderMap;

use self::{
    generation_stats::note_answer, next_state::build_next_state, silent_cut::detect_silent_cut,
};
use super::{
    JudgedAnswer, PlannedRequest, SessionContext,
    begin_summary::{begin_summary_after, run_summary},
    judged_answer::reported_tokens,
    plan::{find_last_maker, target_maker},
    response_headers::{build_end_headers, stream_comment},
    summary_source::SummarySource,
};
use crate::{
    conversation::answer_digest,
    relay::{ResponseSummary, StreamFooter},
};

/// The end of an answer.
pub struct AnswerEnd {
    pub response: ResponseSummary,
    /// Where a summary may begin with the request.
    pub source: Option<SummarySource>,
}

/// Looks a guessed window up again: this answer may have shown that the guess is too small.
fn renew_guessed_window(session: &SessionContext, planned: &mut PlannedRequest) {
    let (app, target) = (&session.app, &mut planned.target);
    if !target.window.is_guessed() {
        return;
    }
    let window = app.registry.current_window(target);
    if window.source != target.window.source {
        target.window = window;
        planned.limits = target.compute_limits(&app.config.guard, None);
    }
}

/// Judges an answer and stores the session's new state. Returns the headers that report both.
pub async fn settle_answer(
    session: &SessionContext,
    mut planned: PlannedRequest,
    end: AnswerEnd,
) -> HeaderMap {
    let (app, inherited, response) = (&session.app, &session.inherited, &end.response);
    let answer = JudgedAnswer {
        response,
        cut_in_silence: detect_silent_cut(session, &planned, response),
    };
    renew_guessed_window(session, &mut planned);
    let begin_summary = |source| begin_summary_after(session, &mut planned, answer, source);
    let job = end.source.and_then(begin_summary);
    let state = build_next_state(session, &planned, answer);
    let (before, by) = (find_last_maker(inherited), target_maker(&planned.target));
    let place = planned.plan.answer.place;
    app.reasoning
        .note_answer(inherited.session, place, before, by);
    if reported_tokens(response).is_some() {
        let (provider, model) = (&planned.target.provider.name, &planned.target.model);
        app.replica_sync.mark_changed(provider, model);
    }
    let mut actions = planned.describe_actions(Some(answer));
    session.notes.facts().actions = Some(actions.clone());
    note_answer(session, &planned, response, &state.last_health());
    let digest = answer_digest(response.text, &response.call_ids);
    let (lineage, within) = (&inherited.lineage, app.config.store.save_timeout());
    let span = session.notes.trace.begin_child("plimsoll.store.save");
    let (stored, ()) = tokio::join!(
        app.sessions.save_state(lineage, digest, &state, within),
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
        let account = lineage.tenant().account();
        let view = app.sessions.view_state(account, state, &inherited.commands);
        app.session_events.publish_change(&view);
    }
    headers
}

/// Settles a streamed answer where there is a conversation to follow. Returns what is added to the stream's end.
pub async fn settle_stream(
    session: Option<&SessionContext>,
    planned: Option<Box<PlannedRequest>>,
    end: AnswerEnd,
) -> StreamFooter {
    let (Some(session), Some(planned)) = (session, planned) else {
        return StreamFooter::default();
    };
    // A broken answer is no generation. An unreadable one counts: nothing shows that it broke.
    if !(end.response.is_complete() || end.response.unreadable) {
        if end.response.error {
            session.note_provider_failed();
        }
        return StreamFooter::default();
    }
    let trailers = settle_answer(session, *planned, end).await;
    let comment = session.options.comment;
    StreamFooter {
        comment: comment.then(|| stream_comment(&trailers).into()),
        trailers,
    }
}
