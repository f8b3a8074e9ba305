//! Puts the records of a course back at their places. A record that was sent once is in every later request, so
//! that the prefix stays the same and the model sees its prompts and its own calls.
//!
//! A record is left out if one of the messages around it is folded. A record that the profile does not allow at its place is
//! left out alone, and counted.

mod injected_weight;
mod sent_tools;
mod stale_reasoning;

use std::collections::{BTreeMap, BTreeSet};

pub(in crate::guard) use self::injected_weight::{InjectedGap, InjectedWeight, with_injected};
pub use self::stale_reasoning::{LeftOut, LeftOutReasoning};
pub(in crate::guard) use self::{sent_tools::SentTools, stale_reasoning::UnusableReasoning};
use crate::{
    conversation::{Author, ItemPlace, edit::Edits, units},
    guard::{
        grammar::{message_order::MessageOrder, outline::OutlineItem, prompt_placement},
        inject::{
            echo::{self, Echo, RepeatedBlocks},
            gap::{Gap, GapContents},
            injections::{InjectedTools, InjectionContent, InjectionRecord, Injections},
            tool_schemas::ToolSchemas,
        },
        request::{answer_place::AnswerPlace, view::RequestView},
    },
    json::text::TextSizes,
};

/// Everything injected into a request: records at their places, and the schemas of the proxy's tools.
pub(in crate::guard) struct PlacedInjections<'a> {
    view: RequestView<'a>,
    unusable: UnusableReasoning<'a>,
    places: Vec<PlacedRecords<'a>>,
    /// Records without a place in this conversation.
    unplaced: usize,
    schemas: Option<ToolSchemas<'a>>,
    schemas_when_cut: Option<ToolSchemas<'a>>,
}

struct PlacedRecords<'a> {
    /// Messages before it, without system messages.
    place: u32,
    /// The index of the message before it.
    before: usize,
    /// The index of the message after it: the answer as the client echoes it.
    answer: Option<usize>,
    between: GapContents<'a>,
    /// Digests of the records that were added before the answer.
    between_digests: Vec<u128>,
    /// Tool rounds before the answer, also those that could not be added.
    rounds: u32,
    /// Whether there are rounds before the answer, or were before they were dropped.
    follows_rounds: bool,
    /// Records that belong into the answer.
    into: Vec<&'a InjectionContent>,
}

impl PlacedRecords<'_> {
    /// Whether the records before the answer are sent if these messages are `kept`.
    fn is_sent_where(&self, kept: &[bool]) -> bool {
        kept[self.before] && self.answer.is_none_or(|answer| kept[answer])
    }

    /// Whether the answer is edited for its records.
    const fn has_echo(&self) -> bool {
        !(self.into.is_empty() && self.between.blocks.is_empty())
    }
}

/// What is sent with all records put back.
pub(in crate::guard) struct InsertedRecords {
    /// The outline of the request with all of them.
    pub(in crate::guard) outline: Vec<OutlineItem>,
    /// Records that are not valid at their places.
    pub(in crate::guard) records_left_out: usize,
    pub(in crate::guard) reasoning_left_out: LeftOutReasoning,
}

/// A change of what the client sent, such as a record that is put back.
#[derive(Clone, Copy)]
pub(in crate::guard) struct SentChange {
    /// The client's messages before it, without system messages.
    pub(in crate::guard) place: u32,
    /// The digest of what is changed; of a record, with the reasoning in it.
    pub(in crate::guard) digest: u128,
}

/// What is added to the outline after a message.
#[derive(Default)]
struct OutlineAfter {
    /// Directly behind the message, or behind the preface if that follows the message.
    direct: Vec<OutlineItem>,
    /// Behind the system messages that follow the message.
    behind_system: Vec<OutlineItem>,
}

impl<'a> PlacedInjections<'a> {
    /// Finds the place of each record of the current course. The reasoning of rounds before `epoch` is not weighed: it is left
    /// out. [`Self::insert_records`] takes the epoch of the request, which may be later.
    pub(in crate::guard) fn find_places(
        view: RequestView<'a>,
        injections: &'a Injections,
        unusable: UnusableReasoning<'a>,
        epoch: AnswerPlace,
    ) -> Self {
        let find_schemas = |tools: &'a Option<InjectedTools>| {
            let tools = tools.as_ref()?;
            ToolSchemas::from_conversation(view.conversation, tools)
        };
        let mut this = Self {
            view,
            unusable,
            places: Vec::new(),
            unplaced: 0,
            schemas: find_schemas(&injections.tools),
            schemas_when_cut: find_schemas(&injections.tools_when_cut),
        };
        if injections.records.is_empty() {
            return this;
        }
        let items = &view.conversation.items;
        let messages: Vec<usize> = (0..items.len())
            .filter(|&at| !items[at].author.is_system())
            .collect();
        let course = injections.course.as_ref();
        let summarised = view.conversation.summarised;
        let boundary = course.map_or(0, |course| course.boundary).max(summarised);
        let mut by_place: BTreeMap<u32, Vec<&InjectionContent>> = BTreeMap::new();
        for InjectionRecord { place, what } in &injections.records {
            if *place >= boundary {
                by_place.entry(*place).or_default().push(what);
            }
        }
        for (place, records) in by_place {
            let nth = (place - summarised) as usize;
            let before = nth.checked_sub(1).and_then(|before| messages.get(before));
            let Some(&before) = before else {
                this.unplaced += records.len();
                continue;
            };
            let answer = messages.get(nth).copied();
            let (between, into): (Vec<_>, _) =
                records.into_iter().partition(|it| it.is_before_answer());
            let follows_rounds = between.iter().any(|it| it.is_round());
            // Nothing is injected into the middle of a step.
            let apart =
                answer.is_none_or(|answer| this.find_unit(answer) != this.find_unit(before));
            let mut gap = Gap::new(view, before, answer);
            let (mut between_digests, mut rounds) = (Vec::new(), 0);
            for record in between {
                if let InjectionContent::DroppedRound { blocks } = record {
                    gap.between.blocks.extend(blocks);
                    continue;
                }
                let round = rounds;
                rounds += u32::from(matches!(record, InjectionContent::Round(_)));
                let drops_reasoning = view.leaves_out(AnswerPlace { place, round }, epoch);
                let added = apart && gap.add_content(record, round, drops_reasoning);
                gap.between.left_out += usize::from(!added);
                between_digests.extend(added.then(|| record.digest()));
            }
            this.places.push(PlacedRecords {
                place,
                before,
                answer,
                between: gap.between,
                between_digests,
                rounds,
                follows_rounds,
                into,
            });
        }
        this
    }

    /// Sizes of the texts injected at the end of tool results, by message.
    pub(in crate::guard) fn measure_blocks(&self) -> BTreeMap<usize, TextSizes> {
        let blocks = self.places.iter().map(|it| (it.before, it.between.block));
        blocks
            .filter(|(_, sizes)| sizes.total_chars() > 0)
            .collect()
    }

    /// The answers whose text is edited for a record, so that no cut may touch it.
    pub(in crate::guard) fn list_echoed_answers(&self) -> BTreeSet<usize> {
        self.places.iter().filter_map(|it| it.answer).collect()
    }

    /// Whether what is injected directly behind message `before` begins with an answer. `is_sent`: whether a message is sent.
    /// Nothing is injected before one that is not.
    pub(in crate::guard) fn answers_behind(
        &self,
        before: usize,
        is_sent: impl Fn(usize) -> bool,
    ) -> bool {
        let records = self.places.iter().find(|it| it.before == before);
        records.is_some_and(
            |PlacedRecords {
                 answer, between, ..
             }| {
                let mut items = between.prompts.items.iter().chain(&between.turns.items);
                let first = items.next().map(|item| item.role(self.view.conversation));
                first == Some(Author::Model) && answer.is_none_or(is_sent)
            },
        )
    }

    /// Lists the records that are sent if these messages are `kept`.
    pub(in crate::guard) fn list_sent_records(&self, kept: &[bool]) -> Vec<SentChange> {
        let mut sent = Vec::new();
        for records in &self.places {
            let place = records.place;
            let mut add = |digest| sent.push(SentChange { place, digest });
            if records.is_sent_where(kept) {
                records.between_digests.iter().copied().for_each(&mut add);
            }
            if records.answer.is_some_and(|answer| kept[answer]) {
                records.into.iter().map(|it| it.digest()).for_each(add);
            }
        }
        sent
    }

    /// Puts back the schemas, and the records among the messages that are `kept`. Inserts bound messages that have moved
    /// between the prompts and the tool rounds, and leaves out the reasoning before `epoch` if it is refused.
    pub(in crate::guard) fn insert_records(
        &self,
        kept: &[bool],
        is_cut: bool,
        order: MessageOrder,
        epoch: AnswerPlace,
        edits: &mut Edits,
    ) -> InsertedRecords {
        if let Some(schemas) = self.listed_schemas(kept, is_cut) {
            schemas.insert_schemas(edits);
        }
        let (mut left_out, mut reasoning_left_out) = (self.unplaced, LeftOutReasoning::default());
        let mut after: BTreeMap<usize, OutlineAfter> = BTreeMap::new();
        let mut turns = Edits::default();
        let mut calls: BTreeMap<usize, u32> = BTreeMap::new();
        let mut removed: BTreeSet<usize> = BTreeSet::new();
        for records in &self.places {
            let stands = records.is_sent_where(kept);
            if stands {
                let between = &records.between;
                let is_stale = |round: u32| {
                    let made = AnswerPlace {
                        place: records.place,
                        round,
                    };
                    self.view.leaves_out(made, epoch)
                };
                let conversation = self.view.conversation;
                edits.merge(between.prompts.make_edits(conversation, is_stale));
                turns.merge(between.turns.make_edits(conversation, is_stale));
                let after = after.entry(records.before).or_default();
                after.direct.extend(&between.prompts.items);
                after.behind_system.extend(&between.turns.items);
                left_out += between.left_out;
            }
            let Some(answer) = records.answer else {
                left_out += records.into.len();
                continue;
            };
            let is_removable = kept[answer] && kept.get(answer + 1) == Some(&true);
            let last = || {
                if stands {
                    self.find_author_before(records, answer)
                } else {
                    self.find_author_before_gap(kept, &order, answer)
                }
            };
            if is_removable
                && last().is_some_and(|last| self.can_remove_answer(records, answer, last))
                && self.view.conversation.remove_entry(answer, edits)
            {
                removed.insert(answer);
            } else if kept[answer] {
                let place = records.place;
                let made = AnswerPlace {
                    place,
                    round: records.rounds,
                };
                let reason = self.find_reason(made, Some(records), stands, epoch);
                let echo = self.edit_echoed_answer(records, stands, reason.is_some());
                edits.merge(echo.edits);
                if let Some(reason) = reason.filter(|_| records.has_echo()) {
                    reasoning_left_out.add(reason);
                }
                left_out += echo.left_out;
                *calls.entry(answer).or_default() += echo.calls;
                let results = (0..echo.results).map(|_| OutlineItem::InjectedResult);
                after.entry(answer).or_default().direct.extend(results);
            }
        }
        self.leave_out_reasoning(kept, &removed, epoch, edits, &mut reasoning_left_out);
        // Edits at one place keep this order.
        order.insert_moved(self.view.conversation, edits);
        edits.merge(turns);
        InsertedRecords {
            outline: self.outline_with_records(order.outline, after, &calls, &removed),
            records_left_out: left_out,
            reasoning_left_out,
        }
    }

    /// Adds to the outline what is inserted `after` messages and the number of injected `calls` in answers, and takes out
    /// the messages that are `removed`.
    fn outline_with_records(
        &self,
        outline: Vec<OutlineItem>,
        mut after: BTreeMap<usize, OutlineAfter>,
        calls: &BTreeMap<usize, u32>,
        removed: &BTreeSet<usize>,
    ) -> Vec<OutlineItem> {
        if after.is_empty() && removed.is_empty() {
            return outline;
        }
        let mut with_records = Vec::with_capacity(outline.len() + after.len());
        let mut open = OutlineAfter::default();
        for item in outline {
            let OutlineItem::Client(at) = item else {
                with_records.push(item);
                continue;
            };
            with_records.append(&mut open.direct);
            if !self.view.item(at).author.is_system() {
                with_records.append(&mut open.behind_system);
            }
            if !removed.contains(&at) {
                with_records.push(match calls.get(&at) {
                    Some(&calls) if calls > 0 => OutlineItem::ClientWithCalls(at, calls),
                    _ => item,
                });
            }
            if let Some(after) = after.remove(&at) {
                open = after;
            }
        }
        with_records.extend(open.direct);
        with_records.extend(open.behind_system);
        with_records
    }

    /// The edits of the echoed answer at a place. `stands`: the rounds before the answer are sent.
    fn edit_echoed_answer(
        &self,
        records: &PlacedRecords<'_>,
        stands: bool,
        drops_reasoning: bool,
    ) -> Echo {
        let PlacedRecords { into, between, .. } = records;
        let blocks = &*between.blocks;
        let is_answer = |at: &usize| self.view.item(*at).author == Author::Model;
        match records.answer.filter(is_answer) {
            Some(answer) if records.has_echo() => echo::edit_echo(
                self.view.conversation,
                answer,
                into,
                (between.round && stands || !blocks.is_empty()).then_some(blocks),
                drops_reasoning,
                &self.view.token_weights(),
            ),
            _ => Echo {
                left_out: into.len(),
                ..Echo::default()
            },
        }
    }

    /// The author of the message before an answer if the rounds before it are sent; `None` if only an answer may follow it.
    fn find_author_before(&self, records: &PlacedRecords<'_>, answer: usize) -> Option<Author> {
        let PlacedRecords {
            before, between, ..
        } = records;
        match between.turns.items.last() {
            Some(item) => Some(item.role(self.view.conversation)),
            // Only an answer may follow a system message.
            None if *before + 1 < answer || !between.prompts.items.is_empty() => None,
            None => Some(self.view.item(*before).author),
        }
    }

    /// The same if the client's message before the answer is left out: a course or a cut begins with the answer. `None` also
    /// if the answer is the first entry of the list that stays.
    fn find_author_before_gap(
        &self,
        kept: &[bool],
        order: &MessageOrder,
        answer: usize,
    ) -> Option<Author> {
        let conversation = self.view.conversation;
        let is_entry = |at: usize| !matches!(self.view.item(at).place, ItemPlace::Outside);
        if !(0..answer).any(|at| kept[at] && is_entry(at)) {
            return None;
        }
        let is_answer =
            |item: &OutlineItem| matches!(item, OutlineItem::Client(at) if *at == answer);
        let at = order.outline.iter().position(is_answer)?;
        let mut before = order.outline[..at].iter().rev();
        let last = before.next()?.role(conversation);
        (!last.is_system()).then_some(last)
    }

    /// Whether the echoed answer can be removed whole: it has nothing but blocks of the rounds before it, and the message
    /// after it may follow a message of the author `last`.
    fn can_remove_answer(&self, records: &PlacedRecords<'_>, answer: usize, last: Author) -> bool {
        let (conversation, profile) = (self.view.conversation, self.view.policy.profile);
        let (message, next) = (self.view.item(answer), conversation.items.get(answer + 1));
        message.author == Author::Model
            && next.is_some_and(|next| {
                !next.author.is_system() && prompt_placement::can_follow(last, next.author, profile)
            })
            && RepeatedBlocks::find(conversation, message, &records.between.blocks).are_all()
    }

    fn find_unit(&self, message: usize) -> usize {
        units::find_unit_of_message(self.view.units, message)
    }
}
