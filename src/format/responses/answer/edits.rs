//! The edits that join several answers into one, and that remove from an event what is not for the
//! client.
//!
//! The numbers of events follow each other without a gap. An event that repeats earlier events has the content that the
//! client got of them.

use super::{EventKind, OutputItem, ResponsesAnswer, assemble::KeptOutput, read_answer};
use crate::{
    conversation::edit::Edits,
    format::{
        SentEvents,
        answer_rewriter::{
            BlockAnswer, BlockState, BlockStep, CutBlock, JoinedResponse, NewBlock, ParsedEvent,
            WholeBlock,
        },
        responses::kinds::CallShape,
    },
    json::scan::{JsonString, Span},
};

/// Bytes kept of the items of earlier answers, for the event that repeats them all. Above this limit, that event has the
/// items of the last answer only.
const MAX_EARLIER: usize = 4 << 20;

type JoinedResponses = JoinedResponse<ResponsesAnswer>;

impl BlockAnswer for ResponsesAnswer {
    type Assembler = KeptOutput;
    type Sent = SentEvents;

    fn read_whole(json: &[u8]) -> Option<Self> {
        read_answer(json).ok()
    }

    fn block_step<'a>(&self, json: &'a [u8]) -> Option<(Option<u64>, BlockStep<'a>)> {
        let index = self.output_index.map(|(index, _)| index);
        let step = match (self.kind, &self.item) {
            (EventKind::ItemBegin, Some(item)) => BlockStep::Begin(item.new_block(json)),
            (EventKind::ItemEnd, _) => BlockStep::End,
            _ if self.repeated_text.is_some() => BlockStep::TextEnd,
            _ if self.is_other_part => BlockStep::ClientPart,
            (EventKind::ItemPart, _) => BlockStep::Part,
            _ => return None,
        };
        Some((index, step))
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
            texts: item.message_texts().to_vec(),
        });
        Some((*span, blocks.collect()))
    }

    fn edit_event(
        joined: &mut JoinedResponses,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
        _closing: bool,
        edits: &mut Edits,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        // The client has the beginning of the first answer.
        if joined.continued && answer.kind == EventKind::Begin {
            return false;
        }
        if let (Some(id), None) = (answer.response.id, &joined.first_id) {
            joined.first_id = Some(json.slice(id.span.range()));
        }
        if let (Some(model), None) = (answer.response.model, &joined.sent.model) {
            joined.sent.model = Some(json.slice(model.quoted_span().range()));
        }
        let begins = answer.kind == EventKind::ItemBegin;
        joined.edit_index(answer.output_index, begins, current, edits);
        joined.edit_texts(event, edits);
        let item_texts = answer.item.iter().flat_map(OutputItem::message_texts);
        for text in answer.repeated_text.iter().chain(item_texts) {
            if let Some(visible) = current.cut_repeated_text(text.raw_bytes(json)) {
                edits.replace(text.span, visible);
            }
        }
        if answer.kind == EventKind::End {
            joined.edit_end(json, answer, current, edits);
        }
        answer.edit_reports(json, joined, current, edits);
        if let Some((number, span)) = answer.sequence_number {
            let next = joined.sent.next_number.unwrap_or(number);
            if next != number {
                edits.replace(span, next.to_string());
            }
            joined.sent.next_number = Some(next.saturating_add(1));
        }
        true
    }

    fn keep_last_event(
        joined: &mut JoinedResponses,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
    ) {
        let json = &event.message.data;
        joined.keep_blocks(json, &current.cut_items(json, &event.answer));
        if joined.earlier_content.len() > MAX_EARLIER {
            joined.earlier_content = Vec::new();
        }
    }
}

impl JoinedResponses {
    /// What the client has of all answers.
    pub(in crate::format) fn sent_events(&self) -> SentEvents {
        SentEvents {
            id: self.first_id.clone(),
            model: self.asked_model.clone().or_else(|| self.sent.model.clone()),
            ..self.sent.clone()
        }
    }

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
        if let Some((list, _)) = &answer.response.output {
            self.edit_blocks(*list, &current.cut_items(json, answer), edits);
        }
    }
}

impl BlockState<ResponsesAnswer> {
    /// What the client gets of the items that the last event repeats.
    fn cut_items(&self, json: &[u8], answer: &ResponsesAnswer) -> Vec<CutBlock> {
        let items = answer.response.output.iter().flat_map(|(_, items)| items);
        let cut = items.enumerate().map(|(at, item)| {
            let is_removed = self.is_removed_item(json, item, at);
            let texts = item.message_texts().iter().filter(|_| !is_removed);
            let texts = texts.filter_map(|text| {
                let visible = self.cut_repeated_text(text.raw_bytes(json))?;
                Some((text.span, visible))
            });
            CutBlock {
                span: item.span,
                is_removed,
                texts: texts.collect(),
            }
        });
        cut.collect()
    }

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

impl OutputItem {
    fn new_block<'a>(&self, json: &'a [u8]) -> NewBlock<'a> {
        let raw = |text: Option<JsonString>| text.map_or(&b""[..], |it| it.raw_bytes(json));
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
