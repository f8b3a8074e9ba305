//! The edits that join several answers into one, and that remove from an event what is not for the
//! client.

use super::{EventKind, MessagesAnswer, assemble::BlockParts, read_answer};
use crate::{
    conversation::edit::Edits,
    format::{
        UsageCountKind, UsageReport,
        answer_rewriter::{
            BlockAnswer, BlockState, BlockStep, JoinedResponse, KeptBlocks, NewBlock, ParsedEvent,
            WholeBlock,
        },
        values::ObjectSpans,
    },
    json::scan::{JsonString, Span},
};

type MessagesResponse = JoinedResponse<MessagesAnswer>;

impl BlockAnswer for MessagesAnswer {
    type Assembler = KeptBlocks<BlockParts>;
    type Sent = ();

    const END_REASON: Option<&'static str> = Some("end_turn");
    const ONLY_BLOCK: Option<[&'static str; 3]> = Some([
        "Noted.",
        r#"{"type":"text","text":"Noted."}"#,
        concat!(
            "event: content_block_start\n",
            r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            "\n\nevent: content_block_delta\n",
            r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Noted."}}"#,
            "\n\nevent: content_block_stop\n",
            r#"data: {"type":"content_block_stop","index":0}"#,
            "\n\n"
        ),
    ]);

    fn read_whole(json: &[u8]) -> Option<Self> {
        read_answer(json).ok()
    }

    fn block_step<'a>(&self, json: &'a [u8]) -> Option<(Option<u64>, BlockStep<'a>)> {
        let index = self.index.map(|(index, _)| index);
        let step = match (self.kind, &self.part) {
            (EventKind::BlockStart, Some(block)) => BlockStep::Begin(new_block(block, json)),
            (EventKind::BlockStop, _) => BlockStep::End,
            (EventKind::BlockDelta, _) => BlockStep::Part,
            // Any other event with an index is about a block too.
            _ => index.map(|_| BlockStep::Part)?,
        };
        Some((index, step))
    }

    fn is_last(&self) -> bool {
        self.kind == EventKind::MessageStop
    }

    fn id(&self) -> Option<JsonString> {
        self.id
    }

    fn model(&self) -> Option<JsonString> {
        self.model
    }

    fn whole_blocks<'a>(&self, json: &'a [u8]) -> Option<(Span, Vec<WholeBlock<'a>>)> {
        let (list, blocks) = self.content.as_ref()?;
        let blocks = blocks.iter().map(|block| {
            let is_text = block.type_name(json) == b"text";
            let text = block.find_text(json, b"text").filter(|_| is_text);
            WholeBlock {
                span: block.span,
                new: new_block(block, json),
                texts: text.into_iter().collect(),
            }
        });
        Some((*list, blocks.collect()))
    }

    fn edit_event(
        joined: &mut MessagesResponse,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
        _closing: bool,
        edits: &mut Edits,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        let is_known = answer.kind != EventKind::Other || event.tracked.slot.is_some();
        let index = answer.index.filter(|_| is_known);
        joined.edit_index(index, answer.kind == EventKind::BlockStart, current, edits);
        joined.edit_texts(event, edits);
        answer.edit_reports(json, joined, current, edits);
        // The client has the beginning of the first message.
        !(joined.continued && answer.kind == EventKind::MessageStart)
    }

    fn edit_usage(
        &self,
        json: &[u8],
        report: &UsageReport,
        joined: &MessagesResponse,
        edits: &mut Edits,
    ) {
        // Some providers report a prompt of 0 before they know the count.
        let is_known = |total: Option<u32>| total.is_some_and(|total| total > 0);
        let left_out = if is_known(self.reported.prompt.total()) {
            joined.left_out
        } else {
            0
        };
        for count in &report.counts {
            let more = match count.kind {
                UsageCountKind::Prompt => left_out,
                UsageCountKind::Completion => joined.earlier_completion_tokens,
                UsageCountKind::Total => 0,
            };
            if more > 0 {
                let sum = u64::from(count.tokens) + u64::from(more);
                edits.replace(count.span, sum.to_string());
            }
        }
        if joined.continued && self.kind == EventKind::MessageDelta {
            let (at, members) = (report.span.start + 1, joined.missing_prompt_counts(self));
            let rest = json[at as usize..].trim_ascii_start();
            let comma = if rest.starts_with(b"}") { "" } else { "," };
            if !members.is_empty() {
                edits.insert(at, members.join(",") + comma);
            }
        }
    }
}

fn new_block<'a>(block: &ObjectSpans, json: &'a [u8]) -> NewBlock<'a> {
    match block.type_name(json) {
        b"text" => NewBlock::Text,
        b"tool_use" => NewBlock::Call {
            id: block.text_bytes(json, b"id"),
            name: block.text_bytes(json, b"name"),
        },
        _ => NewBlock::Other,
    }
}

impl MessagesResponse {
    /// Returns the counts of the prompt that only the beginning of this answer had, as members. They are added to a later
    /// report, since the client got the beginning of the first answer only.
    fn missing_prompt_counts(&self, answer: &MessagesAnswer) -> Vec<String> {
        let (known, reported) = (answer.counts.prompt, answer.reported.prompt);
        let is_known = known.total().is_some_and(|total| total > 0);
        let more = if is_known { self.left_out } else { 0 };
        let missing =
            |known: Option<u32>, reported: Option<u32>| known.filter(|_| reported.is_none());
        let input = missing(known.input, reported.input);
        let input = input.map(|tokens| tokens.saturating_add(more));
        let written = missing(known.cache_written, reported.cache_written);
        let cached = missing(known.cached, reported.cached);
        let members = [
            ("input_tokens", input),
            ("cache_creation_input_tokens", written),
            ("cache_read_input_tokens", cached),
        ];
        let write = |(name, tokens): (_, Option<u32>)| Some(format!("\"{name}\":{}", tokens?));
        members.into_iter().filter_map(write).collect()
    }
}
