//! Questions about a request: plans of it that are never sent as they are.

use crate::{
    conversation::Conversation,
    guard::{
        fold::memory::SessionKnowledge,
        plan::{make_plan::plan, report::Plan},
        request::policy::Policy,
    },
};

/// The plan that cuts nothing for the budget beyond what the session has cut already.
pub fn plan_without_new_cuts(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: SessionKnowledge,
) -> Plan {
    let knowledge = SessionKnowledge {
        ignores_budget: true,
        ..knowledge
    };
    plan(conversation, policy, &knowledge)
}

/// Raw tokens of the request if all old tool results in it were cleared.
pub fn count_cleared_tokens(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
) -> u32 {
    let mut settings = policy.settings.clone();
    settings.clear.at = Some(0.0);
    let policy = Policy {
        settings: &settings,
        ..*policy
    };
    plan(conversation, &policy, knowledge).report.raw_after
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        config::{GuardConfig, profile::find_profile, tokens::unknown_model},
        conversation::Format,
    };

    #[test]
    fn questions_are_answered_for_a_request_that_is_cut() {
        let mut messages = vec![json!({"role": "user", "content": "Repair it"})];
        for nth in 0..30 {
            let function = json!({"name": "read", "arguments": "{}"});
            let call = json!({"id": format!("c{nth}"), "type": "function", "function": function});
            messages.extend([
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                json!({"role": "tool", "tool_call_id": format!("c{nth}"), "content": "word ".repeat(400)}),
            ]);
        }
        let body = json!({"model": "m", "messages": messages}).to_string();
        let conversation = Format::Chat.index_body(body.into()).unwrap();
        let settings = GuardConfig::counted_by_characters();
        let policy = Policy::new(
            find_profile("openai").unwrap(),
            8_000,
            unknown_model(),
            &settings,
        );
        let cut = plan(&conversation, &policy, &SessionKnowledge::default());
        assert!(!cut.edits.is_empty() && !cut.report.over_budget);
        let uncut = plan_without_new_cuts(&conversation, &policy, SessionKnowledge::default());
        assert!(uncut.edits.is_empty() && uncut.memory.list_left_out().is_empty());
        // What the session has cut stays cut, and nothing more goes.
        let knowledge = SessionKnowledge {
            memory: cut.memory.clone(),
            sent_messages: messages.len(),
            ..SessionKnowledge::default()
        };
        let kept = plan_without_new_cuts(&conversation, &policy, knowledge);
        assert_eq!(kept.report.raw_after, cut.report.raw_after);
        let wide = Policy {
            window: 64_000,
            ..policy
        };
        let cleared = count_cleared_tokens(&conversation, &wide, &SessionKnowledge::default());
        let sent = plan(&conversation, &wide, &SessionKnowledge::default());
        assert_eq!(sent.report.raw_after, sent.report.raw_before);
        assert!(cleared < sent.report.raw_after / 2, "{cleared}");
    }
}
