//! The items of generated answers: as they begin and end, the events between, and what is the proxy's.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::relay::pipeline::tests::generated::{
    PROXY_TOOLS, argument_pieces, text_pieces, visible_text,
};

type Pieces = Vec<&'static str>;

/// An item of an answer.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Message(Vec<Part>),
    Reasoning {
        summary: Pieces,
        content: Pieces,
        encrypted: bool,
    },
    /// A `function_call`.
    Call {
        name: &'static str,
        arguments: Pieces,
    },
    /// A `custom_tool_call`, which is the client's whatever its name.
    Custom(Pieces),
    /// An element of [`OTHERS`].
    Other(usize),
}

/// A part of a message.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// `annotated`: an annotation comes after the first piece.
    Text {
        pieces: Pieces,
        annotated: bool,
    },
    Refusal(Pieces),
}

/// Items as they end, and the events between their beginning and end. `ID` is that of the item.
pub(super) const OTHERS: [(&str, &[&str]); 5] = [
    (
        r#"{"type":"web_search_call","id":"ID","status":"completed","action":{"type":"search","query":"q"}}"#,
        &[
            "response.web_search_call.in_progress",
            "response.web_search_call.searching",
            "response.web_search_call.completed",
        ],
    ),
    (
        r#"{"type":"image_generation_call","id":"ID","status":"completed","result":"aGk="}"#,
        &[
            "response.image_generation_call.in_progress",
            "response.image_generation_call.generating",
            "response.image_generation_call.partial_image",
            "response.image_generation_call.completed",
        ],
    ),
    (
        r#"{"type":"compaction","id":"ID","encrypted_content":"c2Vj"}"#,
        &["response.compaction.compacting"],
    ),
    (
        r#"{"type":"mcp_call","id":"ID","name":"clear_mind","server_label":"s","arguments":"{}","output":"<continuation_package>"}"#,
        &[
            "response.mcp_call.in_progress",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.completed",
        ],
    ),
    (
        r#"{"type":"x_new_item","id":"ID","text":"<continuation_package>","a":[1.5,null]}"#,
        &["response.x_new_item.changed"],
    ),
];

pub(super) fn is_visible(text: &str) -> bool {
    !visible_text(text).trim().is_empty()
}

impl Part {
    pub(super) fn whole(&self) -> Value {
        match self {
            Self::Text { pieces, annotated } => {
                let annotations = if *annotated {
                    vec![annotation()]
                } else {
                    vec![]
                };
                json!({"type": "output_text", "text": pieces.concat(), "annotations": annotations})
            }
            Self::Refusal(pieces) => json!({"type": "refusal", "refusal": pieces.concat()}),
        }
    }

    pub(super) fn begun(&self) -> Value {
        match self {
            Self::Text { .. } => json!({"type": "output_text", "text": "", "annotations": []}),
            Self::Refusal(_) => json!({"type": "refusal", "refusal": ""}),
        }
    }

    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Text { pieces, .. } => Some(pieces.concat()),
            Self::Refusal(_) => None,
        }
    }

    pub(super) fn add_events(&self, at: usize, add: &mut impl FnMut(&str, Value)) {
        let begun = self.begun();
        add(
            "response.content_part.added",
            json!({"content_index": at, "part": begun}),
        );
        match self {
            Self::Text { pieces, annotated } => {
                let delta =
                    |piece: &str| json!({"content_index": at, "delta": piece, "logprobs": []});
                for (place, piece) in pieces.iter().enumerate() {
                    add("response.output_text.delta", delta(piece));
                    if *annotated && place == 0 {
                        let annotation = annotation();
                        let event = json!({"content_index": at, "annotation_index": 0, "annotation": annotation});
                        add("response.output_text.annotation.added", event);
                    }
                }
                let text = pieces.concat();
                add(
                    "response.output_text.done",
                    json!({"content_index": at, "text": text, "logprobs": []}),
                );
            }
            Self::Refusal(pieces) => {
                for piece in pieces {
                    let event = json!({"content_index": at, "delta": piece});
                    add("response.refusal.delta", event);
                }
                let event = json!({"content_index": at, "refusal": pieces.concat()});
                add("response.refusal.done", event);
            }
        }
        let part = self.whole();
        add(
            "response.content_part.done",
            json!({"content_index": at, "part": part}),
        );
    }
}

impl Item {
    /// As the event that ends it has it.
    pub(super) fn whole(&self, id: &str) -> Value {
        match self {
            Self::Message(parts) => {
                let content: Vec<_> = parts.iter().map(Part::whole).collect();
                json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content})
            }
            Self::Reasoning {
                summary,
                content,
                encrypted,
            } => {
                let mut item = json!({
                    "type": "reasoning", "id": id,
                    "summary": [{"type": "summary_text", "text": summary.concat()}],
                    "content": [{"type": "reasoning_text", "text": content.concat()}],
                });
                if *encrypted {
                    item["encrypted_content"] = json!("ZW5j");
                }
                item
            }
            Self::Call { name, arguments } => {
                let call_id = format!("call_{id}");
                json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments.concat(), "status": "completed"})
            }
            Self::Custom(input) => {
                let call_id = format!("call_{id}");
                json!({"type": "custom_tool_call", "id": id, "call_id": call_id, "name": "clear_mind", "input": input.concat()})
            }
            Self::Other(at) => {
                let mut item: Value = serde_json::from_str(OTHERS[*at].0).unwrap();
                item["id"] = id.into();
                item
            }
        }
    }

    pub(super) fn begun(&self, id: &str) -> Value {
        let mut item = self.whole(id);
        match self {
            Self::Message(_) => item["content"] = json!([]),
            Self::Reasoning { .. } => {
                item["summary"] = json!([]);
                item["content"] = json!([]);
                item.as_object_mut().unwrap().remove("encrypted_content");
            }
            Self::Call { .. } => item["arguments"] = json!(""),
            Self::Custom(_) => item["input"] = json!(""),
            Self::Other(_) => {}
        }
        item
    }

    pub(super) fn add_events(&self, mut add: impl FnMut(&str, Value)) {
        match self {
            Self::Message(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    part.add_events(at, &mut add);
                }
            }
            Self::Reasoning {
                summary, content, ..
            } => {
                let part = |text: String| json!({"type": "summary_text", "text": text});
                let event = json!({"summary_index": 0, "part": part(String::new())});
                add("response.reasoning_summary_part.added", event);
                for piece in summary {
                    let event = json!({"summary_index": 0, "delta": piece});
                    add("response.reasoning_summary_text.delta", event);
                }
                let event = json!({"summary_index": 0, "text": summary.concat()});
                add("response.reasoning_summary_text.done", event);
                let event = json!({"summary_index": 0, "part": part(summary.concat())});
                add("response.reasoning_summary_part.done", event);
                let part = |text: String| json!({"type": "reasoning_text", "text": text});
                let event = json!({"content_index": 0, "part": part(String::new())});
                add("response.content_part.added", event);
                for piece in content {
                    let event = json!({"content_index": 0, "delta": piece});
                    add("response.reasoning_text.delta", event);
                }
                let event = json!({"content_index": 0, "text": content.concat()});
                add("response.reasoning_text.done", event);
                let event = json!({"content_index": 0, "part": part(content.concat())});
                add("response.content_part.done", event);
            }
            Self::Call { arguments, .. } => {
                for piece in arguments {
                    let event = json!({"delta": piece});
                    add("response.function_call_arguments.delta", event);
                }
                let event = json!({"arguments": arguments.concat()});
                add("response.function_call_arguments.done", event);
            }
            Self::Custom(input) => {
                for piece in input {
                    add(
                        "response.custom_tool_call_input.delta",
                        json!({"delta": piece}),
                    );
                }
                let event = json!({"input": input.concat()});
                add("response.custom_tool_call_input.done", event);
            }
            Self::Other(at) => {
                for kind in OTHERS[*at].1 {
                    add(kind, json!({"delta": "{}", "arguments": "{}"}));
                }
            }
        }
    }

    pub(super) fn is_proxy_call(&self) -> bool {
        matches!(self, Self::Call { name, .. } if PROXY_TOOLS.contains(name))
    }

    pub(super) fn is_client_call(&self) -> bool {
        matches!(self, Self::Call { .. } | Self::Custom(_)) && !self.is_proxy_call()
    }

    pub(super) fn texts(&self) -> Vec<String> {
        match self {
            Self::Message(parts) => parts.iter().filter_map(Part::text).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether nothing is left of it without the proxy's texts.
    pub(super) fn is_emptied(&self) -> bool {
        let texts = self.texts();
        let has_refusal = || {
            matches!(self, Self::Message(parts)
                if parts.iter().any(|part| matches!(part, Part::Refusal(_))))
        };
        texts.iter().any(|text| visible_text(text) != *text)
            && !texts.iter().any(|text| is_visible(text))
            && !has_refusal()
    }
}

fn annotation() -> Value {
    json!({"type": "url_citation", "url": "u", "title": "\u{e9}", "start_index": 0, "end_index": 1})
}

pub(super) fn message() -> impl Strategy<Value = Item> {
    let part = prop_oneof![
        4 => (text_pieces(), any::<bool>())
            .prop_map(|(pieces, annotated)| Part::Text { pieces, annotated }),
        1 => Just(Part::Refusal(vec!["I can", "not"])),
    ];
    prop::collection::vec(part, 0..3).prop_map(Item::Message)
}

pub(super) fn call(names: &'static [&'static str]) -> impl Strategy<Value = Item> {
    let name = prop::sample::select(names);
    (name, argument_pieces()).prop_map(|(name, arguments)| Item::Call { name, arguments })
}
