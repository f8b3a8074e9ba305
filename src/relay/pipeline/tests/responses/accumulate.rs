//! What a client's library makes of a stream, and nothing that it would refuse.

use serde_json::Value;

use crate::relay::pipeline::tests::messages;

/// Reduces the events of one response to its items and the response that the last event has. Panics where they break
/// a rule of the format.
pub(super) fn accumulate(stream: &str) -> (Vec<Value>, Value) {
    let mut reducer = Reducer::default();
    for (number, event) in messages(stream).iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        reducer.take(event);
    }
    let response = reducer.last.expect("a last event");
    let output = response["output"].as_array().expect("a list");
    // One server leaves it empty.
    assert!(
        output.is_empty() || *output == reducer.items,
        "{output:?} of {:?}",
        reducer.items
    );
    (reducer.items, response)
}

#[derive(Default)]
struct Reducer {
    id: Option<Value>,
    items: Vec<Value>,
    /// The newest item, while it is not over.
    open: Option<OpenItem>,
    last: Option<Value>,
}

#[derive(Default)]
struct OpenItem {
    content: Vec<String>,
    summary: Vec<String>,
    /// Arguments, or the input of a custom tool.
    arguments: Option<String>,
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().expect("a text")
}

/// The text of a part, or its refusal.
fn part_text(part: &Value) -> &str {
    text_of(
        part,
        if part["type"] == "refusal" {
            "refusal"
        } else {
            "text"
        },
    )
}

impl Reducer {
    fn take(&mut self, event: &Value) {
        let kind = text_of(event, "type");
        assert!(self.last.is_none(), "{kind} after the end");
        let response = &event["response"];
        if !response.is_null() {
            assert_eq!(self.id.is_none(), kind == "response.created", "{event}");
            let id = self.id.get_or_insert_with(|| response["id"].clone());
            assert_eq!(response["id"], *id, "the id changes");
        }
        match kind {
            "keepalive" | "response.created" | "response.in_progress" => {}
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert!(self.open.is_none(), "an item is open");
                assert_eq!(format!("response.{}", text_of(response, "status")), kind);
                self.last = Some(response.clone());
            }
            "response.output_item.added" => {
                assert!(self.id.is_some() && self.open.is_none(), "{event}");
                assert_eq!(event["output_index"], self.items.len(), "a gap: {event}");
                self.items.push(event["item"].clone());
                self.open = Some(OpenItem::default());
            }
            _ => self.take_part(kind, event),
        }
    }

    /// Takes an event of the open item.
    fn take_part(&mut self, kind: &str, event: &Value) {
        assert_eq!(event["output_index"], self.items.len() - 1, "{event}");
        let begun = self.items.last_mut().expect("an item");
        if kind == "response.output_item.done" {
            let open = self.open.take().expect("an item is open");
            let item = &event["item"];
            assert_eq!((&item["id"], &item["type"]), (&begun["id"], &begun["type"]));
            open.check_end(item);
            *begun = item.clone();
            return;
        }
        assert_eq!(event["item_id"], begun["id"], "{event}");
        let open = self.open.as_mut().expect("an item is open");
        open.take_event(kind, event);
    }
}

impl OpenItem {
    fn take_event(&mut self, kind: &str, event: &Value) {
        let (index, parts) = match event["summary_index"].as_u64() {
            Some(index) => (index, &mut self.summary),
            None => (
                event["content_index"].as_u64().unwrap_or(0),
                &mut self.content,
            ),
        };
        let index = index as usize;
        match kind {
            "response.content_part.added" | "response.reasoning_summary_part.added" => {
                assert_eq!(index, parts.len(), "a gap: {event}");
                parts.push(part_text(&event["part"]).to_owned());
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                assert_eq!(part_text(&event["part"]), parts[index], "{event}");
            }
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.reasoning_text.delta"
            | "response.reasoning_summary_text.delta" => parts[index] += text_of(event, "delta"),
            "response.refusal.done" => assert_eq!(text_of(event, "refusal"), parts[index]),
            "response.output_text.done"
            | "response.reasoning_text.done"
            | "response.reasoning_summary_text.done" => {
                assert_eq!(text_of(event, "text"), parts[index], "{event}");
            }
            "response.output_text.annotation.added" => assert!(index < parts.len(), "{event}"),
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                let arguments = self.arguments.get_or_insert_default();
                arguments.push_str(text_of(event, "delta"));
            }
            "response.function_call_arguments.done" => {
                let arguments = self.arguments.get_or_insert_default();
                assert_eq!(text_of(event, "arguments"), arguments);
            }
            "response.custom_tool_call_input.done" => {
                let input = self.arguments.get_or_insert_default();
                assert_eq!(text_of(event, "input"), input);
            }
            other => {
                let known = [
                    "web_search_call",
                    "image_generation_call",
                    "compaction",
                    "mcp_call",
                    "x_new_item",
                ];
                assert!(known.iter().any(|it| other.contains(it)), "{event}");
            }
        }
    }

    /// Checks that the item has what its events brought.
    fn check_end(&self, item: &Value) {
        let texts = |list: &Value| {
            let list = list.as_array().into_iter().flatten();
            list.map(|part| part_text(part).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&item["content"]), self.content, "{item}");
        assert_eq!(texts(&item["summary"]), self.summary, "{item}");
        if let Some(arguments) = &self.arguments {
            let name = if item["type"] == "custom_tool_call" {
                "input"
            } else {
                "arguments"
            };
            assert_eq!(text_of(item, name), arguments, "{item}");
        }
    }
}
