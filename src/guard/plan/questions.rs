//! Questions about a request: plans of it that are never sent as they are.

use crate::{
    conversation::Conversation,
    guard::{
        fold::memory::Recall,
        plan::make_plan::{Plan, plan},
        request::policy::Policy,
    },
};

/// The plan that cuts nothing for the budget beyond what the session has cut already.
pub fn plan_without_new_cuts(
    conversation: &Conversation,
    policy: &Policy<'_>,
    recall: Recall,
) -> Plan {
    let recall = Recall {
        ignores_budget: true,
        ..recall
    };
    plan(conversation, policy, &recall)
}

/// Raw tokens of the request if all old tool results in it were cleared.
pub fn count_cleared_tokens(
    conversation: &Conversation,
    policy: &Policy<'_>,
    recall: &Recall,
) -> u32 {
    let mut settings = policy.settings.clone();
    settings.clear.at = Some(0.0);
    let policy = Policy {
        settings: &settings,
        ..*policy
    };
    plan(conversation, &policy, recall).report.raw_after
}
