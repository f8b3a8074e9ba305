//! The edits that join several answers into one, and that remove from an event what is not for the
//! client.
//!
//! The numbers of events follow each other without a gap, and an event that repeats others has
//! what these have.

use super::{EventKind, OutputItem, ResponsesAnswer, assemble::OutputAssembler, read_answer};
use crate::{
    conversation::edit::Edits,
    format::{
        ResponseSummarizer,
        answer_rewriter::{
            BlockAnswer, BlockState, BlockStep, CutTexts, JoinedResponse, NewBlock, ParsedEvent,
            WholeBlock, write_cut,
        },
        responses::kinds::CallShape,
    },
    json::scan::{JsonString, Span},
};
use bytes::Bytes;

/// Bytes kept of the items of earlier answers, for the event that repeats them all. Beyond it, it
/// has those of the last answer only.
const MAX_EARLIER: usize = 4 << 20;

type JoinedResponses = JoinedResponse<ResponsesAnswer>;

/// What the client has of a stream, beside its items.
#[derive(Clone, Default)]
pub struct SentEvents {
    /// The raw id of the response, without quotes, once there was one.
    pub(super) id: Option<Bytes>,
    /// The number of the next event, once there was one.
    pub(super) next_number: Option<u64>,
}

impl JoinedResponses {
    /// What the client has of all answers.
    pub(in crate::format) fn sent_events(&self) -> SentEvents {
        SentEvents {
            id: self.first_id.clone(),
            ..self.sent.more.clone()
        }
    }
}

impl BlockAnswer for ResponsesAnswer {
    type Assembler = OutputAssembler;
    type Sent = SentEvents;

    fn read_whole(json: &[u8]) -> Option<Self> {
        read_answer(json).ok()
    }

    fn block_step<'a>(&self, json: &'a [u8]) -> BlockStep<'a> {
        let index = self.output_index.map(|(index, _)| index);
        match (self.kind, &self.item) {
            (EventKind::ItemBegin, Some(item)) => BlockStep::Begin(index, item.new_block(json)),
            (EventKind::ItemEnd, _) => BlockStep::End(index),
            _ if self.repeated_text.is_some() => BlockStep::TextEnd(index),
            _ if self.is_other_part => BlockStep::ClientPart(index),
            (EventKind::ItemPart, _) => BlockStep::Part(index),
            _ => BlockStep::None,
        }
    }

    fn id(&self) -> Option<JsonString> {
        self.response.id
    }

    fn model(&self) -> Option<JsonString> {
        self.response.model
    }

    fn whole_blocks<'a>(&self, json: &'a [u8]) -> Option<(Span, Vec<WholeBlock<'a>>)> {
        let (span, items) = self.response.output.as_ref()?;
        let blocks = items.iter().map(|item| WholeBlock {
            span: item.span,
            new: item.new_block(json),
            texts: match item.is_message() {
                true => item.texts.to_vec(),
                false => Vec::new(),
            },
        });
        Some((*span, blocks.collect()))
    }

    fn edit_event(
        joined: &mut JoinedResponses,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
        _closing: bool,
        edits: &mut Edits,
        summarizer: &mut ResponseSummarizer,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        // The client has the beginning of the first answer.
        if joined.continued && answer.kind == EventKind::Begin {
            return false;
        }
        if let (Some(id), None) = (answer.response.id, &joined.first_id) {
            joined.first_id = Some(json.slice(id.span.range()));
        }
        let begins = answer.kind == EventKind::ItemBegin;
        joined.edit_index(answer.output_index, begins, current, edits);
        joined.edit_texts(event, edits, summarizer);
        let item_texts = answer.item.iter().filter(|item| item.is_message());
        let item_texts = item_texts.flat_map(|item| &item.texts);
        for text in answer.repeated_text.iter().chain(item_texts) {
            if let Some(visible) = current.cut_repeated_text(&json[text.span.range()]) {
                edits.replace(text.span, visible);
            }
        }
        if answer.kind == EventKind::End {
            joined.edit_end(json, answer, current, edits);
        }
        answer.edit_reports(json, joined, current, edits, summarizer);
        if let Some((number, span)) = answer.sequence_number {
            let next = joined.sent.more.next_number.unwrap_or(number);
            if next != number {
                edits.replace(span, next.to_string());
            }
            joined.sent.more.next_number = Some(next.saturating_add(1));
        }
        true
    }

    fn keep_last_event(
        joined: &mut JoinedResponses,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
    ) {
        let json = &event.message.data;
        let mut kept = std::mem::take(&mut joined.earlier_content);
        for (item, texts) in event.answer.visible_items(json, current) {
            write_cut(json, item.span, &texts, &mut kept);
            kept.push(b',');
        }
        if kept.len() <= MAX_EARLIER {
            joined.earlier_content = kept;
        }
    }
}

impl JoinedResponses {
    /// Edits the answer that the last event repeats.
    fn edit_end(
        &mut self,
        json: &[u8],
        answer: &ResponsesAnswer,
        current: &BlockState<ResponsesAnswer>,
        edits: &mut Edits,
    ) {
        if let (Some(text), Some(first)) = (answer.response.id, &self.first_id)
            && json[text.span.range()] != first[..]
        {
            edits.replace(text.span, first.clone());
        }
        let Some((list, items)) = &answer.response.output else {
            return;
        };
        let visible = answer.visible_items(json, current);
        for (span, text) in visible.iter().flat_map(|(_, texts)| texts.iter().cloned()) {
            edits.replace(span, text);
        }
        let spans: Vec<Span> = items.iter().map(|item| item.span).collect();
        edits.remove_items(&spans, |at| current.is_removed_item(json, &items[at], at));
        let mut earlier = std::mem::take(&mut self.earlier_content);
        if visible.is_empty() {
            earlier.pop();
        }
        if !earlier.is_empty() {
            edits.insert(list.start + 1, earlier);
        }
    }
}

impl BlockState<ResponsesAnswer> {
    /// Whether the client does not get the item at this place in the list. A call is known by its
    /// name, since some servers give every item the same index.
    fn is_removed_item(&self, json: &[u8], item: &OutputItem, at: usize) -> bool {
        match item.new_block(json) {
            NewBlock::Call { name, .. } => self.blocks.is_proxy_tool(name),
            NewBlock::Text => self.blocks.is_removed_text(at as u64),
            NewBlock::ClientCall | NewBlock::Other => false,
        }
    }
}

impl ResponsesAnswer {
    /// Notes that the client got this event as it came.
    pub fn note_sent(&self, json: &[u8], sent: &mut SentEvents) {
        if let (Some(id), None) = (self.response.id, &sent.id) {
            sent.id = Some(Bytes::copy_from_slice(&json[id.span.range()]));
        }
        if let Some((number, _)) = self.sequence_number {
            sent.next_number = Some(number.saturating_add(1));
        }
    }

    /// The items that the client gets of the list, and what it gets of their texts where it is not
    /// all.
    fn visible_items(
        &self,
        json: &[u8],
        current: &BlockState<Self>,
    ) -> Vec<(&OutputItem, CutTexts)> {
        let items = self.response.output.iter().flat_map(|(_, items)| items);
        let visible = items
            .enumerate()
            .filter(|(at, item)| !current.is_removed_item(json, item, *at));
        let cut = visible.map(|(_, item)| {
            let texts = item.texts.iter().filter(|_| item.is_message());
            let cut = texts.filter_map(|text| {
                let visible = current.cut_repeated_text(&json[text.span.range()])?;
                Some((text.span, visible))
            });
            (item, cut.collect())
        });
        cut.collect()
    }
}

impl OutputItem {
    fn new_block<'a>(&self, json: &'a [u8]) -> NewBlock<'a> {
        let raw = |text: Option<JsonString>| text.map_or(&b""[..], |it| &json[it.span.range()]);
        match self.call_shape() {
            Some(CallShape::Function) => NewBlock::Call {
                id: raw(self.call_id),
                name: raw(self.name),
            },
            Some(_) => NewBlock::ClientCall,
            None if self.is_message() && !self.has_other_part => NewBlock::Text,
            None => NewBlock::Other,
        }
    }
}
