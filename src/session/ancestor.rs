//! Finds the state that a conversation continues: by the digests of all its messages, or by its answers alone if the client
//! has edited its history.

use bytes::Bytes;

use super::{
    InheritedSession, Lineage, SessionError, SessionState, Sessions,
    edited_history::{EditedHistory, compare_history},
    history_sketch::sketch_request,
};
use crate::{
    conversation::Conversation,
    store::{FoundState, LOOSE_OPENING, StoreError},
    telemetry::metrics::StoreOperation,
};

/// Most states of one request that are found by loose keys and compared.
const MAX_LOOSE_FINDS: usize = 3;

/// A state that a conversation may continue.
struct Ancestor {
    state: SessionState,
    /// Messages before its answer in this conversation.
    answer_at: u32,
    /// The index of the item of its answer, if all messages before that item are those of the state.
    answer_item: Option<usize>,
    commands: Bytes,
}

impl Sessions {
    /// Fills in the state that the conversation continues, if there is one.
    pub(super) async fn load_inherited(
        &self,
        inherited: &mut InheritedSession,
        conversation: &Conversation,
    ) -> Result<(), SessionError> {
        let lineage = &inherited.lineage;
        if lineage.probes.is_empty() {
            return Ok(());
        }
        let (tenant, opening) = (&lineage.tenant, lineage.opening);
        let found = self.store.find_state(tenant, opening, &lineage.probes);
        let found = self.call_store(StoreOperation::Find, found).await?;
        let mut found = found
            .map(|found| self.read_found(found, lineage))
            .transpose()?;
        let mut edits = None;
        let newer = found.as_ref().map_or(0, |found| found.answer_at);
        let is_same = |it: &Ancestor, state: &SessionState| it.state.session == state.session;
        // Of two sessions that fit, the one whose messages are all the same is continued.
        if let Some((edited, history)) = self.find_edited(inherited, conversation, newer).await
            && found.as_ref().is_none_or(|it| is_same(it, &edited.state))
        {
            (found, edits) = (Some(edited), Some(history));
        }
        let Some(found) = found else { return Ok(()) };
        let (mut state, answer_at) = (found.state, found.answer_at);
        if state.format != lineage.format {
            // Records of another format cannot be put into this conversation.
            return Ok(());
        }
        let commands = self.decode_commands(tenant, state.session, &found.commands)?;
        let known = found.answer_item.map(|answer| (&state.sketch, answer));
        inherited.sketch = lineage.stores.then(|| sketch_request(conversation, known));
        let (generations, made) = (state.generations, state.compaction.made);
        let before = &commands.outcomes;
        let before = before
            .first()
            .and_then(|_| state.compaction.summary.clone());
        state.compaction.take_over(&commands.outcomes, generations);
        // A summary that was just taken over may cover messages that are gone from this conversation.
        match &edits {
            Some(history) => state.follow_edits(&history.places),
            None => state.realign_places(answer_at),
        }
        let compaction = &state.compaction;
        inherited.compacted = compaction.made > made && compaction.summary.is_some();
        inherited.summary_before = before.filter(|_| inherited.compacted);
        inherited.clear_requested = commands.is_clear_pending(&state);
        inherited.compact_requested = commands.is_summary_pending(&state);
        inherited.edited = edits.map(|history| history.changed);
        if let Some(changed) = inherited.edited {
            let session = state.session;
            tracing::debug!(
                %session, changed,
                "the client edited its history: the prefix changed, and the session goes on"
            );
        }
        inherited.state = Some(state);
        inherited.answer_at = answer_at;
        inherited.commands = commands;
        Ok(())
    }

    fn read_found(&self, found: FoundState, lineage: &Lineage) -> Result<Ancestor, SessionError> {
        Ok(Ancestor {
            answer_at: lineage.answer_at(found.at).ok_or(StoreError::Damaged)?,
            answer_item: lineage.find_answer_item(found.at),
            state: self.decode_state(&lineage.tenant, &found.state)?,
            commands: found.commands,
        })
    }

    /// Finds, by loose keys, a state whose conversation the client has edited since. Only answers after more than `newer`
    /// messages are looked for. A failure counts as no such state.
    async fn find_edited(
        &self,
        inherited: &InheritedSession,
        conversation: &Conversation,
        newer: u32,
    ) -> Option<(Ancestor, EditedHistory)> {
        let lineage = &inherited.lineage;
        let newer = lineage.loose.iter().filter(|probe| probe.at > newer);
        // The key of two answers is the more specific one.
        let probes = newer.flat_map(|probe| [1, 0].map(|key| (probe.keys[key], *probe)));
        let (mut keys, mut probes): (Vec<_>, Vec<_>) = probes.unzip();
        for _ in 0..MAX_LOOSE_FINDS {
            if keys.is_empty() {
                return None;
            }
            let found = self.store.find_state(&lineage.tenant, LOOSE_OPENING, &keys);
            let found = self.call_store(StoreOperation::Find, found).await.ok()??;
            let probe = probes.get(found.at)?;
            let (item, answer_at) = (probe.item, probe.at);
            let state = self.decode_state(&lineage.tenant, &found.state).ok()?;
            let trusted = inherited.trusted;
            let history = compare_history(&state, conversation, item, answer_at, trusted);
            if let Some(history) = history.filter(|_| state.format == lineage.format) {
                let commands = found.commands;
                return Some((
                    Ancestor {
                        state,
                        answer_at,
                        answer_item: None,
                        commands,
                    },
                    history,
                ));
            }
            keys.drain(..=found.at);
            probes.drain(..=found.at);
        }
        None
    }
}
