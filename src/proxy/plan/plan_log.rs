//! What the log says of a plan: one line for each cut that is new, and for what recovery begins.

use super::PlannedRequest;
use crate::{
    guard::{self, Shortening},
    proxy::{client_request::SessionContext, request_options::GuardMode},
    relay::AssistantTurn,
    session::SessionId,
};

/// Cuts of one request that are logged each by itself.
const LOGGED_CUTS: usize = 20;

/// Notes in the request's line of the log what is done to the request.
pub fn note_plan(session: &SessionContext, planned: &PlannedRequest) {
    let actions = planned.describe_actions(false);
    // 0 where the guard did not look at the request.
    let budget = planned.plan.report.budget.tokens;
    let mut facts = session.notes.facts();
    facts.session = Some(session.inherited.session.to_string());
    facts.actions = Some(actions);
    facts.guard_took = Some(planned.guard_took);
    facts.budget_tokens = (budget > 0).then_some(budget);
}

/// What a plan begins, once it is known that it is the one that goes out.
pub fn log_plan(session: SessionId, planned: &PlannedRequest) {
    log_cuts(session, planned);
    log_recovery(session, planned);
}

/// One line for each cut that is new with this request; those of before were logged then.
pub(super) fn log_cuts(session: SessionId, planned: &PlannedRequest) {
    let report = &planned.plan.report;
    if planned.mode != GuardMode::Guard {
        return;
    }
    log_texts(session, planned);
    let mut cuts = report.truncated.iter().filter(|cut| cut.new);
    for cut in cuts.by_ref().take(LOGGED_CUTS) {
        let (tool, before, after) = (display_tool(&cut.tool), cut.before, cut.after);
        tracing::warn!(
            %session, tool, before_chars = before, after_chars = after, place = cut.message,
            "a {} of {tool:?} was truncated: {before} -> {after} characters",
            if cut.call { "call" } else { "result" }
        );
    }
    let more = cuts.count();
    if more > 0 {
        tracing::warn!(%session, more, "{more} more results and calls were truncated");
    }
    if let Some(cleared) = report.cleared.as_ref().filter(|cleared| cleared.new) {
        let (results, inputs, media) = (cleared.results, cleared.inputs, cleared.media);
        tracing::warn!(
            %session, results, inputs, media, estimated_tokens = cleared.tokens, budget_tokens = report.budget.tokens,
            "old tool rounds were cleared: {results} results, {inputs} inputs, {media} media, about {} tokens in all",
            cleared.tokens
        );
    }
    // What a new course leaves out is told with the course.
    let cut = |folded: &guard::FoldReport| folded.new && !planned.recovery.begins_course();
    if let Some(folded) = report.folded.filter(cut) {
        let (messages, tokens) = (folded.messages, folded.tokens);
        let (kept, came) = (folded.kept, folded.came);
        tracing::warn!(
            %session, messages, kept, of = came, estimated_tokens = tokens,
            budget_tokens = report.budget.tokens,
            "a conversation was folded: {messages} messages, about {tokens} tokens; kept {kept} of {came}"
        );
    }
    match report.stood_back {
        Some(guard::StandBackReason::Unsound(broken)) => tracing::error!(
            %session, ?broken, "a plan of the guard was unsound; the request goes on as it came"
        ),
        Some(guard::StandBackReason::Invalid(invalid)) => tracing::warn!(
            %session, %invalid, "a conversation came in invalid and goes on as it came"
        ),
        _ => {}
    }
}

/// One line for what named texts and system text take, where that is new.
fn log_texts(session: SessionId, planned: &PlannedRequest) {
    let texts = &planned.plan.report.texts;
    if texts.new && texts.has_content() {
        let count = |how| texts.count_shortened(how);
        tracing::info!(
            %session, capped = count(Shortening::Capped), left_out = count(Shortening::LeftOut),
            trimmed = count(Shortening::Trimmed), over = texts.system.is_over_limit(),
            "what named texts and system text take: {texts}"
        );
    }
}

/// One line for what recovery began with this request.
fn log_recovery(session: SessionId, planned: &PlannedRequest) {
    if planned.mode != GuardMode::Guard {
        return;
    }
    for action in planned.recovery.action_words() {
        tracing::info!(%session, action, "recovery acts on a session: {action}");
    }
}

/// One line for a turn that the client does not see.
pub(super) fn log_tool_turn(session: SessionId, planned: &PlannedRequest, spoken: &AssistantTurn) {
    let (calls, reminders) = (
        spoken.proxy_calls.len(),
        planned.recovery.memory().reminders.notes().len(),
    );
    tracing::info!(
        %session, calls, reminders, course = planned.recovery.memory().course_number(),
        "a round of our own tools; calls: {calls}, reminders now: {reminders}"
    );
}

/// A tool's name, for a sentence.
fn display_tool(tool: &str) -> &str {
    if tool.is_empty() { "a tool" } else { tool }
}
