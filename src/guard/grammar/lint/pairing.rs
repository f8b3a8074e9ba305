//! Pairs the calls and results of an outline, and what the server ran with its results.

use std::collections::{HashMap, HashSet};

use crate::{
    config::profile::Profile,
    conversation::{Conversation, LinkKind},
    guard::grammar::outline::{OutlineItem, list_client_items},
};

/// The place of an injected message among those that do not pair.
const INJECTED: usize = usize::MAX;

/// Pairs calls and results along an outline.
#[derive(Default)]
pub(super) struct Pairing {
    /// Messages with open calls, by id. If results must directly follow calls, only those of the last answer are open.
    calls: HashMap<Option<u128>, Vec<usize>>,
    /// Open calls of the injected answer before.
    injected: u32,
    /// Ids of calls and of what the server ran, so far.
    named: HashSet<u128>,
    /// Messages with calls that the server runs and that have no result so far, by id.
    served: HashMap<u128, usize>,
    /// Messages whose calls have no result, whose result has no call, or that refer to what is not there.
    pub(super) unpaired: Vec<usize>,
}

impl Pairing {
    /// Pairs calls and results. A result must directly follow its call, unless format and provider accept it elsewhere.
    pub(super) fn of_outline(
        conversation: &Conversation,
        items: &[OutlineItem],
        profile: &Profile,
    ) -> Self {
        let results_may_be_apart =
            conversation.format.rules().results_may_be_apart && profile.results_may_be_apart;
        let mut pairing = Self::default();
        for item in items {
            let (at, calls) = match *item {
                OutlineItem::Injected(_) => (None, 0),
                OutlineItem::InjectedAssistant(calls) => (None, calls),
                OutlineItem::Client(at) => (Some(at), 0),
                OutlineItem::ClientWithCalls(at, calls) => (Some(at), calls),
                OutlineItem::InjectedResult if pairing.injected > 0 => {
                    pairing.injected -= 1;
                    continue;
                }
                OutlineItem::InjectedResult => {
                    pairing.unpaired.push(INJECTED);
                    continue;
                }
            };
            if !item.role(conversation).is_tool() {
                pairing.end_injected();
                if !results_may_be_apart {
                    pairing.end_answer();
                }
                pairing.injected = calls;
            }
            if let Some(at) = at {
                pairing.add_item(conversation, at);
            }
        }
        pairing.end_injected();
        pairing.end_answer();
        pairing
    }

    fn of_client(conversation: &Conversation, profile: &Profile) -> Self {
        Self::of_outline(conversation, &list_client_items(conversation), profile)
    }

    /// Counts the messages that do not pair, except those among the `known` ones.
    pub(super) fn count_beyond(self, known: Self) -> u32 {
        let mut known = known.list_faults().into_iter().peekable();
        let is_new = |at: &usize| {
            while known.next_if(|known| known < at).is_some() {}
            known.next_if_eq(at).is_none()
        };
        self.list_faults().into_iter().filter(is_new).count() as u32
    }

    fn add_result(&mut self, at: usize, id: Option<u128>) {
        match self.calls.get_mut(&id) {
            Some(calls) => drop(calls.pop()),
            None => self.unpaired.push(at),
        }
    }

    fn end_injected(&mut self) {
        let open = std::mem::take(&mut self.injected) > 0;
        self.unpaired.extend(open.then_some(INJECTED));
    }

    fn end_answer(&mut self) {
        let open = self.calls.drain().flat_map(|(_, calls)| calls);
        self.unpaired.extend(open);
    }

    /// Lists the messages that do not pair, in order; also those with a call that the server has no result for.
    fn list_faults(mut self) -> Vec<usize> {
        self.unpaired.extend(self.served.into_values());
        self.unpaired.sort_unstable();
        self.unpaired
    }

    fn add_item(&mut self, conversation: &Conversation, at: usize) {
        let item = &conversation.items[at];
        let digest = |id| conversation.digest_text(id);
        if item.author.is_tool() {
            self.add_result(at, item.call_id.map(digest));
        }
        for call in conversation.calls_of(item) {
            let id = call.id.map(digest);
            self.named
                .extend(id.filter(|_| !conversation.links.is_empty()));
            self.calls.entry(id).or_default().push(at);
        }
        for link in conversation.links_of(item) {
            let id = digest(link.id);
            match link.kind {
                LinkKind::Use => {
                    self.named.insert(id);
                    self.served.insert(id, at);
                }
                _ if !self.named.contains(&id) => self.unpaired.push(at),
                LinkKind::Result => drop(self.served.remove(&id)),
                LinkKind::Caller | LinkKind::Load => {}
            }
        }
    }
}

/// Whether each call of a conversation has its result, and each result its call.
pub(in crate::guard) fn has_paired_calls(conversation: &Conversation, profile: &Profile) -> bool {
    Pairing::of_client(conversation, profile)
        .unpaired
        .is_empty()
}

/// Whether nothing in a conversation waits for a result, no call of the server either, and each result has its call.
pub fn is_fully_paired(conversation: &Conversation, profile: &Profile) -> bool {
    let pairing = Pairing::of_client(conversation, profile);
    pairing.list_faults().is_empty()
}
