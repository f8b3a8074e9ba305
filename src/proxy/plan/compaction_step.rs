//! The compaction step of a request at its beginning, and who counts as the user of its summaries.

use crate::{
    compaction::{BackoffSubject, CompactionStep},
    conversation::Conversation,
    proxy::{GuardMode, SessionContext},
    session::InheritedSession,
};

/// Begins the compaction step of a request. The request may switch automatic summaries on or off, and so may its session.
pub fn begin_compaction(session: &SessionContext, conversation: &Conversation) -> CompactionStep {
    let (app, inherited, options) = (&session.app, &session.inherited, session.options);
    let state = inherited.state.as_ref();
    if inherited.compacted {
        app.summary_jobs.mark_used(&summary_user(inherited));
        app.summary_jobs.mark_used(&summary_account(inherited));
    }
    let commands = &inherited.commands;
    let switch = options.auto_compact.or(commands.auto_compact);
    let keys = inherited.lineage.state_keys(0);
    let keys = keys.filter(|_| !inherited.store_failed);
    CompactionStep {
        memory: state.map_or_else(Default::default, |state| state.compaction.clone()),
        generations: state.map_or(0, |state| state.generations).saturating_add(1),
        key: keys.map(|keys| keys.bare),
        guards: options.mode == GuardMode::Guard && !conversation.is_auxiliary(),
        auto: switch.unwrap_or(app.config.compaction.auto),
        ordered: inherited.compact_requested.then_some(commands.compacts),
        fresh: inherited.compacted,
        summary_before: inherited.summary_before.clone(),
        left_out: false,
    }
}

/// Returns the session that uses a summary of the conversation, or its account if there is no session yet.
pub(in crate::proxy) fn summary_user(inherited: &InheritedSession) -> BackoffSubject {
    match inherited.state {
        Some(_) => BackoffSubject::Session(*inherited.session.as_bytes()),
        None => summary_account(inherited),
    }
}

/// The account of the client, for summaries.
fn summary_account(inherited: &InheritedSession) -> BackoffSubject {
    BackoffSubject::Account(*inherited.lineage.tenant.account().as_bytes())
}
