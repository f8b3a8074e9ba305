//! Properties of the plans of one session, from request to request.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{WireFormat, messages, settings};
use crate::support::{
    annotate_randomly, any_settings,
    generate::Session,
    made::non_system_indices,
    plans::{apply_plan, make_policy},
};
use bytes::Bytes;
use plimsoll::{
    config::{GuardConfig, profile::PastReasoning},
    conversation::Conversation,
    guard::{self, Plan, SessionKnowledge, profile::Profile},
};

/// A request of Messages without thinking, and without its answer cap, which depends on the room that this leaves.
fn without_thinking(body: &Bytes) -> Bytes {
    let mut body: Value = serde_json::from_slice(body).unwrap();
    for entry in body["messages"].as_array_mut().into_iter().flatten() {
        if let Some(blocks) = entry["content"].as_array_mut() {
            blocks.retain(|block| {
                block["type"] != "thinking" && block["type"] != "redacted_thinking"
            });
        }
    }
    body["max_tokens"] = Value::Null;
    body.to_string().into()
}

impl WireFormat {
    /// Drives a session step by step: with and without state the same bytes are sent, and the
    /// prefix changes only at cuts. Returns the number of cuts.
    pub(crate) fn grow(self, session: &Session, window: u32, profile: &'static Profile) -> usize {
        let requests = session.steps().map(|body| self.read(&body));
        self.grow_through(requests, window, profile, &settings())
    }

    /// The same with settings and annotations by seed.
    pub(crate) fn grow_annotated(
        self,
        session: &Session,
        window: u32,
        profile: &'static Profile,
        seed: u64,
    ) -> usize {
        let annotate = |body: Vec<u8>| self.index(annotate_randomly(&self.read(&body), seed));
        let requests = session.steps().map(annotate);
        self.grow_through(requests, window, profile, &any_settings(seed))
    }

    fn grow_through(
        self,
        requests: impl Iterator<Item = Conversation>,
        window: u32,
        profile: &'static Profile,
        settings: &GuardConfig,
    ) -> usize {
        let policy = make_policy(profile, window, settings);
        let mut known = BTreeSet::new();
        let mut knowledge = SessionKnowledge::default();
        let mut last: Vec<Vec<u8>> = Vec::new();
        let mut last_plan: Option<Plan> = None;
        let (mut cuts, mut sent) = (0, 0);
        let mut known_tools: Option<Bytes> = None;
        let mut shortenings = 0;
        for conversation in requests {
            let with = guard::plan(&conversation, &policy, &knowledge);
            let without = guard::plan(&conversation, &policy, &SessionKnowledge::default());
            let out = apply_plan(&conversation, &with);
            // A late system message moves the grid for a guard without state; one with state keeps
            // its grid.
            if with.memory.has_other_basis(&without.memory) {
                return cuts;
            }
            assert_eq!(
                with.memory, without.memory,
                "{:?} {:?}",
                with.report, without.report
            );
            let other = apply_plan(&conversation, &without);
            let (sent_with, sent_without) = match profile.past_reasoning {
                // Without state it is not known what thinking was made for.
                PastReasoning::Refused => (without_thinking(&out), without_thinking(&other)),
                _ => (out.clone(), other),
            };
            assert_eq!(
                String::from_utf8_lossy(&sent_with),
                String::from_utf8_lossy(&sent_without),
                "state and no state differ at window {window} for {}",
                profile.name
            );
            let fold = with.report.folded.map(|folded| folded.messages);
            let cut = with.report.folded.is_some_and(|folded| folded.new);
            let before = last_plan.as_ref().and_then(|plan| plan.report.folded);
            let moved = fold != before.map(|folded| folded.messages);
            assert!(cut || !moved, "a cut is told when it is made");
            let cleared = with.report.cleared.as_ref();
            let clears = cleared.is_some_and(|cleared| cleared.new);
            let more = cleared.map_or(&[][..], |cleared| &cleared.messages);
            let more: Vec<_> = more.iter().filter(|at| known.insert(**at)).collect();
            assert_eq!(clears, !more.is_empty(), "a clear is told when it is made");
            let tools = self
                .index(out.clone())
                .find_field("tools")
                .map(|it| it.value);
            let tools = tools.map(|list| out.slice(list.range()));
            let shortens_tools = with.report.short_tools.is_some_and(|it| it.new);
            assert!(
                shortens_tools || known_tools.is_none() || known_tools == tools,
                "tools changed without a word"
            );
            known_tools = tools;
            shortenings += usize::from(shortens_tools);
            assert!(shortenings < 2, "tools are shortened once");
            let left_out = with.report.texts.cut;
            // Thinking may be all that a cut leaves out.
            let thinking = last_plan
                .as_ref()
                .map(|plan| plan.report.reasoning_left_out.count());
            let forgets = with.report.reasoning_left_out.count() > thinking.unwrap_or(0);
            cuts += usize::from(cut || clears || left_out);
            super::question_stays(&conversation, &out, window, profile.name);
            let after = self.index(out);
            let now: Vec<Vec<u8>> = messages(&after).into_iter().map(<[u8]>::to_vec).collect();
            // What was sent whole gets shorter where it cannot go, as with the results of one reasoning; that is told too.
            let shortened = &with.report.truncated;
            let shortens = shortened.iter().any(|it| it.new && it.message < sent);
            if !cut && !clears && !left_out && !forgets && !shortens {
                let held = now.starts_with(&last);
                assert!(held, "the prefix changed without a cut at window {window}");
            }
            // A fold's ledger is shortened where the newest step needs its room. What is cleared of messages that
            // came together with the newest one was never sent.
            if cut && !moved && (more.is_empty() || more.iter().any(|at| **at < sent)) {
                assert!(!now.starts_with(&last), "a cut was told that is none");
            }
            if left_out {
                assert!(
                    !now.starts_with(&last),
                    "a text that was sent before is still there"
                );
            }
            knowledge = SessionKnowledge {
                memory: with.memory.clone(),
                history: with.history,
                sent_messages: non_system_indices(&conversation).len(),
                ..SessionKnowledge::default()
            };
            (last, sent) = (now, conversation.items.len());
            last_plan = Some(with);
        }
        cuts
    }
}
