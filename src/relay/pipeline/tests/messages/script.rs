//! Generated answers: as a stream, as a whole, and as the client should get them.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::relay::pipeline::tests::generated::{
    CLIENT_NAMES, NAMES, OPENING, PROXY_TOOLS, argument_pieces, text_pieces, visible_text,
};

/// A block of an answer.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// In pieces; `cited` adds a citation.
    Text {
        pieces: Vec<&'static str>,
        cited: bool,
    },
    Thinking(Vec<&'static str>),
    /// A call with its input in pieces.
    Call {
        name: &'static str,
        input: Vec<&'static str>,
    },
    /// A block that comes whole, or is changed by deltas that only it has.
    Other(usize),
}

/// One answer of the model.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) blocks: Vec<Block>,
    pub(super) stop_reason: &'static str,
    /// Prompt and answer, as reported.
    pub(super) usage: (u32, u32),
    /// Events without content stand between the others.
    pub(super) pings: bool,
}

const OTHERS: [&str; 4] = [
    r#"{"type":"redacted_thinking","data":"c2Vjcm\u0065t"}"#,
    r#"{"type":"web_search_tool_result","tool_use_id":"srv","content":[{"type":"web_search_result","url":"u","encrypted_content":"e"}]}"#,
    r#"{"type":"server_tool_use","id":"srv","name":"web_search","input":{}}"#,
    r#"{"type":"compaction","content":null}"#,
];

impl Block {
    /// As the last event of the block leaves it.
    fn whole(&self, id: usize) -> Value {
        match self {
            Self::Text { pieces, cited } => {
                let citations = if *cited { vec![citation()] } else { vec![] };
                json!({"type": "text", "text": pieces.concat(), "citations": citations})
            }
            Self::Thinking(pieces) => {
                json!({"type": "thinking", "thinking": pieces.concat(), "signature": "sig=="})
            }
            Self::Call { name, input } => {
                let input: Value = serde_json::from_str(&input.concat()).unwrap_or(json!({}));
                json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": input})
            }
            Self::Other(at) => {
                let mut block: Value = serde_json::from_str(OTHERS[*at]).unwrap();
                match at {
                    2 => block["input"] = json!({"query": "q"}),
                    3 => block["content"] = json!("what came before"),
                    _ => {}
                }
                block
            }
        }
    }

    fn begun(&self, id: usize) -> Value {
        let mut block = self.whole(id);
        match self {
            Self::Text { .. } => {
                block["text"] = json!("");
                block["citations"] = json!([]);
            }
            Self::Thinking(_) => {
                block["thinking"] = json!("");
                block["signature"] = json!("");
            }
            Self::Call { .. } => block["input"] = json!({}),
            Self::Other(at) => return serde_json::from_str(OTHERS[*at]).unwrap(),
        }
        block
    }

    fn deltas(&self) -> Vec<Value> {
        match self {
            Self::Text { pieces, cited } => {
                let pieces = pieces.iter();
                let mut deltas: Vec<_> = pieces
                    .map(|text| json!({"type": "text_delta", "text": text}))
                    .collect();
                if *cited {
                    deltas.push(json!({"type": "citations_delta", "citation": citation()}));
                }
                deltas
            }
            Self::Thinking(pieces) => {
                let pieces = pieces.iter();
                let mut deltas: Vec<_> = pieces
                    .map(|text| json!({"type": "thinking_delta", "thinking": text}))
                    .collect();
                deltas.push(json!({"type": "signature_delta", "signature": "sig=="}));
                deltas
            }
            Self::Call { input, .. } => {
                let pieces = input.iter();
                let delta = |piece| json!({"type": "input_json_delta", "partial_json": piece});
                pieces.map(delta).collect()
            }
            Self::Other(2) => ["{\"query\":", "\"q\"}"]
                .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}))
                .into(),
            Self::Other(3) => {
                vec![json!({"type": "compaction_delta", "content": "what came before"})]
            }
            Self::Other(_) => Vec::new(),
        }
    }

    pub(super) fn is_proxy_call(&self) -> bool {
        matches!(self, Self::Call { name, .. } if PROXY_TOOLS.contains(name))
    }

    pub(super) fn is_client_call(&self) -> bool {
        matches!(self, Self::Call { .. }) && !self.is_proxy_call()
    }
}

fn citation() -> Value {
    json!({"type": "char_location", "cited_text": "\u{e9}", "document_index": 0})
}

pub(super) fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap();
    format!("event: {name}\ndata: {data}\n\n")
}

impl Answer {
    pub(super) fn message(&self, id: &str) -> Value {
        let blocks = self.blocks.iter().enumerate();
        let content: Vec<_> = blocks.map(|(at, block)| block.whole(at)).collect();
        json!({
            "id": id, "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": self.stop_reason, "stop_sequence": null, "usage": self.final_usage(),
        })
    }

    fn final_usage(&self) -> Value {
        let (prompt, output) = self.usage;
        json!({
            "input_tokens": prompt - 3, "cache_creation_input_tokens": 1,
            "cache_read_input_tokens": 2, "output_tokens": output,
        })
    }

    pub(super) fn stream(&self, id: &str) -> String {
        let mut message = self.message(id);
        message["content"] = json!([]);
        message["stop_reason"] = Value::Null;
        message["usage"]["output_tokens"] = json!(1);
        let mut events = vec![json!({"type": "message_start", "message": message})];
        let pause = |events: &mut Vec<Value>| {
            if self.pings {
                events.push(json!({"type": "ping"}));
                events.push(json!({"type": "x_unknown", "a": [1.50, "\u{e9}"]}));
            }
        };
        pause(&mut events);
        for (at, block) in self.blocks.iter().enumerate() {
            let begun = block.begun(at);
            events
                .push(json!({"type": "content_block_start", "index": at, "content_block": begun}));
            pause(&mut events);
            for delta in block.deltas() {
                events.push(json!({"type": "content_block_delta", "index": at, "delta": delta}));
            }
            events.push(json!({"type": "content_block_stop", "index": at}));
        }
        events.push(json!({
            "type": "message_delta", "usage": {"output_tokens": self.usage.1},
            "delta": {"stop_reason": self.stop_reason, "stop_sequence": null},
        }));
        events.push(json!({"type": "message_stop"}));
        events.iter().map(event).collect()
    }

    /// Whether the client gets nothing new of it, so that another answer follows.
    pub(super) fn is_for_proxy(&self) -> bool {
        let has = |is_it: fn(&Block) -> bool| self.blocks.iter().any(is_it);
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text { pieces, .. } => Some(pieces.concat()),
            _ => None,
        });
        let texts: String = texts.collect();
        let is_alone = texts.contains(OPENING) && visible_text(&texts).trim().is_empty();
        let is_cut_off = !matches!(self.stop_reason, "end_turn" | "tool_use");
        !is_cut_off && !has(Block::is_client_call) && (has(Block::is_proxy_call) || is_alone)
    }

    /// The content as the client should get it.
    pub(super) fn client_content(&self) -> Vec<Value> {
        let blocks = self.blocks.iter().enumerate();
        let blocks = blocks.filter(|(_, block)| !block.is_proxy_call());
        let blocks = blocks.filter_map(|(at, block)| {
            let mut whole = block.whole(at);
            if let Block::Text { pieces, .. } = block {
                let text = pieces.concat();
                let visible = visible_text(&text);
                if visible != text && visible.trim().is_empty() {
                    return None;
                }
                whole["text"] = visible.into();
            }
            Some(whole)
        });
        blocks.collect()
    }
}

/// The usage that the client should read after answers in turn.
pub(super) fn client_usage(answers: &[Answer]) -> Value {
    let mut usage = answers.last().unwrap().final_usage();
    let output: u32 = answers.iter().map(|answer| answer.usage.1).sum();
    usage["output_tokens"] = output.into();
    usage
}

fn text() -> impl Strategy<Value = Block> {
    (text_pieces(), any::<bool>()).prop_map(|(pieces, cited)| Block::Text { pieces, cited })
}

fn call(names: &'static [&'static str]) -> impl Strategy<Value = Block> {
    let name = prop::sample::select(names);
    (name, argument_pieces()).prop_map(|(name, input)| Block::Call { name, input })
}

/// `for_client`: without anything of the proxy.
pub(super) fn answer(for_client: bool) -> impl Strategy<Value = Answer> {
    let plain = prop_oneof![
        Just(Block::Text {
            pieces: vec!["He", "llo <c"],
            cited: true
        }),
        Just(Block::Text {
            pieces: vec![],
            cited: false
        }),
        Just(Block::Thinking(vec!["hm", "\u{1f600}\n"])),
        (0..OTHERS.len()).prop_map(Block::Other),
    ];
    let block = if for_client {
        prop_oneof![2 => plain, 1 => call(CLIENT_NAMES)].boxed()
    } else {
        prop_oneof![2 => plain, 2 => text(), 2 => call(NAMES)].boxed()
    };
    let reasons = prop::sample::select(&["end_turn", "max_tokens", "refusal"][..]);
    let usage = (3_u32..9_000, 0_u32..900);
    let blocks = prop::collection::vec(block, 0..6);
    (blocks, reasons, usage, any::<bool>()).prop_map(|(blocks, reason, usage, pings)| {
        let has_calls = blocks
            .iter()
            .any(|block| matches!(block, Block::Call { .. }));
        let stop_reason = if has_calls && reason == "end_turn" {
            "tool_use"
        } else {
            reason
        };
        Answer {
            blocks,
            stop_reason,
            usage,
            pings,
        }
    })
}
