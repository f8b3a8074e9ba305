//! Generated answers: as a stream, as a whole, and as the client should get them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::items::{Item, OTHERS, Part, call, is_visible, message};
use crate::relay::pipeline::tests::generated::{CLIENT_NAMES, NAMES, OPENING, visible_text};

/// One answer of the model.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) items: Vec<Item>,
    pub(super) status: &'static str,
    /// Prompt and answer, as reported.
    pub(super) usage: (u32, u32),
    /// Events without content stand between the others.
    pub(super) keepalives: bool,
    pub(super) stored: bool,
    /// The last event has the items.
    pub(super) lists_output: bool,
}

/// An event, its members in the order of OpenAI's.
pub(super) fn event(kind: &str, number: usize, members: &Value) -> String {
    let members = members.to_string();
    let members = members.strip_prefix('{').unwrap();
    let comma = if members == "}" { "" } else { "," };
    format!(
        "event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{number}{comma}{members}\n\n"
    )
}

impl Answer {
    /// The items as the model gave them. `at`: the answer's place.
    pub(super) fn whole_items(&self, at: usize) -> Vec<Value> {
        let items = self.items.iter().enumerate();
        items
            .map(|(place, item)| item.whole(&format!("item_{at}_{place}")))
            .collect()
    }

    pub(super) fn response(&self, at: usize, output: Vec<Value>) -> Value {
        let (prompt, output_tokens) = self.usage;
        let details = match self.status {
            "incomplete" => json!({"reason": "max_output_tokens"}),
            _ => Value::Null,
        };
        json!({
            "id": format!("resp_{at}"), "object": "response", "status": self.status, "model": "m",
            "output": output, "store": self.stored, "text": {"format": {"type": "text"}},
            "error": null, "incomplete_details": details,
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
                "output_tokens": output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + output_tokens,
            },
        })
    }

    pub(super) fn whole(&self, at: usize) -> Value {
        self.response(at, self.whole_items(at))
    }

    pub(super) fn stream(&self, at: usize) -> String {
        let mut begun = self.response(at, Vec::new());
        begun["status"] = json!("in_progress");
        begun["usage"] = Value::Null;
        let (mut number, mut stream) = (0, String::new());
        let keepalives = self.keepalives;
        let mut add = |kind: &str, members: Value| {
            stream += &event(kind, number, &members);
            number += 1;
            if keepalives && (kind.contains("delta") || kind.contains("added")) {
                stream += &event("keepalive", number, &json!({}));
                number += 1;
            }
        };
        add("response.created", json!({"response": begun}));
        add("response.in_progress", json!({"response": begun}));
        for (place, item) in self.items.iter().enumerate() {
            let id = format!("item_{at}_{place}");
            let begun = item.begun(&id);
            add(
                "response.output_item.added",
                json!({"output_index": place, "item": begun}),
            );
            item.add_events(|kind, mut members| {
                members["output_index"] = place.into();
                members["item_id"] = id.as_str().into();
                add(kind, members);
            });
            let whole = item.whole(&id);
            add(
                "response.output_item.done",
                json!({"output_index": place, "item": whole}),
            );
        }
        let output = if self.lists_output {
            self.whole_items(at)
        } else {
            Vec::new()
        };
        let response = self.response(at, output);
        let kind = format!("response.{}", self.status);
        add(&kind, json!({"response": response}));
        stream
    }

    /// Whether the client gets nothing new of it, so that another answer follows.
    pub(super) fn is_for_proxy(&self) -> bool {
        let has = |is_it: fn(&Item) -> bool| self.items.iter().any(is_it);
        let texts: String = self.items.iter().flat_map(Item::texts).collect();
        let is_alone = texts.contains(OPENING) && !is_visible(&texts);
        self.status == "completed"
            && !has(Item::is_client_call)
            && (has(Item::is_proxy_call) || is_alone)
    }

    /// The items as the client should get them.
    pub(super) fn client_items(&self, at: usize) -> Vec<Value> {
        let items = self.items.iter().zip(self.whole_items(at));
        let items = items.filter(|(item, _)| !item.is_proxy_call() && !item.is_emptied());
        let items = items.map(|(item, mut whole)| {
            if let Item::Message(parts) = item {
                for (place, text) in parts.iter().map(Part::text).enumerate() {
                    if let Some(text) = text {
                        whole["content"][place]["text"] = visible_text(&text).into();
                    }
                }
            }
            whole
        });
        items.collect()
    }

    /// The items as a request that continues the answer should have them.
    pub(super) fn continued_items(&self, at: usize) -> Vec<Value> {
        let is_lost = |item: &Item| {
            let is_kept =
                |item: &Item| matches!(item, Item::Reasoning { encrypted, .. } if *encrypted);
            !self.stored && matches!(item, Item::Reasoning { .. }) && !is_kept(item)
        };
        let loses_any = self.items.iter().any(is_lost);
        let items = self.items.iter().zip(self.whole_items(at));
        let kept = items.filter(|(item, _)| !is_lost(item));
        let kept = kept.map(|(_, mut whole)| {
            if loses_any {
                whole.as_object_mut().unwrap().remove("id");
            }
            whole
        });
        kept.collect()
    }
}

/// `for_client`: without anything of the proxy.
pub(super) fn answer(for_client: bool) -> impl Strategy<Value = Answer> {
    let text = |pieces: &[&'static str]| Part::Text {
        pieces: pieces.to_vec(),
        annotated: true,
    };
    let (first, second) = (text(&["He", "llo <c"]), text(&["", "\u{e9}"]));
    let plain = prop_oneof![
        Just(Item::Message(vec![first, second])),
        Just(Item::Message(vec![])),
        any::<bool>().prop_map(|encrypted| Item::Reasoning {
            summary: vec!["hm", "\u{1f600}\n"],
            content: vec![OPENING, "<"],
            encrypted,
        }),
        Just(Item::Custom(vec!["*** ", "patch\n"])),
        (0..OTHERS.len()).prop_map(Item::Other),
    ];
    let item = if for_client {
        prop_oneof![2 => plain, 1 => call(CLIENT_NAMES)].boxed()
    } else {
        prop_oneof![2 => plain, 2 => message(), 3 => call(NAMES)].boxed()
    };
    let items = prop::collection::vec(item, 0..6);
    let status = prop_oneof![4 => Just("completed"), 1 => Just("incomplete")];
    let usage = (3_u32..9_000, 0_u32..900);
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.8));
    (items, status, usage, flags).prop_map(
        |(items, status, usage, (keepalives, stored, lists_output))| Answer {
            items,
            status,
            usage,
            keepalives,
            stored,
            lists_output,
        },
    )
}
