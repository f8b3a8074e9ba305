//! Cache markers of a request: reads those of the client, and adds the proxy's to a request without any.

use memchr::memmem;

use crate::{
    conversation::{
        Conversation, Format, ItemPlace,
        edit::{Edits, Rope},
    },
    format::messages::markers::{self, MARKER_KEY},
    json::scan::{JsonKind, Span},
};

/// Top-level members with a `ttl`: markers of tools and of the whole request, and OpenAI's options.
const MARKED_FIELDS: [&str; 3] = ["tools", MARKER_KEY, "prompt_cache_options"];

impl Conversation {
    /// Whether a cache marker, or the options for the whole request, have this `ttl`.
    pub fn asks_for_cache_of(&self, ttl: &str) -> bool {
        let says_ttl = |span: Span| says_ttl(self.span_bytes(span), ttl);
        let mut blocks = self.blocks.iter().filter(|block| block.marked);
        let mut fields = MARKED_FIELDS
            .iter()
            .filter_map(|name| self.find_field(name));
        blocks.any(|block| says_ttl(block.span))
            || fields.any(|field| says_ttl(field.value))
            || self.result_frames().any(says_ttl)
    }

    /// Returns `body`, the request as it is sent, with cache markers, and changes nothing else in it. Returns `None` if
    /// the format has no markers, if the client's request names one or is auxiliary, or if no place takes one.
    /// `is_repeat`: the request repeats another one, and gets the markers of that one, auxiliary or not.
    pub fn add_cache_markers(&self, body: &Rope, is_repeat: bool) -> Option<Rope> {
        let has_markers = by_format!(self.format, Messages => true; else Chat | Responses => false);
        if !has_markers || self.is_auxiliary() && !is_repeat || markers::names_marker(self) {
            return None;
        }
        let sent = self.format.index_body(body.to_bytes()).ok()?;
        let mut edits = Edits::default();
        markers::add_markers(&sent, &mut edits);
        (!edits.is_empty()).then(|| edits.apply(&sent.body))
    }

    /// Sets the cache markers in the blocks of an item to null, which means that there is no marker.
    pub(crate) fn unset_cache_markers(&self, item: usize, edits: &mut Edits) {
        let blocks = self.blocks_of(&self.items[item]).iter();
        for block in blocks.filter(|block| block.marked) {
            for member in self.list_members(block.span.start) {
                let is_marker = self.raw_bytes(member.key) == MARKER_KEY.as_bytes();
                if is_marker && member.kind != JsonKind::Null {
                    edits.replace(member.value, "null");
                }
            }
        }
    }

    /// Returns the parts of the block of each tool result that are before and behind its content.
    fn result_frames(&self) -> impl Iterator<Item = Span> + '_ {
        let results = self.items.iter();
        let results = results
            .filter(|item| item.author.is_tool() && matches!(item.place, ItemPlace::Part(_)));
        results.flat_map(|item| {
            let (start, end) = (item.span.start, item.span.end);
            let content = item.content.span();
            let content = content.unwrap_or(Span { start: end, end });
            [(start, content.start), (content.end, end)].map(|(start, end)| Span { start, end })
        })
    }
}

/// Whether JSON has a `ttl` member with this value. Inside a string, the quotes have escapes.
fn says_ttl(json: &[u8], ttl: &str) -> bool {
    memmem::find_iter(json, br#""ttl""#).any(|at| {
        let value = json[at + br#""ttl""#.len()..].trim_ascii_start();
        let value = value.strip_prefix(b":").unwrap_or_default();
        let value = value.trim_ascii_start().strip_prefix(b"\"");
        let rest = value.and_then(|value| value.strip_prefix(ttl.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b"\""))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::Format;

    const HOUR: &str = r#""cache_control":{"type":"ephemeral","ttl" : "1h"}"#;
    const SHORT: &str = r#""cache_control":{"type":"ephemeral"}"#;

    fn asks(format: Format, members: &str) -> bool {
        let body = Bytes::from(format!("{{{members}}}"));
        format.index_body(body).unwrap().asks_for_cache_of("1h")
    }

    #[test]
    fn a_marked_part_may_ask_for_an_hour() {
        let asks = |part: &str| {
            let list = format!(r#""messages":[{{"role":"user","content":[{part}]}}]"#);
            let formats = [Format::Chat, Format::Messages];
            let [chat, messages] = formats.map(|format| asks(format, &list));
            assert_eq!(chat, messages);
            chat
        };
        assert!(asks(&format!(r#"{{"type":"text","text":"x",{HOUR}}}"#)));
        assert!(!asks(&format!(r#"{{"type":"text","text":"x",{SHORT}}}"#)));
        // The text may speak of it.
        let text = r#""text":"{\"ttl\":\"1h\"}""#;
        assert!(!asks(&format!(r#"{{"type":"text",{text},{SHORT}}}"#)));
        assert!(!asks(r#"{"type":"text","text":"x"}"#));
    }

    #[test]
    fn the_options_of_the_request_may_say_how_long_its_cache_lives() {
        let lists = [
            (
                Format::Chat,
                r#""messages":[{"role":"user","content":"\"ttl\":\"12h\""}]"#,
            ),
            (Format::Responses, r#""input":"u","metadata":{"ttl":"12h"}"#),
        ];
        for (format, list) in lists {
            let asked = |options: &str| {
                let body = format!(r#"{{{list},"prompt_cache_options":{options}}}"#);
                let found = format.index_body(Bytes::from(body)).unwrap();
                ["30m", "12h"].map(|ttl| found.asks_for_cache_of(ttl))
            };
            assert_eq!(asked(r#"{"mode":"explicit","ttl":"12h"}"#), [false, true]);
            assert_eq!(
                asked(r#"{ "ttl" : "30m" , "prewarm":false}"#),
                [true, false]
            );
            for other in [
                "null",
                "{}",
                r#"{"ttl":null}"#,
                r#"{"ttl":"12hours"}"#,
                r#"{"ttl":["12h"]}"#,
                "7",
            ] {
                assert_eq!(asked(other), [false; 2], "{other}");
            }
        }
    }

    #[test]
    fn every_place_of_a_marker_in_messages_is_seen() {
        let call = |marker: &str| {
            format!(
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"a","name":"f","input":{{"ttl":"x"}}{marker}}}]}}"#
            )
        };
        let result = |before: &str, behind: &str| {
            format!(
                r#"{{"role":"user","content":[{{"type":"tool_result"{before},"tool_use_id":"a","content":"\"ttl\":\"1h\""{behind}}}]}}"#
            )
        };
        let hour = format!(",{HOUR}");
        let list = |call: String, result: String| {
            format!(r#""messages":[{{"role":"user","content":"u"}},{call},{result}]"#)
        };
        let plain = list(call(""), result("", ""));
        assert!(!asks(Format::Messages, &plain));
        for members in [
            list(call(&hour), result("", "")),
            list(call(""), result(&hour, "")),
            list(call(""), result("", &hour)),
            format!(r#"{plain},{HOUR}"#),
            format!(r#"{plain},"tools":[{{"name":"f","input_schema":{{}}{hour}}}]"#),
            format!(r#"{plain},"system":[{{"type":"text","text":"s"{hour}}}]"#),
        ] {
            assert!(asks(Format::Messages, &members), "{members}");
        }
    }
}
