//! The end of an answer: the usage becomes a level, the calibration learns, the clock of recovery advances,
//! a summary begins where one is due, and the new state is stored before the end of the answer is released.
//! Other replicas are told what was learnt, and listeners what became of the session. A request that
//! nobody answered, or whose answer broke, changes nothing.

mod generation_stats;
mod next_state;
mod silent_cut;

use http::HeaderMap;

use self::{generation_stats::note_answer, next_state::next_state, silent_cut::detect_silent_cut};
use super::{
    answer_facts::{AnswerFacts, reported_tokens},
    begin_summary::{begin_summary_after, run_summary},
    client_request::SessionContext,
    plan::PlannedRequest,
    response_headers::{build_end_headers, stream_comment},
    summary_source::SummarySource,
};
use crate::{
    conversation::answer_digest,
    relay::{AssistantTurn, PrecedingText, ResponseSummary, StreamFooter},
    session::SessionView,
};

/// The end of an answer.
pub struct AnswerEnd<'a> {
    pub heard: &'a ResponseSummary,
    /// The provider's last answer, where what the proxy asked for was taken out of it.
    pub last: &'a AssistantTurn,
    pub before: PrecedingText,
    /// Where a summary may come of the request.
    pub source: Option<SummarySource>,
}

/// Judges an answer and stores what follows from it. Gives the headers that tell how it ended.
pub async fn settle_answer(
    session: &SessionContext,
    mut planned: PlannedRequest,
    end: AnswerEnd<'_>,
) -> HeaderMap {
    let (app, inherited, heard) = (&session.app, &session.inherited, end.heard);
    planned.recovery.finish_answer(end.last, end.before);
    let answer = AnswerFacts {
        heard,
        cut_in_silence: detect_silent_cut(session, &planned, heard),
    };
    let job = end
        .source
        .and_then(|source| begin_summary_after(session, &mut planned, answer, source));
    let state = next_state(session, &planned, answer);
    if reported_tokens(heard).is_some() {
        let target = &planned.target;
        app.replica_sync
            .mark_changed(&target.provider.name, &target.model);
    }
    session.notes.facts().actions = Some(planned.describe_actions(answer.cut_in_silence));
    note_answer(session, &planned, heard, &state.last_health());
    let digest = answer_digest(heard.text, &heard.call_ids);
    let within = app.config.store.save_timeout();
    let child = session.notes.trace.begin_child("plimsoll.store.save");
    let (stored, ()) = tokio::join!(
        app.sessions
            .save_state(&inherited.lineage, digest, &state, within),
        app.replica_sync.publish(&app.registry, within),
    );
    drop(child);
    if stored {
        run_summary(session, &planned.compaction, job);
    } else if job.is_some() {
        // No request would find a summary that no stored state names.
        planned.compaction.memory.job = None;
    }
    let words = planned.describe_actions(answer.cut_in_silence);
    session.notes.facts().actions = Some(words.clone());
    let foot = build_end_headers(&planned, &state, words);
    if stored && app.session_events.has_listeners() {
        let account = inherited.lineage.tenant().account();
        let known = SessionView::from_state(account, state, &inherited.commands);
        app.session_events.publish_change(&known);
    }
    foot
}

/// What is added to the end of a stream.
pub async fn settle_stream(
    session: &SessionContext,
    planned: PlannedRequest,
    end: AnswerEnd<'_>,
) -> StreamFooter {
    let heard = end.heard;
    // Half an answer is no generation; of one that cannot be read, nothing else is known.
    if !(heard.is_complete() || heard.unreadable) {
        if heard.error {
            session.note_provider_failed();
        }
        return StreamFooter::default();
    }
    let trailers = settle_answer(session, planned, end).await;
    StreamFooter {
        comment: session
            .options
            .comment
            .then(|| stream_comment(&trailers).into()),
        trailers,
    }
}
