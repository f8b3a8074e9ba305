//! Log lines of a plan: one for each new cut, and one for each action of recovery.

use std::collections::HashSet;

use crate::{
    guard::{self, Due, Report, Shortening, TruncationReport},
    proxy::{GuardMode, PlannedRequest, SessionContext},
    relay::ModelAnswer,
    session::SessionId,
};

/// Cuts of one request that have a log line each.
const LOGGED_CUTS: usize = 20;

/// Logs why thinking is left out, and notes for the request's log line what the plan does.
pub fn note_plan(session: &SessionContext, planned: &PlannedRequest) {
    let actions = planned.describe_actions(None);
    // 0 where the guard did not read the request.
    let budget = planned.plan.report.budget;
    let mut facts = session.notes.facts();
    facts.session = Some(session.inherited.session.to_string());
    facts.actions = Some(actions);
    facts.guard_took = Some(planned.guard_took);
    facts.budget_tokens = (budget.tokens > 0 && !budget.is_open).then_some(budget.tokens);
    drop(facts);
    let left_out = &planned.plan.report.reasoning_left_out;
    if left_out.count() > 0 && planned.mode == GuardMode::Guard {
        let session = session.inherited.session;
        let (answers, reasons) = (left_out.count(), left_out.describe());
        tracing::debug!(
            %session, answers, reasons, "thinking was left out of {answers} answers: {reasons}"
        );
    }
}

/// Logs the new cuts and the new actions of recovery in a plan. To be called for the plan that is sent.
pub fn log_plan(session: SessionId, planned: &PlannedRequest) {
    log_cuts(session, planned, &Report::default());
    if planned.mode == GuardMode::Guard {
        for action in planned.recovery.action_words() {
            tracing::info!(%session, action, "recovery: {action}");
        }
        if let Some(hold) = planned.recovery.new_hold() {
            let what = if hold.holds_all() {
                "no prompts, new tools or courses"
            } else {
                "no caution prompts"
            };
            let action = format!("{hold}: {what}");
            tracing::info!(%session, action, "recovery: {action}");
        }
    }
}

/// Logs each cut that is new with this request and not among those of `logged`, an earlier plan of the request.
pub fn log_cuts(session: SessionId, planned: &PlannedRequest, logged: &Report) {
    let report = &planned.plan.report;
    if planned.mode != GuardMode::Guard {
        return;
    }
    let due = report.due.map(Due::name);
    if report.texts != logged.texts {
        log_texts(session, planned);
    }
    let known = logged.truncated.iter().map(|cut| (cut.message, cut.after));
    let known: HashSet<(usize, usize)> = known.collect();
    let is_new = |cut: &&TruncationReport| cut.new && !known.contains(&(cut.message, cut.after));
    let mut cuts = report.truncated.iter().filter(is_new);
    for cut in cuts.by_ref().take(LOGGED_CUTS) {
        let tool = if cut.tool.is_empty() {
            "a tool"
        } else {
            &*cut.tool
        };
        let (before, after) = (cut.before, cut.after);
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
    let new_tools = report.short_tools.filter(|short| short.new);
    if let Some(short) = new_tools.filter(|short| logged.short_tools != Some(*short)) {
        let (tools, tokens) = (short.tools, short.tokens);
        tracing::warn!(
            %session, tools, estimated_tokens = tokens, budget_tokens = report.budget.tokens,
            "tool definitions were shortened: {tools} tools, about {tokens} tokens in all"
        );
    }
    let new_cleared = report.cleared.as_ref().filter(|cleared| cleared.new);
    if let Some(cleared) = new_cleared.filter(|it| logged.cleared.as_ref() != Some(*it)) {
        let (results, inputs, media) = (cleared.results, cleared.inputs, cleared.media);
        tracing::warn!(
            %session, results, inputs, media, due, estimated_tokens = cleared.tokens,
            budget_tokens = report.budget.tokens,
            "old tool results were cleared: {results} results, {inputs} inputs, {media} media, about {} tokens in all",
            cleared.tokens
        );
    }
    // The fold of a new course is logged with the course.
    let is_new_fold = |folded: &guard::FoldReport| {
        folded.new && logged.folded != Some(*folded) && !planned.recovery.begins_course()
    };
    if let Some(folded) = report.folded.filter(is_new_fold) {
        let (messages, tokens) = (folded.messages, folded.tokens);
        let (kept, came) = (folded.kept, folded.came);
        tracing::warn!(
            %session, messages, kept, of = came, due, estimated_tokens = tokens,
            budget_tokens = report.budget.tokens,
            "a conversation was folded: {messages} messages were left out, about {tokens} tokens; {kept} of {came} messages are kept"
        );
    }
    if let Some(guard::StandBackReason::Unsound(broken)) = report.stood_back {
        tracing::error!(
            %session, ?broken, "guard plan is unsound; forwarding the request as it came"
        );
    }
}

/// Logs the size of named texts and system text, where that is new.
fn log_texts(session: SessionId, planned: &PlannedRequest) {
    let texts = &planned.plan.report.texts;
    if texts.new && texts.has_content() {
        let count = |how| texts.count_shortened(how);
        tracing::info!(
            %session, capped = count(Shortening::Capped), left_out = count(Shortening::LeftOut),
            trimmed = count(Shortening::Trimmed), over = texts.system.is_over_limit(),
            "size of named texts and system text: {texts}"
        );
    }
}

/// Logs a round of the tool loop, which the client does not see.
pub(super) fn log_tool_round(session: SessionId, planned: &PlannedRequest, said: &ModelAnswer) {
    let memory = &planned.recovery.memory;
    let (calls, reminders) = (said.proxy_calls.len(), memory.reminders.notes().len());
    tracing::info!(
        %session, calls, reminders, course = memory.course_number(),
        "tool loop: proxy-executed calls: {calls}, reminders now: {reminders}"
    );
}
