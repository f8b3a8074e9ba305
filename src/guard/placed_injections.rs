//! Puts the records of a course back at their places: what was sent once is sent ever after, so
//! that the prefix stays the same and the model sees what it was told and what it did.
//!
//! A record stands and falls with the messages around it: where one of them is folded away, so is
//! the record. One that cannot stand where it should is left out alone, and counted.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    echo::{self, Echo},
    gap::{Gap, GapContents},
    injections::{InjectionContent, InjectionRecord, Injections},
    lint::OutlineItem,
    tool_schemas::ToolSchemas,
    view::RequestView,
};
use crate::{
    conversation::{Author, edit::Edits, units},
    json::text::TextSizes,
};

/// All that is injected into a request: records at their places, and the schemas of the proxy's tools.
pub(super) struct PlacedInjections<'a> {
    view: RequestView<'a>,
    standing: Vec<PlacedRecords<'a>>,
    /// Records without a place in this conversation.
    astray: usize,
    schemas: Option<ToolSchemas<'a>>,
}

/// What stands at one place.
struct PlacedRecords<'a> {
    /// In messages without system ones.
    place: u32,
    /// The message before it.
    before: usize,
    /// The answer there, where it was echoed.
    answer: Option<usize>,
    between: GapContents,
    /// What belongs into the answer.
    into: Vec<&'a InjectionContent>,
}

/// What is injected beside the units of a conversation; raw tokens.
pub(super) struct InjectedWeight {
    /// To be added to each unit.
    pub(super) units: Vec<i64>,
    /// Beside all units that may go.
    pub(super) beside: i64,
    /// Of the records, what came since the last request.
    pub(super) fresh: i64,
    /// The units after which an injected turn begins.
    pub(super) turns: Vec<usize>,
}

impl<'a> PlacedInjections<'a> {
    /// Finds the place of everything in `ours`.
    pub(super) fn find_places(view: RequestView<'a>, ours: &'a Injections) -> Self {
        let tools = ours.tools.as_ref();
        let mut this = Self {
            view,
            standing: Vec::new(),
            astray: 0,
            schemas: tools
                .and_then(|tools| ToolSchemas::from_conversation(view.conversation, tools)),
        };
        if ours.records.is_empty() {
            return this;
        }
        let messages = view.conversation.items.iter().enumerate();
        let said: Vec<usize> = messages
            .filter(|(_, message)| !message.author.is_system())
            .map(|(at, _)| at)
            .collect();
        let past = ours.course.as_ref().map_or(0, |course| course.boundary);
        let mut places: BTreeMap<u32, Vec<&InjectionRecord>> = BTreeMap::new();
        for record in ours.records.iter().filter(|record| record.place >= past) {
            places.entry(record.place).or_default().push(record);
        }
        for (place, records) in places {
            let before = (place as usize).checked_sub(1);
            let Some(&before) = before.and_then(|before| said.get(before)) else {
                this.astray += records.len();
                continue;
            };
            let answer = said.get(place as usize).copied();
            let (between, into): (Vec<_>, Vec<_>) =
                records.iter().map(|record| &record.what).partition(|what| {
                    matches!(
                        what,
                        InjectionContent::Prompt(_) | InjectionContent::Round(_)
                    )
                });
            // Not in the middle of a step.
            let apart =
                answer.is_none_or(|answer| this.find_unit(answer) != this.find_unit(before));
            let mut gap = Gap::new(view, before, answer);
            for what in between {
                let stands = apart && gap.add_content(what);
                gap.between.left_out += usize::from(!stands);
            }
            this.standing.push(PlacedRecords {
                place,
                before,
                answer,
                between: gap.between,
                into,
            });
        }
        this
    }

    /// Texts that stand at the end of tool results, by their messages.
    pub(super) fn measure_blocks(&self) -> BTreeMap<usize, TextSizes> {
        let blocks = self.standing.iter();
        blocks
            .filter(|standing| standing.between.block.total_chars() > 0)
            .map(|standing| (standing.before, standing.between.block))
            .collect()
    }

    /// The answers whose text is edited where they echo what was injected: no cut may touch it too.
    pub(super) fn list_echoed_answers(&self) -> BTreeSet<usize> {
        let standing = self.standing.iter();
        standing.filter_map(|standing| standing.answer).collect()
    }

    /// The units after which an injected turn begins: a user message after an answer.
    fn find_turn_starts(&self) -> Vec<usize> {
        let begins = |pair: &[OutlineItem]| {
            matches!(
                pair,
                [
                    OutlineItem::InjectedAssistant(0),
                    OutlineItem::Injected(Author::User)
                ]
            )
        };
        let standing = self.standing.iter();
        standing
            .flat_map(|standing| {
                let turns = standing.between.items.windows(2).filter(|it| begins(it));
                turns.map(|_| self.find_unit(standing.before))
            })
            .collect()
    }

    /// What everything weighs beside each unit; a request with `known` messages came before.
    pub(super) fn weigh_injections(&self, known: usize) -> InjectedWeight {
        let units = self.view.units;
        let schemas = self.schemas.as_ref();
        let schemas = schemas.map_or(0, |it| it.count_tokens(&self.view.token_weights()));
        let mut weighed = InjectedWeight {
            units: vec![0; units.len()],
            beside: schemas.into(),
            fresh: 0,
            turns: self.find_turn_starts(),
        };
        let pinned = self.view.count_pinned();
        let goes = |at: usize| at >= pinned && !units[at].stays;
        for standing in &self.standing {
            let echo = self.edit_echoed_answer(standing, true);
            let between = i64::from(standing.between.tokens) - i64::from(echo.spared);
            let answer = standing.answer.map(|answer| self.find_unit(answer));
            let before = Some(self.find_unit(standing.before)).filter(|&at| goes(at));
            // What is pinned never goes, but the record goes with what follows.
            match before.or(answer.filter(|&at| goes(at))) {
                Some(at) => weighed.units[at] += between,
                None => weighed.beside += between,
            }
            if let Some(at) = answer {
                weighed.units[at] += i64::from(echo.tokens);
            }
            let place = standing.place as usize;
            if place > known {
                weighed.fresh += between;
            }
            if place >= known {
                weighed.fresh += i64::from(echo.tokens);
            }
        }
        weighed
    }

    /// Whether the schemas of the proxy's tools go out.
    pub(super) const fn adds_tools(&self) -> bool {
        self.schemas.is_some()
    }

    /// Puts everything back that stands among the messages that are `kept`: notes the edits, and
    /// gives the messages of the edited conversation and how many records had to be left out.
    pub(super) fn insert_records(
        &self,
        kept: &[bool],
        outline: Vec<OutlineItem>,
        edits: &mut Edits,
    ) -> (Vec<OutlineItem>, usize) {
        if let Some(schemas) = &self.schemas {
            schemas.insert_schemas(edits);
        }
        let mut left_out = self.astray;
        let mut after: BTreeMap<usize, Vec<OutlineItem>> = BTreeMap::new();
        let mut calls: BTreeMap<usize, u32> = BTreeMap::new();
        for standing in &self.standing {
            let answered = standing.answer.is_none_or(|answer| kept[answer]);
            let stands = kept[standing.before] && answered;
            if stands {
                let between = &standing.between;
                edits.merge(between.edits.clone());
                let items = after.entry(standing.before).or_default();
                items.extend(&between.items);
                left_out += between.left_out;
            }
            let Some(answer) = standing.answer else {
                left_out += standing.into.len();
                continue;
            };
            if kept[answer] {
                let echo = self.edit_echoed_answer(standing, stands);
                edits.merge(echo.edits);
                left_out += echo.left_out;
                *calls.entry(answer).or_default() += echo.calls;
                let items = after.entry(answer).or_default();
                items.extend((0..echo.results).map(|_| OutlineItem::InjectedResult));
            }
        }
        if after.is_empty() {
            return (outline, left_out);
        }
        let mut whole = Vec::with_capacity(outline.len() + after.len());
        for item in outline {
            let OutlineItem::Client(at) = item else {
                whole.push(item);
                continue;
            };
            whole.push(match calls.get(&at) {
                Some(&calls) if calls > 0 => OutlineItem::ClientWithCalls(at, calls),
                _ => item,
            });
            whole.extend(after.remove(&at).unwrap_or_default());
        }
        (whole, left_out)
    }

    /// What becomes of the echoed answer of a place, whose rounds stand before it or not.
    fn edit_echoed_answer(&self, standing: &PlacedRecords<'_>, stands: bool) -> Echo {
        let answer = standing
            .answer
            .filter(|&at| self.view.item(at).author == Author::Model);
        match answer {
            Some(answer) if !standing.into.is_empty() => {
                let round = stands && standing.between.round;
                echo::edit_echo(
                    self.view.conversation,
                    answer,
                    &standing.into,
                    round,
                    &self.view.token_weights(),
                )
            }
            _ => Echo {
                left_out: standing.into.len(),
                ..Echo::default()
            },
        }
    }

    /// The unit that a message is part of.
    fn find_unit(&self, message: usize) -> usize {
        units::find_unit_of_message(self.view.units, message)
    }
}

/// Raw tokens together with what is injected beside them.
pub(super) fn with_injected(tokens: u32, injected: i64) -> u32 {
    let sum = i64::from(tokens).saturating_add(injected).max(0);
    u32::try_from(sum).unwrap_or(u32::MAX)
}
