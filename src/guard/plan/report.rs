//! What a plan is: its edits, what is remembered of them, and its report, for headers, logs and commands.

use serde::Serialize;

use crate::{
    conversation::{ToolBrevity, edit::Edits},
    guard::{
        fold::{
            memory::{EarlierPlan, GuardMemory, SessionKnowledge},
            sent_history::SentHistory,
        },
        grammar::lint::BrokenRules,
        inject::{injections::ToolSet, placed_injections::LeftOutReasoning},
        order::Due,
        request::{
            answer_cap::AnswerCap,
            answer_place::AnswerPlace,
            budget::{Budget, TokenShares},
            measured_request::MeasuredRequest,
        },
        shrink::{
            clearing::Cleared, priority::PriorityReport, shortened_messages::TruncationReport,
        },
    },
};

/// What the guard does to a request.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub edits: Edits,
    pub report: Report,
    pub memory: GuardMemory,
    pub history: SentHistory,
    /// The place of the answer.
    pub answer: AnswerPlace,
}

impl Plan {
    /// What a plan that replaces this one keeps of it.
    pub fn to_earlier_plan(&self) -> EarlierPlan {
        EarlierPlan {
            memory: self.memory.clone(),
            due: self.report.due,
        }
    }
}

/// What the guard found in a request, and what it did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Why the guard did nothing, but perhaps truncate results.
    pub stood_back: Option<StandBackReason>,
    /// Caps of named texts and the share of system text.
    pub texts: PriorityReport,
    pub truncated: Vec<TruncationReport>,
    /// Tool definitions that are sent shorter.
    pub short_tools: Option<ShortToolsReport>,
    /// Old tool results, arguments and images that became placeholders. They are not in `truncated`.
    pub cleared: Option<Cleared>,
    pub folded: Option<FoldReport>,
    /// Why the request is cut, if it is cut anew, or is over its budget and nothing can go.
    pub due: Option<Due>,
    /// The number of the course whose preface stands in the request.
    pub course: Option<u32>,
    /// The proxy's tools that were added to the client's.
    pub tools: ToolSet,
    /// The proxy's tools are in an entry among the messages, and the request's list of tools is the client's.
    pub has_tools_entry: bool,
    /// The request begins with a summary of the provider's own that the proxy put there.
    pub has_provider_summary: bool,
    /// Records that are not valid at their places. Records of folded messages do not count.
    pub records_left_out: usize,
    /// Answers whose reasoning is left out, and why.
    pub reasoning_left_out: LeftOutReasoning,
    /// Raw tokens of the request as it came, and as it goes out.
    pub raw_before: u32,
    pub raw_after: u32,
    /// The usage that is expected for the request as it goes out; tokens.
    pub expected: u32,
    pub budget: Budget,
    /// `None` where the request has no answer cap that may be lowered.
    pub answer_cap: Option<AnswerCap>,
    /// The request goes out over its budget: the messages that must stay are too large.
    pub over_budget: bool,
    /// The request as it came, by kind.
    pub shares: TokenShares,
    /// The client's part of the request as it goes out, by kind. Injections do not count.
    pub sent: TokenShares,
    /// Raw tokens that no cut can free: system messages, the task's words, tools and whatever else is sent in addition to
    /// the messages.
    pub fixed: u32,
}

/// The header word of JSON that is no conversation, and goes out unchanged.
pub(in crate::guard) const INVALID: &str = "invalid-as-sent";

/// Why the guard did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandBackReason {
    Disabled,
    /// A member of the request, named here, asks the provider to manage the context.
    ProviderManages(&'static str),
    /// The plan did not pass the lint: a fault of the guard.
    Unsound(BrokenRules),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldReport {
    /// Removed messages.
    pub messages: usize,
    /// Messages of the conversation as it came, and those of them that go out.
    pub came: usize,
    pub kept: usize,
    /// Raw tokens of the removed messages.
    pub tokens: u32,
    /// Whether the cut is new with this request.
    pub new: bool,
}

/// Tool definitions that are sent shorter than they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ShortToolsReport {
    pub tools: usize,
    /// Raw tokens that they lost.
    pub tokens: u32,
    /// Descriptions are cut too, and not annotations alone.
    pub descriptions: bool,
    /// Whether this request is the first one that has them as short.
    pub new: bool,
}

impl Report {
    /// Whether anything is cut that could be looked up.
    pub fn is_cut(&self) -> bool {
        self.folded.is_some() || self.cleared.is_some() || !self.truncated.is_empty()
    }

    /// Whether a cut of earlier messages is new with this request.
    pub fn is_cut_anew(&self) -> bool {
        self.folded.is_some_and(|folded| folded.new)
            || self.cleared.as_ref().is_some_and(|cleared| cleared.new)
            || self.short_tools.is_some_and(|tools| tools.new)
            || self.texts.cut
    }

    /// The value of the `x-plimsoll-actions` header.
    pub fn format_actions(&self) -> String {
        let truncated = Some(self.truncated.len()).filter(|count| *count > 0);
        let cap = self.answer_cap.filter(|cap| cap.is_lowered());
        let held =
            Some(self.budget).filter(|it| it.reserve_given_up > 0 && self.stood_back.is_none());
        let numbers = [
            ("tools-shortened", self.short_tools.map(|it| it.tools)),
            ("truncated", truncated),
            ("cleared", self.cleared.as_ref().map(Cleared::count)),
            ("dropped", self.folded.map(|folded| folded.messages)),
            (
                "thinking-left-out",
                Some(self.reasoning_left_out.count()).filter(|count| *count > 0),
            ),
            ("clamped", cap.map(|cap| cap.sent as usize)),
            ("reserve", held.map(|budget| budget.reserve as usize)),
        ];
        let numbers = numbers.into_iter();
        let numbers = numbers.filter_map(|(word, number)| Some(format!("{word}={}", number?)));
        let reason = self.stood_back.map(|it| it.header_word().to_owned());
        let actions: Vec<String> = self
            .texts
            .header_words()
            .chain(numbers)
            .chain(reason)
            .collect();
        if actions.is_empty() {
            "none".to_owned()
        } else {
            actions.join(", ")
        }
    }
}

impl MeasuredRequest<'_> {
    /// The report of a request that goes out unchanged.
    pub(in crate::guard) fn report_untouched(&self, knowledge: &SessionKnowledge) -> Report {
        let raw = self.came.total();
        Report {
            raw_before: raw,
            raw_after: raw,
            expected: knowledge.calibration.to_expected_tokens(raw),
            budget: self.budgets.current_budget(),
            shares: self.came,
            sent: self.came,
            ..Report::default()
        }
    }

    /// Reports the tool definitions that are sent shorter; `None` if they are whole. `before`: how short they were in the
    /// last request.
    pub(in crate::guard) fn report_tools(
        &self,
        before: Option<ToolBrevity>,
    ) -> Option<ShortToolsReport> {
        let brevity = self.tools.brevity?;
        Some(ShortToolsReport {
            tools: self.tools.count,
            tokens: self.tools.count_freed(),
            descriptions: brevity == ToolBrevity::FirstSentences,
            new: before != Some(brevity),
        })
    }

    /// The plan without edits, for a request that goes out unchanged.
    pub(in crate::guard) fn stand_back(
        &self,
        reason: StandBackReason,
        knowledge: &SessionKnowledge,
    ) -> Plan {
        Plan {
            report: Report {
                stood_back: Some(reason),
                ..self.report_untouched(knowledge)
            },
            memory: knowledge.memory.clone(),
            history: knowledge.history,
            ..Plan::default()
        }
    }
}

impl StandBackReason {
    /// One word for headers and logs.
    pub const fn header_word(self) -> &'static str {
        match self {
            Self::Disabled => "guard-off",
            Self::ProviderManages(_) => "left-to-provider",
            Self::Unsound(_) => "guard-fault",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::inject::placed_injections::LeftOut;

    #[test]
    fn the_actions_header_lists_what_was_done() {
        let mut report = Report::default();
        assert_eq!(report.format_actions(), "none");
        report.folded = Some(FoldReport {
            messages: 14,
            came: 20,
            kept: 6,
            tokens: 9_000,
            new: true,
        });
        report.truncated.push(TruncationReport {
            message: 3,
            tool: "read".into(),
            before: 60_000,
            after: 4_040,
            tighter: false,
            new: true,
            call: false,
        });
        assert_eq!(report.format_actions(), "truncated=1, dropped=14");
        report.cleared = Some(Cleared {
            results: 3,
            inputs: 2,
            ..Cleared::default()
        });
        assert_eq!(
            report.format_actions(),
            "truncated=1, cleared=5, dropped=14"
        );
        let cap = AnswerCap {
            asked: 65_535,
            sent: 2_512,
        };
        report.answer_cap = Some(cap);
        assert_eq!(
            report.format_actions(),
            "truncated=1, cleared=5, dropped=14, clamped=2512"
        );
        for reason in [
            LeftOut::Stale,
            LeftOut::Stale,
            LeftOut::Stale,
            LeftOut::Foreign,
        ] {
            report.reasoning_left_out.add(reason);
        }
        assert_eq!(report.reasoning_left_out.describe(), "stale=3, foreign=1");
        assert_eq!(
            report.format_actions(),
            "truncated=1, cleared=5, dropped=14, thinking-left-out=4, clamped=2512"
        );
        let stood_back = Report {
            stood_back: Some(StandBackReason::ProviderManages("truncation")),
            ..Report::default()
        };
        assert_eq!(stood_back.format_actions(), "left-to-provider");
    }
}
