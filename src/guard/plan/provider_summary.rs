//! A request that begins with a summary by the provider, while the client still sends all messages.
//!
//! The block takes the place of all messages before a boundary, including the task. The rest is planned as the request of a
//! client whose history begins with the block: places stay those of the client's messages, and edits are moved to the
//! client's body.
//!
//! For a model that binds its thinking, the block counts as the messages that it replaces, so thinking behind the block
//! stays valid if nothing else changes. For this reason the first request with a block keeps the thinking only if the
//! messages behind the block are sent as they were.
//!
//! If the block cannot be sent, its text is put into a preface, like the text of any other summary.

use crate::{
    conversation::{Author, Conversation, edit::Edits, units},
    guard::{
        fold::memory::{NewSummary, SessionKnowledge},
        inject::injections::{Injections, Summary},
        plan::{
            make_plan::{plan, plan_conversation},
            report::{FoldReport, Plan},
        },
        request::{estimate::sum_tokens, measured_request::MeasuredRequest, policy::Policy},
    },
    json::scan::Span,
};

/// A request with a block in the place of its first messages.
struct BlockedRequest<'a> {
    client: &'a Conversation,
    /// The first message behind the block.
    first: usize,
    boundary: u32,
    /// The entry with the block.
    entry: String,
    /// The part of the client's body that the entry replaces.
    head: Span,
    blocked: Conversation,
}

/// Plans a request whose summary is a block.
pub(in crate::guard) fn plan_behind_block(
    conversation: &Conversation,
    policy: &Policy<'_>,
    knowledge: &SessionKnowledge,
) -> Plan {
    let summary = knowledge.injections.summary.as_ref();
    let request = summary.and_then(|summary| BlockedRequest::new(conversation, summary));
    // A course begins with a preface of its own, which no block contains.
    let request = request.filter(|_| knowledge.injections.course.is_none());
    request
        .and_then(|request| request.plan(policy, knowledge))
        .unwrap_or_else(|| {
            let summary = summary.cloned();
            let summary = summary.map(|summary| summary.write_out(conversation.format));
            plan_conversation(conversation, policy, &with_summary(knowledge, summary))
        })
}

fn with_summary(knowledge: &SessionKnowledge, summary: Option<Summary>) -> SessionKnowledge {
    SessionKnowledge {
        injections: Injections {
            summary,
            ..knowledge.injections.clone()
        },
        new_summary: None,
        ..knowledge.clone()
    }
}

impl<'a> BlockedRequest<'a> {
    /// `None` if the block cannot be sent before the rest: the first message behind it must be an answer, which the block
    /// does not cover.
    fn new(client: &'a Conversation, summary: &Summary) -> Option<Self> {
        let boundary = summary.boundary;
        let entry = client.format.write_summary_entry(&summary.text)?;
        let items = client.items.iter().enumerate();
        let mut counted = items.filter(|(_, item)| !item.author.is_system());
        let (first, item) = counted.nth(boundary as usize)?;
        let head = client.span_of_head(first)?;
        let mut edits = Edits::default();
        edits.replace(head, entry.clone());
        let body = edits.apply(&client.body).to_bytes();
        let mut blocked = client.format.index_body(body).ok()?;
        blocked.summarised = boundary.checked_sub(1)?;
        let is_read = blocked.items.iter().any(|item| item.is_history_summary);
        (item.author == Author::Model && is_read).then_some(Self {
            client,
            first,
            boundary,
            entry,
            head,
            blocked,
        })
    }

    /// `None` where the guard stands back.
    fn plan(&self, policy: &Policy<'_>, knowledge: &SessionKnowledge) -> Option<Plan> {
        let mut behind = with_summary(knowledge, None);
        behind.memory.forget_cuts_before(self.boundary);
        if let Some(earlier) = &mut behind.earlier_plan {
            earlier.memory.forget_cuts_before(self.boundary);
        }
        let plan = match &knowledge.new_summary {
            None => self.plan_with(policy, &behind),
            Some(new) => self.plan_first(policy, knowledge, new, behind),
        };
        let is_new = knowledge.new_summary.is_some();
        let whole = || MeasuredRequest::new(self.client, policy, &knowledge.past_answers());
        (plan.report.stood_back.is_none()).then(|| self.report_block(plan, &whole(), is_new))
    }

    /// Makes the first plan with a block. Thinking behind the block stays if everything since the boundary is sent as it was
    /// sent with the previous summary, with the same system text and the same tools. Otherwise the block may replace another
    /// beginning than that of the newest answers, and all thinking is left out.
    fn plan_first(
        &self,
        policy: &Policy<'_>,
        knowledge: &SessionKnowledge,
        new: &NewSummary,
        mut behind: SessionKnowledge,
    ) -> Plan {
        let sent = SessionKnowledge {
            ignores_budget: true,
            ..with_summary(knowledge, new.before.clone())
        };
        let sent = plan(self.client, policy, &sent);
        let first = self.plan_with(policy, &behind);
        let history = first
            .history
            .continue_behind_summary(&sent.history, self.boundary);
        if let Some(history) = history.filter(|_| sent.report.stood_back.is_none()) {
            let kept = SessionKnowledge {
                history,
                ..behind.clone()
            };
            let kept = self.plan_with(policy, &kept);
            if self.sends_alike(&sent, &kept) {
                return kept;
            }
        }
        let answer = behind.find_next_answer(&self.blocked);
        behind.history.begin_with(answer);
        self.plan_with(policy, &behind)
    }

    /// Plans what is behind the block. The edits are those of the client's body.
    fn plan_with(&self, policy: &Policy<'_>, knowledge: &SessionKnowledge) -> Plan {
        let plan = plan_conversation(&self.blocked, policy, knowledge);
        let mut edits = plan.edits.move_behind(self.head, self.entry.len() as u32);
        edits.replace(self.head, self.entry.clone());
        Plan { edits, ..plan }
    }

    /// Whether two plans send the messages behind the block with the same bytes.
    fn sends_alike(&self, one: &Plan, other: &Plan) -> bool {
        let start = self.client.items[self.first].span.start;
        let end = self.client.list.end;
        let apply = |plan: &Plan| {
            plan.edits
                .apply_to_part(&self.client.body, Span { start, end })
        };
        apply(one) == apply(other)
    }

    /// Adds the client's messages that the block replaces to the report and the memory.
    fn report_block(&self, mut plan: Plan, whole: &MeasuredRequest<'_>, is_new: bool) -> Plan {
        let units = units::split_units(self.client);
        let pinned = units::find_pinned_end(&units);
        let pinned = units::count_messages_before(&units, pinned);
        plan.memory.leave_out(pinned, self.boundary);
        let report = &mut plan.report;
        report.has_provider_summary = true;
        (report.raw_before, report.shares) = (whole.shares.total(), whole.shares);
        let came = self.client.items.len();
        let (fold, replaced) = (report.folded, came + 1 - self.blocked.items.len());
        let tokens = sum_tokens(&whole.tokens[..self.first]);
        report.folded = Some(FoldReport {
            messages: replaced + fold.map_or(0, |fold| fold.messages),
            came,
            kept: fold.map_or(came - replaced, |fold| fold.kept.saturating_sub(1)),
            tokens: tokens.saturating_add(fold.map_or(0, |fold| fold.tokens)),
            new: is_new || fold.is_some_and(|fold| fold.new),
        });
        plan
    }
}
