//! Answers of the toy format. An event of a stream and a whole answer are read alike.

use bytes::Bytes;
use serde_json::json;
use smallvec::SmallVec;

use crate::{
    conversation::edit::Edits,
    format::{
        AnswerEvent, AnswerEvents, CallFragment, Finish, FinishKind, UsageCount, UsageCountKind,
        UsageReport,
        answer::usage::{Usage, parse_count},
        answer_rewriter::{
            AssembledCall, BlockAnswer, BlockAssembler, BlockState, BlockStep, JoinedResponse,
            NewBlock, ParsedEvent, TrackedBlock, WholeBlock,
        },
        values::{ReadResult, skip_value, take_index, take_text, walk_if_object},
    },
    json::{
        scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
        text::decode_text,
    },
    wire::sse::SseMessage,
};

/// The beginning of the last event.
const END: &[u8] = br#"data: {"over""#;

/// An event of a stream, or a whole answer.
#[derive(Clone, Debug, Default)]
pub struct ToyAnswer {
    pub(in crate::format) events: SmallVec<[AnswerEvent; 2]>,
    tag: Option<JsonString>,
    engine: Option<JsonString>,
    index: Option<(u64, Span)>,
    /// What an event of a stream says of the piece.
    piece: Piece,
    is_shut: bool,
    /// The pieces of a whole answer.
    pieces: Option<(Span, Vec<Piece>)>,
    is_over: bool,
}

/// A text or a call.
#[derive(Clone, Debug, Default)]
struct Piece {
    span: Span,
    line: Option<JsonString>,
    want: Option<Want>,
}

#[derive(Clone, Debug, Default)]
struct Want {
    span: Span,
    ticket: Option<JsonString>,
    tool: Option<JsonString>,
    arguments: Option<JsonString>,
}

/// Reads a whole body, or the data of an event.
pub(in crate::format) fn read_answer(json: &[u8]) -> Result<ToyAnswer, MalformedJson> {
    let mut answer = ToyAnswer::default();
    let mut scan = JsonScanner::new(json, 0);
    scan.walk_object(|scan, key| answer.read_member(json, scan, key))?;
    scan.expect_end()?;
    if answer.is_end() {
        answer.events.push(AnswerEvent::End);
    }
    Ok(answer)
}

/// Reads an event of a stream; empty if it cannot be read.
pub(in crate::format) fn read_event(message: &SseMessage) -> ToyAnswer {
    read_answer(&message.data).unwrap_or_default()
}

/// Whether this may be the beginning of the last event.
pub(in crate::format) fn may_be_end(beginning: &[u8]) -> bool {
    beginning.starts_with(END) || END.starts_with(beginning)
}

pub(in crate::format) fn empty_answer(streamed: bool, model: &str, usage: Option<Usage>) -> Bytes {
    let (read, wrote) = usage.map_or((0, 0), |usage| {
        (usage.prompt_tokens, usage.completion_tokens.unwrap_or(0))
    });
    let over = json!({"over": "said", "spent": {"read": read, "wrote": wrote}});
    let mut begun = json!({"tag": "toy_plimsoll", "engine": model});
    if streamed {
        return format!("data: {begun}\n\ndata: {over}\n\n").into();
    }
    begun["pieces"] = json!([]);
    (begun["over"], begun["spent"]) = (over["over"].clone(), over["spent"].clone());
    begun.to_string().into()
}

impl ToyAnswer {
    fn read_member(
        &mut self,
        json: &[u8],
        scan: &mut JsonScanner<'_>,
        key: JsonString,
    ) -> ReadResult {
        match &json[key.span.range()] {
            b"tag" => self.tag = take_text(scan)?,
            b"engine" => self.engine = take_text(scan)?,
            b"piece" => self.index = take_index(json, scan)?,
            b"shut" => self.is_shut = scan.take_value()?.1 == JsonKind::True,
            b"more" => self.events.extend(take_text(scan)?.map(AnswerEvent::Text)),
            b"pieces" => {
                let mut pieces = Vec::new();
                let list = scan.walk_array(|scan| {
                    let mut piece = Piece::default();
                    piece.span =
                        scan.walk_object(|scan, key| piece.read_member(json, scan, key))?;
                    self.events.extend(piece.to_event());
                    pieces.push(piece);
                    Ok::<_, MalformedJson>(())
                })?;
                self.pieces = Some((list, pieces));
            }
            b"over" => {
                let reason = take_text(scan)?;
                self.is_over = reason.is_some();
                self.events.extend(reason.map(|reason| {
                    AnswerEvent::Finish(Finish {
                        reason,
                        kind: match &json[reason.span.range()] {
                            b"wants" => FinishKind::Calls,
                            b"cut" => FinishKind::CutOff,
                            _ => FinishKind::Other,
                        },
                        first: true,
                    })
                }));
            }
            b"spent" => {
                let report = read_spent(json, scan)?;
                self.events.extend(report.map(AnswerEvent::Usage));
            }
            b"broken" => {
                skip_value(scan)?;
                self.events.push(AnswerEvent::Error);
            }
            _ => {
                self.piece.read_member(json, scan, key)?;
                self.events.extend(self.piece.to_event());
            }
        }
        Ok(())
    }
}

impl Piece {
    fn read_member(
        &mut self,
        json: &[u8],
        scan: &mut JsonScanner<'_>,
        key: JsonString,
    ) -> ReadResult {
        match &json[key.span.range()] {
            b"line" => self.line = take_text(scan)?,
            b"want" => {
                let mut want = Want::default();
                want.span = scan.walk_object(|scan, key| {
                    match &json[key.span.range()] {
                        b"ticket" => want.ticket = take_text(scan)?,
                        b"tool" => want.tool = take_text(scan)?,
                        b"with" => want.arguments = take_text(scan)?,
                        _ => skip_value(scan)?,
                    }
                    Ok::<_, MalformedJson>(())
                })?;
                self.want = Some(want);
            }
            _ => skip_value(scan)?,
        }
        Ok(())
    }

    fn to_event(&self) -> Option<AnswerEvent> {
        let call = self.want.as_ref().map(|want| {
            AnswerEvent::Call(CallFragment {
                span: want.span,
                id: want.ticket,
                name: want.tool,
                ..CallFragment::default()
            })
        });
        call.or(self.line.map(AnswerEvent::Text))
    }

    fn new_block<'a>(&self, json: &'a [u8]) -> Option<NewBlock<'a>> {
        let raw = |text: Option<JsonString>| text.map_or(&b""[..], |it| &json[it.span.range()]);
        let call = self.want.as_ref().map(|want| NewBlock::Call {
            id: raw(want.ticket),
            name: raw(want.tool),
        });
        call.or(self.line.map(|_| NewBlock::Text))
    }
}

/// Reads the counts of tokens.
fn read_spent(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
) -> Result<Option<UsageReport>, MalformedJson> {
    let mut counts = SmallVec::new();
    let span = walk_if_object(scan, |scan, key| {
        let (span, _) = scan.take_value()?;
        let kind = match &json[key.span.range()] {
            b"read" => UsageCountKind::Prompt,
            _ => UsageCountKind::Completion,
        };
        let tokens = parse_count(&json[span.range()]);
        counts.extend(tokens.map(|tokens| UsageCount { kind, tokens, span }));
        Ok(())
    })?;
    let find = |kind| {
        let mut counts = counts.iter();
        counts.find_map(|it: &UsageCount| (it.kind == kind).then_some(it.tokens))
    };
    let usage = find(UsageCountKind::Prompt).map(|prompt_tokens| Usage {
        prompt_tokens,
        completion_tokens: find(UsageCountKind::Completion),
        cached_tokens: None,
        cache_written_tokens: None,
    });
    Ok(span.map(|span| UsageReport {
        span,
        usage,
        counts,
    }))
}

impl AnswerEvents for ToyAnswer {
    fn events(&self) -> &[AnswerEvent] {
        &self.events
    }

    fn is_end(&self) -> bool {
        self.is_over && self.pieces.is_none()
    }

    fn has_message(&self) -> bool {
        self.pieces.is_some()
    }
}

impl BlockAnswer for ToyAnswer {
    type Assembler = ToyAssembler;
    type Sent = ();

    const END_REASON: Option<&'static str> = Some("said");

    fn read_whole(json: &[u8]) -> Option<Self> {
        read_answer(json).ok()
    }

    fn block_step<'a>(&self, json: &'a [u8]) -> Option<(Option<u64>, BlockStep<'a>)> {
        let (index, _) = self.index?;
        let step = match self.piece.new_block(json) {
            Some(block) => BlockStep::Begin(block),
            None if self.is_shut => BlockStep::End,
            None => BlockStep::Part,
        };
        Some((Some(index), step))
    }

    fn id(&self) -> Option<JsonString> {
        self.tag
    }

    fn model(&self) -> Option<JsonString> {
        self.engine
    }

    fn whole_blocks<'a>(&self, json: &'a [u8]) -> Option<(Span, Vec<WholeBlock<'a>>)> {
        let (list, pieces) = self.pieces.as_ref()?;
        let blocks = pieces.iter().map(|piece| WholeBlock {
            span: piece.span,
            new: piece.new_block(json).unwrap_or(NewBlock::Other),
            texts: piece.line.into_iter().collect(),
        });
        Some((*list, blocks.collect()))
    }

    fn edit_event(
        joined: &mut JoinedResponse<Self>,
        event: &ParsedEvent<Self>,
        current: &BlockState<Self>,
        _closing: bool,
        edits: &mut Edits,
    ) -> bool {
        let (json, answer) = (&event.message.data, &event.answer);
        let begins = answer.piece.new_block(json).is_some();
        joined.edit_index(answer.index, begins, current, edits);
        joined.edit_texts(event, edits);
        answer.edit_reports(json, joined, current, edits);
        // The client has the beginning of the first answer.
        !(joined.continued && answer.tag.is_some())
    }
}

/// The pieces of one answer, by their slots: the raw text of a line, or a call.
#[derive(Default)]
pub struct ToyAssembler {
    pieces: Vec<KeptPiece>,
}

#[derive(Default)]
struct KeptPiece {
    line: Vec<u8>,
    call: Option<(String, String)>,
}

impl ToyAssembler {
    fn keep(&mut self, slot: usize, json: &[u8], piece: &Piece, more: Option<JsonString>) {
        if self.pieces.len() <= slot {
            self.pieces.resize_with(slot + 1, KeptPiece::default);
        }
        let kept = &mut self.pieces[slot];
        for text in piece.line.into_iter().chain(more) {
            kept.line.extend_from_slice(&json[text.span.range()]);
        }
        if let Some(want) = &piece.want {
            let call = String::from_utf8_lossy(&json[want.span.range()]);
            let arguments = want.arguments.map(|text| &json[text.span.range()]);
            let arguments = arguments.and_then(decode_text).unwrap_or_default();
            kept.call = Some((call.into_owned(), arguments));
        }
    }
}

impl BlockAssembler<ToyAnswer> for ToyAssembler {
    fn take_event(&mut self, slot: usize, json: &[u8], answer: &ToyAnswer) {
        let is_part = answer.piece.line.is_none();
        let more = answer.iter_texts().next().filter(|_| is_part);
        self.keep(slot, json, &answer.piece, more);
    }

    fn take_block(&mut self, slot: usize, block: &[u8]) {
        if let Ok(answer) = read_answer(block) {
            self.keep(slot, block, &answer.piece, None);
        }
    }

    fn assemble(&self, calls: &[&TrackedBlock]) -> (String, Vec<AssembledCall>) {
        let lines = self.pieces.iter().filter(|piece| piece.call.is_none());
        let lines = lines.map(|piece| String::from_utf8_lossy(&piece.line));
        let lines = lines.map(|line| format!(r#"{{"line":"{line}"}}"#));
        let wants = self.pieces.iter().filter_map(|piece| piece.call.as_ref());
        let wants = wants.map(|(call, _)| &**call).collect::<Vec<_>>().join(",");
        let lines = lines.collect::<Vec<_>>().join(",");
        let message =
            format!(r#"{{"who":"machine","says":{{"words":[{lines}]}},"wants":[{wants}]}}"#);
        let calls = calls.iter().map(|call| {
            let kept = self.pieces.get(call.slot);
            let (json, arguments) = kept.and_then(|piece| piece.call.clone()).unzip();
            AssembledCall { arguments, json }
        });
        (message, calls.collect())
    }
}
