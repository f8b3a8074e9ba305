//! Reasoning that a client sends back in its model's answers: measures it, and leaves it out.
//!
//! The reasoning of an answer is left out as a whole: providers refuse an answer that lacks a part of its thinking.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    conversation::{
        Author, Block, BlockKind, Content, Conversation, Field, Format, Item, edit::Edits,
    },
    format::{
        chat::reasoning_members::{REASONING_MEMBERS, SIGNED_MEMBER, measure_reasoning},
        rules::ReasoningPlace,
        values::{ObjectSpans, find_member, has_type, remove_members},
    },
    json::{
        scan::{JsonKind, JsonScanner, Span},
        text::{self, TextSizes},
    },
};

/// Members of a chat message with reasoning that is signed or encrypted.
const SEALED_MEMBERS: [&[u8]; 3] = [b"reasoning_details", b"thinking_blocks", SIGNED_MEMBER];

/// Entries of an answer of Responses that may be sent without their ids.
const KINDS_WITHOUT_ID: [&str; 3] = ["message", "function_call", "custom_tool_call"];

/// The text that replaces the reasoning of an answer that has nothing else, since an answer needs a block.
const NO_TEXT: &str = "[no text]";

impl Conversation {
    /// Sizes of the reasoning in a message, as far as [`Item::sizes`] include them; `None` if it has no reasoning.
    pub(crate) fn measure_reasoning(&self, message: &Item) -> Option<TextSizes> {
        let mut sizes = TextSizes::default();
        let mut has_any = false;
        if message.author != Author::Model {
            return None;
        }
        let place = self.format.rules().reasoning;
        if place == ReasoningPlace::Members {
            let members = self.reasoning_objects(message);
            let mut members = members.flat_map(|object| self.list_members(object));
            let has_any = members.any(|member| self.holds_reasoning(&member));
            return has_any.then(|| measure_reasoning(&self.body, message.span.start));
        }
        for block in self.blocks_of(message) {
            has_any |= self.is_reasoning(block);
            match block.kind {
                BlockKind::Reasoning(Some(text)) => {
                    sizes += text::measure_text(self.raw_bytes(text));
                }
                BlockKind::Reasoning(None) if place == ReasoningPlace::Entries => {
                    let entry = String::from_utf8_lossy(self.span_bytes(block.span));
                    let read = self.format.index_items(&[&entry]);
                    let item = read.as_ref().and_then(|read| read.items.first());
                    sizes += item.map_or_else(TextSizes::default, |item| item.sizes);
                }
                _ => {}
            }
        }
        if message.span.start < self.unread_reasoning {
            has_any.then(TextSizes::default)
        } else {
            has_any.then_some(sizes)
        }
    }

    /// Subtracts reasoning before the user's newest message from the sizes, since the model does not read it.
    pub(crate) fn leave_out_earlier_reasoning(&mut self) {
        let is_user = |item: &Item| item.author == Author::User;
        let Some(turn) = self.items.iter().rposition(is_user) else {
            return;
        };
        for at in 0..turn {
            let reasoning = self.measure_reasoning(&self.items[at]);
            self.items[at].sizes -= reasoning.unwrap_or_default();
        }
        self.unread_reasoning = self.items[turn].span.start;
    }

    /// Counts the bytes of the reasoning in a message that the model reads, as the body spells it, with the ids that are
    /// removed with it.
    pub(crate) fn count_reasoning_bytes(&self, message: &Item) -> usize {
        let mut edits = Edits::default();
        if message.span.start >= self.unread_reasoning {
            self.leave_out_reasoning(message, &mut edits);
        }
        edits.spans().map(|span| span.len()).sum()
    }

    /// Whether any answer has reasoning that its provider has signed or encrypted. Any provider reads reasoning that is
    /// plain text.
    pub(crate) fn has_sealed_reasoning(&self) -> bool {
        let is_sealed = |member: &Field| {
            let key = self.raw_bytes(member.key);
            SEALED_MEMBERS.contains(&key) && self.holds_reasoning(member)
        };
        self.items
            .iter()
            .any(|item| match self.format.rules().reasoning {
                ReasoningPlace::Members if item.author == Author::Model => {
                    let mut objects = self.reasoning_objects(item);
                    objects.any(|object| self.list_members(object).iter().any(is_sealed))
                }
                _ => self.measure_reasoning(item).is_some(),
            })
    }

    /// Leaves out the reasoning of an answer. Returns whether there was any. In Responses, the ids of the answer's texts
    /// and calls are removed too, since the provider refuses an entry with an id without the reasoning that led to it.
    pub(crate) fn leave_out_reasoning(&self, message: &Item, edits: &mut Edits) -> bool {
        if message.author != Author::Model {
            return false;
        }
        let blocks = self.blocks_of(message);
        let count = blocks.iter().filter(|it| self.is_reasoning(it)).count();
        let is_all = count > 0 && count == blocks.len();
        match self.format.rules().reasoning {
            ReasoningPlace::Members => {
                let mut has_any = false;
                for object in self.reasoning_objects(message) {
                    let members = self.list_members(object);
                    remove_members(&members, edits, |it| self.holds_reasoning(it));
                    has_any |= members.iter().any(|it| self.holds_reasoning(it));
                }
                return has_any;
            }
            ReasoningPlace::Blocks if is_all => {
                let text = self.format.text_block(NO_TEXT);
                if let Content::Blocks(_, list) = message.content {
                    edits.replace(list, format!("[{text}]"));
                }
            }
            ReasoningPlace::Blocks => {
                let spans: Vec<Span> = blocks.iter().map(|block| block.span).collect();
                edits.remove_items(&spans, |at| self.is_reasoning(&blocks[at]));
            }
            ReasoningPlace::Entries if is_all => {
                edits.replace(message.span, self.format.text_in_answer(NO_TEXT));
            }
            ReasoningPlace::Entries => {
                // Not by blocks: a message of several parts has a block for each.
                let entries = self.list_answer_entries(message);
                edits.remove_items(&entries, |at| {
                    has_type(&self.body, entries[at].start, "reasoning")
                });
                self.remove_ids(message, edits);
            }
        }
        count > 0
    }

    /// Where the objects begin whose members may hold the reasoning of a chat message: its own, and those of its calls.
    fn reasoning_objects(&self, message: &Item) -> impl Iterator<Item = u32> {
        let calls = self.calls_of(message).iter().map(|call| call.span.start);
        std::iter::once(message.span.start).chain(calls)
    }

    /// Removes the ids of texts and calls from an answer of Responses: by these, the provider knows what reasoning led to
    /// them. What the provider executed itself keeps its id.
    pub(crate) fn remove_ids(&self, message: &Item, edits: &mut Edits) {
        for entry in self.list_answer_entries(message) {
            let has_kind = |kind: &&str| has_type(&self.body, entry.start, kind);
            if KINDS_WITHOUT_ID.iter().any(has_kind) {
                let members = self.list_members(entry.start);
                remove_members(&members, edits, |it| self.raw_bytes(it.key) == b"id");
            }
        }
    }

    /// The entries of an answer of Responses.
    fn list_answer_entries(&self, message: &Item) -> Vec<Span> {
        let mut entries = Vec::new();
        let mut at = message.span.start;
        loop {
            let mut scan = JsonScanner::new(&self.body, at as usize);
            // They were read before.
            let Ok((entry, _)) = scan.take_value() else {
                return entries;
            };
            entries.push(entry);
            let behind = self.body.get(entry.end as usize..message.span.end as usize);
            let next = behind.and_then(|it| it.iter().position(|byte| *byte == b'{'));
            let Some(next) = next else { return entries };
            at = entry.end + next as u32;
        }
    }

    /// Whether a block is reasoning that providers check. A text between calls counts too if it is signed
    /// (`connector_text`).
    pub(crate) fn is_reasoning(&self, block: &Block) -> bool {
        match block.kind {
            BlockKind::Reasoning(_) => true,
            BlockKind::Opaque => {
                let start = block.span.start;
                self.format.rules().reasoning == ReasoningPlace::Blocks
                    && has_type(&self.body, start, "connector_text")
                    && find_member(&self.body, start, b"signature").is_some()
            }
            _ => false,
        }
    }

    /// Whether a member of a chat message holds reasoning.
    fn holds_reasoning(&self, member: &Field) -> bool {
        let is_empty = matches!(member.kind, JsonKind::Null | JsonKind::False);
        let key = self.raw_bytes(member.key);
        (REASONING_MEMBERS.contains(&key) || key == SIGNED_MEMBER) && !is_empty
    }

    /// The members of the object that begins at `start`.
    pub(in crate::format) fn list_members(&self, start: u32) -> SmallVec<[Field; 4]> {
        let object = ObjectSpans::read(&mut JsonScanner::new(&self.body, start as usize));
        // It was read before.
        object.unwrap_or_default().members
    }
}

impl Format {
    /// Returns an answer, or its calls, without its reasoning, as [`Conversation::leave_out_reasoning`] leaves it.
    /// `answer`: one item of this format.
    pub(crate) fn without_reasoning(self, answer: &str) -> Cow<'_, str> {
        let Some(read) = self.index_items(&[answer]) else {
            return Cow::Borrowed(answer);
        };
        let (first, mut edits) = (read.items.first(), Edits::default());
        let Some(item) = first else {
            return Cow::Borrowed(answer);
        };
        read.leave_out_reasoning(item, &mut edits);
        let left: Bytes = edits.apply(&read.body).to_bytes();
        // Only the answer is edited, so the distance from its end to the end of the body does not change.
        let behind = read.body.len() - item.span.end as usize;
        let answer = &left[item.span.start as usize..left.len() - behind];
        Cow::Owned(String::from_utf8_lossy(answer).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use crate::format::request::reasoning::*;

    fn leave_out(format: Format, answer: &str) -> String {
        format.without_reasoning(answer).into_owned()
    }

    #[test]
    fn reasoning_is_left_out_of_an_answer_whole() {
        for (answer, left) in [
            (
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"} , {"type":"text","text":"a"}]}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"a"}]}"#,
            ),
            (
                r#"{"role":"assistant","content":[{"type":"redacted_thinking","data":"d"},{"type":"text","text":"a"},{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"i","name":"n","input":{}}]}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"i","name":"n","input":{}}]}"#,
            ),
            (
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"}]}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"[no text]"}]}"#,
            ),
            (
                r#"{"role":"assistant","content":[{"type":"connector_text","connector_text":"c","signature":"s"},{"type":"text","text":"a"}]}"#,
                r#"{"role":"assistant","content":[{"type":"text","text":"a"}]}"#,
            ),
            (
                r#"{"role":"assistant","content":[]}"#,
                r#"{"role":"assistant","content":[]}"#,
            ),
            (
                r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#,
                r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#,
            ),
        ] {
            assert_eq!(leave_out(Format::Messages, answer), left);
        }
        for (answer, left) in [
            (
                r#"{"role":"assistant","reasoning":"r","content":"a","reasoning_details":[{"type":"reasoning.text","text":"r","signature":"s"}]}"#,
                r#"{"role":"assistant","content":"a"}"#,
            ),
            (
                r#"{ "thinking_blocks" : [], "role" : "assistant", "content" : null, "reasoning_content":"r" }"#,
                r#"{ "role" : "assistant", "content" : null }"#,
            ),
            (
                r#"{"role":"assistant","content":"a"}"#,
                r#"{"role":"assistant","content":"a"}"#,
            ),
        ] {
            assert_eq!(leave_out(Format::Chat, answer), left);
        }
        let reasoning = r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}"#;
        let call = |id| {
            format!(
                r#"{{ {id}"type":"function_call", "call_id":"c","name":"n","arguments":"{{}}" }}"#
            )
        };
        let parts = r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}"#;
        let search =
            r#"{"type":"web_search_call","id":"ws_1","action":{"type":"search","query":"id"}}"#;
        for (answer, left) in [
            (
                reasoning.to_owned(),
                r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"[no text]"}]}"#.to_owned(),
            ),
            (
                [reasoning, &call(r#""id" : "fc_1", "#), reasoning, search].join(","),
                [&call(""), search].join(","),
            ),
            (call(r#""id":null,"#), call("")),
            (
                [parts, reasoning, &call("")].join(" , "),
                [parts, &call("")].join(" , "),
            ),
        ] {
            assert_eq!(leave_out(Format::Responses, &answer), left);
        }
    }
}
