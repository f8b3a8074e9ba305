//! A history that the provider holds or cuts by itself.

use crate::{
    conversation::units,
    guard::{
        fold::memory::Recall,
        plan::{
            make_plan::Plan,
            report::{Report, StandBackReason},
        },
        request::{budget::measure_shares, measured_request::MeasuredRequest, view::RequestView},
        shrink::shortened_messages::ShortenedMessages,
    },
};

/// The plan that truncates long tool results and does nothing else: what the provider holds cannot shrink later. No
/// limit is remembered, since the provider has the result after one request.
pub(in crate::guard) fn plan_managed_history(
    view: RequestView<'_>,
    measured: &MeasuredRequest<'_>,
    reason: StandBackReason,
    recall: &Recall,
) -> Plan {
    let mut messages = ShortenedMessages::new(view, measured.tokens.clone());
    messages.truncate_long_results();
    let mut plan = measured.stand_back(reason, recall);
    let fresh = units::first_new_message(view.units, recall.messages);
    let truncated = messages.collect_edits(|_| true, fresh, &mut plan.edits);
    let tools = measured.shares.tools;
    let sent = measure_shares(tools, view.conversation, &view.policy, &messages.tokens);
    plan.report = Report {
        truncated,
        raw_after: sent.total(),
        expected: recall.calibration.to_expected_tokens(sent.total()),
        sent,
        ..plan.report
    };
    plan
}
