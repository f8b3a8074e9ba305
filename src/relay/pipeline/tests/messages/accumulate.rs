//! What a client's library makes of a stream, and nothing that it would refuse.

use serde_json::{Map, Value, json};

use crate::relay::pipeline::tests::messages;

/// Reduces the events of one message to that message. Panics where they break a rule of the format.
pub(super) fn accumulate(stream: &str) -> Value {
    let mut reducer = Reducer::default();
    for event in messages(stream) {
        reducer.take(&event);
    }
    assert!(reducer.stopped, "no message_stop");
    reducer.message
}

#[derive(Default)]
struct Reducer {
    message: Value,
    /// The JSON of the open block's input.
    open: Option<String>,
    ended: bool,
    stopped: bool,
}

impl Reducer {
    fn take(&mut self, event: &Value) {
        let kind = event["type"].as_str().expect("every event has a type");
        assert!(!self.stopped || kind == "ping", "{kind} after the end");
        match kind {
            "ping" => {}
            "message_start" => {
                assert!(self.message.is_null(), "a second message begins");
                self.message = event["message"].clone();
                assert_eq!(self.message["content"], json!([]));
            }
            "content_block_start" => self.begin_block(event),
            "content_block_delta" => {
                self.check_index(event);
                self.add_delta(&event["delta"]);
            }
            "content_block_stop" => {
                self.check_index(event);
                self.end_block();
            }
            "message_delta" => {
                assert!(self.open.is_none(), "a block is open");
                assert!(!self.ended, "a second stop reason");
                self.ended = !event["delta"]["stop_reason"].is_null();
                for (key, value) in members(&event["delta"]) {
                    self.message[key] = value.clone();
                }
                for (key, value) in members(&event["usage"]) {
                    self.message["usage"][key] = value.clone();
                }
            }
            "message_stop" => {
                assert!(self.open.is_none() && self.ended, "the message is not over");
                self.stopped = true;
            }
            "error" => panic!("{event}"),
            unknown => assert!(unknown.starts_with("x_"), "{unknown}"),
        }
    }

    fn content(&mut self) -> &mut Vec<Value> {
        let content = self.message["content"].as_array_mut();
        content.expect("the message has begun")
    }

    fn check_index(&mut self, event: &Value) {
        assert!(self.open.is_some(), "no block is open: {event}");
        assert_eq!(event["index"], self.content().len() - 1);
    }

    fn begin_block(&mut self, event: &Value) {
        assert!(self.open.is_none() && !self.ended, "{event}");
        assert_eq!(event["index"], self.content().len(), "a gap: {event}");
        self.content().push(event["content_block"].clone());
        self.open = Some(String::new());
    }

    fn add_delta(&mut self, delta: &Value) {
        let input = self.open.as_mut().expect("a block is open");
        let kind = delta["type"].as_str().expect("every delta has a type");
        let text = |name: &str| delta[name].as_str().expect("a text").to_owned();
        if kind == "input_json_delta" {
            input.push_str(&text("partial_json"));
            return;
        }
        let block = self.content().last_mut().expect("a block is open");
        let append = |block: &mut Value, name: &str| {
            let all = block[name].as_str().expect("a text").to_owned() + &text(name);
            block[name] = all.into();
        };
        match (kind, block["type"].as_str().expect("a type")) {
            ("text_delta", "text") => append(block, "text"),
            ("thinking_delta", "thinking") => append(block, "thinking"),
            ("signature_delta", "thinking") => block["signature"] = text("signature").into(),
            ("citations_delta", "text") => {
                let list = block["citations"].as_array_mut().expect("a list");
                list.push(delta["citation"].clone());
            }
            ("compaction_delta", "compaction") => block["content"] = delta["content"].clone(),
            other => panic!("{other:?}"),
        }
    }

    fn end_block(&mut self) {
        let input = self.open.take().expect("a block is open");
        let block = self.content().last_mut().expect("a block is open");
        if !input.is_empty() {
            block["input"] = serde_json::from_str(&input).expect("input is JSON");
        }
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}
