//! A request by which the client compacts its conversation. The model must read the whole conversation once more, so no
//! message is left out or cleared. If the request is over its budget, results lose their middle.

use crate::guard::{
    fold::{
        memory::{GuardMemory, SessionKnowledge},
        replay,
    },
    inject::{injections::Injections, placed_injections::InjectedWeight},
    request::{estimate::sum_tokens, measured_request::MeasuredRequest, view::RequestView},
    shrink::message_cuts::MessageCuts,
};

/// What is remembered, without cuts and without what the proxy adds. The caller has left only records that take text out
/// of echoed answers.
pub(in crate::guard) fn forget_cuts(knowledge: &SessionKnowledge) -> SessionKnowledge {
    SessionKnowledge {
        memory: GuardMemory {
            cut: None,
            ..knowledge.memory.clone()
        },
        earlier_plan: None,
        injections: Injections {
            records: knowledge.injections.records.clone(),
            ..Injections::default()
        },
        is_cold: false,
        ..knowledge.clone()
    }
}

/// Cuts results to a common size at which the request fits, or as near to that as possible.
pub(in crate::guard) fn fit_results(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    cuts: &mut MessageCuts<'_>,
    weight: &InjectedWeight,
    knowledge: &SessionKnowledge,
) {
    let added = replay::count_added_tokens(view, cuts, weight, knowledge);
    let budget = measured.budgets.current_budget().uncut_tokens();
    let most = knowledge.calibration.to_raw_tokens(budget, added);
    let messages = &mut cuts.messages;
    let sent = sum_tokens(&messages.tokens).saturating_add(measured.shares.tools);
    if sent > most {
        messages.tighten_results(0..messages.tokens.len(), sent - most);
    }
}
