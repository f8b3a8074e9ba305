//! What recovery adds to a request, and what is taken out of its answer.

use std::borrow::Cow;

use super::{RecoveryStep, is_prompt};
use crate::{
    conversation::Conversation,
    guard::{
        dropped_rounds,
        injections::{
            InjectedAuthor, InjectedTools, InjectionContent, InjectionRecord, Injections, ToolSet,
        },
    },
    recovery::tool::{self, Offer},
    relay::AnswerFilter,
};

impl RecoveryStep {
    /// Notes the tools of the plan. If a cut brought them, they stay as if a prompt had brought them.
    pub fn note_sent_tools(&mut self, sent: ToolSet) {
        if self.adds_nothing {
            return;
        }
        self.sent_tools = self.sent_tools.union(sent);
        self.memory.tools = self.memory.tools.union(sent);
        if sent.has_reminders() && self.memory.language.is_none() {
            self.memory.language = Some(self.language);
        }
    }

    /// Collects recovery's additions to the request. A tool round that is not sent leaves a record which takes its blocks
    /// out of the answer that the client echoes, whether or not recovery adds anything.
    pub fn collect_injections(&self, conversation: &Conversation) -> Injections {
        if self.adds_nothing {
            let records = dropped_rounds::end_records(self.format, &self.memory.records, 0);
            let records = records.iter();
            return Injections {
                records: records
                    .map(|it| restore_results(it, conversation))
                    .collect(),
                ..Injections::default()
            };
        }
        let (tools, tools_when_cut) = self.offered_tools();
        let offered = tools_when_cut.as_ref().or(tools.as_ref());
        let offered = offered.map(|tools| tools.set);
        // An entry of tools is sent only if its tools are those that are offered now; else they are in the list of tools.
        let is_offered = |record: &&InjectionRecord| match record.what {
            InjectionContent::Tools { set, .. } => offered == Some(set),
            _ => true,
        };
        let records = self.memory.records.iter().filter(is_offered);
        let records = records.filter_map(|record| {
            let kept = if self.is_sendable(record) {
                Some(Cow::Borrowed(record))
            } else {
                dropped_rounds::drop_record(self.format, record).map(Cow::Owned)
            };
            kept.map(|record| restore_results(&record, conversation))
        });
        Injections {
            course: self.memory.course.clone(),
            summary: None,
            records: records.collect(),
            tools,
            tools_when_cut,
            names_ids: self.offer.can_recall(),
            tight_chars: self.tight_chars,
        }
    }

    /// What is taken out of the answer.
    pub fn answer_filter(&self) -> AnswerFilter {
        if self.adds_nothing {
            return AnswerFilter::default();
        }
        AnswerFilter {
            tools: tool::list_names(self.sent_tools),
            // A model may answer a prompt late, in a request that could not carry one.
            package: (!self.lists_tools || self.asks_for_text)
                && self.memory.records.iter().any(is_prompt),
        }
    }

    /// Whether the request has any of recovery's additions.
    pub fn adds_anything(&self) -> bool {
        !self.adds_nothing
            && (!self.sent_tools.is_empty()
                || self.memory.course.is_some()
                || self.memory.records.iter().any(|it| self.is_addition(it)))
    }

    /// Returns the proxy-executed tools of the request, and those in their place if anything is cut. The last tool round has
    /// none, so that the model must answer.
    fn offered_tools(&self) -> (Option<InjectedTools>, Option<InjectedTools>) {
        match &self.offer {
            Offer::Tools(tools) if self.rounds < self.max_rounds => {
                (tools.now.clone(), tools.when_cut.clone())
            }
            _ => (None, None),
        }
    }

    /// Whether the record adds anything to the request. Some records only take blocks and texts out of an echoed answer.
    fn is_addition(&self, record: &InjectionRecord) -> bool {
        let takes_out = matches!(
            record.what,
            InjectionContent::DroppedRound { .. }
                | InjectionContent::Spoken { .. }
                | InjectionContent::HiddenPlaces(_)
        );
        !takes_out && self.is_sendable(record)
    }

    /// Whether the provider accepts the record in the request.
    fn is_sendable(&self, record: &InjectionRecord) -> bool {
        self.lists_tools || !has_proxy_calls(record)
    }
}

/// Makes a record as it is sent: recalled texts are not stored in the record, but made from the client's messages.
fn restore_results(record: &InjectionRecord, conversation: &Conversation) -> InjectionRecord {
    let mut record = record.clone();
    let restore = |result: &mut Box<str>| {
        if let Cow::Owned(restored) = tool::restore_result(result, conversation) {
            *result = restored.into();
        }
    };
    match &mut record.what {
        InjectionContent::Round(messages) => {
            let results = messages.iter_mut();
            let results = results.filter(|message| message.by == InjectedAuthor::Tool);
            results.for_each(|message| restore(&mut message.json));
        }
        InjectionContent::Calls { results, .. } => results.iter_mut().for_each(restore),
        _ => {}
    }
    record
}

fn has_proxy_calls(record: &InjectionRecord) -> bool {
    match &record.what {
        InjectionContent::Calls { .. } => true,
        InjectionContent::Round(messages) => messages
            .iter()
            .any(|message| matches!(message.by, InjectedAuthor::Model { calls } if calls > 0)),
        _ => false,
    }
}
