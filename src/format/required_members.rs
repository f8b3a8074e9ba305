//! Members that a model's API demands in the answers that clients send back, where an answer lacks them: reasoning, be it
//! empty, and in chat completions a signature of the first call of each answer in the running turn.
//!
//! The answers may be the client's, which its program or another model made without them, or the proxy's own.

use super::{
    reasoning::{CHAT_MEMBERS, COUNTED_MEMBER},
    values::parse_field,
};
use crate::{
    config::profile::{Profile, ReasoningMember},
    conversation::{
        Author, BlockKind, Call, Content, Conversation, Format, Item,
        edit::{Edits, Rope},
    },
    json::scan::JsonKind,
};

/// By Google's guide, a signature that is not checked, for calls that another model made.
const ANY_SIGNATURE: &str =
    r#""extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}},"#;

/// Thinking of nothing in Messages, as DeepSeek gives it.
const NO_THINKING: &str = r#"{"type":"thinking","thinking":"","signature":""}"#;

impl Conversation {
    /// Adds what the answers in `body`, the request as it goes out, lack for this model; `None` where nothing is lacking.
    /// `was_refused`: the model has refused an answer for that, whatever its name says.
    pub fn add_required_members(
        &self,
        body: &Rope,
        profile: &Profile,
        was_refused: bool,
    ) -> Option<Rope> {
        let demanded = match self.format {
            _ if was_refused => ReasoningMember::OnEvery,
            Format::Chat if !switches_thinking_off(self) => profile.reasoning_member,
            _ => ReasoningMember::Free,
        };
        let signs_calls = profile.signs_calls && self.format == Format::Chat;
        if demanded == ReasoningMember::Free && !signs_calls {
            return None;
        }
        let sent = self.format.index_body(body.to_bytes()).ok()?;
        let mut edits = Edits::default();
        if demanded != ReasoningMember::Free {
            let needs = |it: &Item| demanded == ReasoningMember::OnEvery || !it.calls.is_empty();
            for answer in sent
                .items
                .iter()
                .filter(|it| it.author == Author::Model && needs(it))
            {
                match self.format {
                    Format::Chat => add_reasoning(&sent, answer, was_refused, &mut edits),
                    Format::Messages => add_thinking(&sent, answer, &mut edits),
                    _ => {}
                }
            }
        }
        if signs_calls {
            sign_calls(&sent, &mut edits);
        }
        (!edits.is_empty()).then(|| edits.apply(&sent.body))
    }
}

/// Whether the request says that the model does not think, as DeepSeek, Kimi and Qwen spell it.
fn switches_thinking_off(sent: &Conversation) -> bool {
    parse_field(sent, "thinking")["type"] == "disabled"
        || parse_field(sent, "enable_thinking") == false
        || parse_field(sent, "reasoning_effort") == "none"
}

/// Adds `reasoning_content` to an answer of chat completions. `alone`: reasoning under another name does not do.
fn add_reasoning(sent: &Conversation, answer: &Item, alone: bool, edits: &mut Edits) {
    let members = sent.list_members(answer.span.start);
    let mut found = members.iter();
    let same = found.find(|it| sent.raw_bytes(it.key) == COUNTED_MEMBER);
    if let Some(member) = same {
        if member.kind == JsonKind::Null {
            edits.replace(member.value, r#""""#);
        }
        return;
    }
    let is_named = |it: &[u8]| CHAT_MEMBERS.contains(&it);
    if !alone && members.iter().any(|it| is_named(sent.raw_bytes(it.key))) {
        return;
    }
    // What vLLM and OpenRouter call `reasoning` is the same text.
    let other = members
        .iter()
        .find(|it| sent.raw_bytes(it.key) == b"reasoning" && it.kind == JsonKind::String);
    let text = other.map_or("\"\"".into(), |it| {
        String::from_utf8_lossy(sent.span_bytes(it.value))
    });
    let member = format!(r#""reasoning_content":{text},"#);
    edits.insert(answer.span.start + 1, member);
}

/// Adds a block of thinking to an answer of Messages.
fn add_thinking(sent: &Conversation, answer: &Item, edits: &mut Edits) {
    let blocks = sent.blocks_of(answer);
    let has_any = blocks
        .iter()
        .any(|it| matches!(it.kind, BlockKind::Reasoning(_)));
    if let (Content::Blocks(_, list), false, false) = (&answer.content, has_any, blocks.is_empty())
    {
        edits.insert(list.start + 1, format!("{NO_THINKING},"));
    }
}

/// Signs the first call of each answer since the user's newest message.
fn sign_calls(sent: &Conversation, edits: &mut Edits) {
    let is_user = |it: &Item| it.author == Author::User;
    let turn = sent.items.iter().rposition(is_user).unwrap_or(0);
    let answers = sent.items[turn..]
        .iter()
        .filter(|it| it.author == Author::Model);
    for call in answers.filter_map(|it| sent.calls_of(it).first()) {
        sign_call(sent, call, edits);
    }
}

fn sign_call(sent: &Conversation, call: &Call, edits: &mut Edits) {
    let members = sent.list_members(call.span.start);
    let has_any = members
        .iter()
        .any(|it| sent.raw_bytes(it.key) == b"extra_content");
    if call.listed && !has_any {
        edits.insert(call.span.start + 1, ANY_SIGNATURE);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::config::profile::find_profile;

    fn add(model: &str, body: &str, was_refused: bool) -> String {
        let conversation = Format::Chat
            .index_body(Bytes::from(body.to_owned()))
            .unwrap();
        let profile = find_profile("template").unwrap().for_model(model);
        let sent = Edits::default().apply(&conversation.body);
        let added = conversation.add_required_members(&sent, profile, was_refused);
        let body = added.map_or(conversation.body, |it| it.to_bytes());
        String::from_utf8(body.to_vec()).unwrap()
    }

    const CALL: &str = r#"{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}"#;

    fn body(text: &str, calls: &str, fields: &str) -> String {
        format!(
            r#"{{"messages":[{{"role":"user","content":"u"}},{{{text}"role":"assistant","content":"t"}},{{"role":"user","content":"u"}},{{{calls}"role":"assistant","tool_calls":[{CALL}]}},{{"role":"tool","tool_call_id":"c1","content":"r"}}]{fields}}}"#
        )
    }

    #[test]
    fn what_the_model_demands_is_added_where_it_is_lacking() {
        const EMPTY: &str = r#""reasoning_content":"","#;
        let bare = body("", "", "");
        assert_eq!(add("kimi-k3", &bare, false), body(EMPTY, EMPTY, ""));
        assert_eq!(add("deepseek-v4-pro", &bare, false), body("", EMPTY, ""));
        assert_eq!(add("gpt-4o", &bare, false), bare);
        assert_eq!(add("gpt-4o", &bare, true), body(EMPTY, EMPTY, ""));
        for off in [
            r#","thinking":{"type":"disabled"}"#,
            r#","reasoning_effort":"none""#,
        ] {
            let off = body("", "", off);
            assert_eq!(add("deepseek-v4-pro", &off, false), off);
        }
        for whole in [EMPTY, r#""reasoning_content":"long","#] {
            let whole = body(whole, whole, "");
            assert_eq!(add("kimi-k3", &whole, false), whole);
        }
        let null = body("", r#""reasoning_content":null,"#, "");
        assert_eq!(add("deepseek-v4-pro", &null, false), body("", EMPTY, ""));
    }

    #[test]
    fn reasoning_under_another_name_does_until_it_is_refused() {
        let named = body("", r#""reasoning":"deep \"x\"","#, "");
        assert_eq!(add("deepseek-v4-pro", &named, false), named);
        let both = r#""reasoning_content":"deep \"x\"","reasoning":"deep \"x\"","#;
        let refused = add("deepseek-v4-pro", &named, true);
        assert_eq!(refused, body(r#""reasoning_content":"","#, both, ""));
    }

    #[test]
    fn the_first_call_of_the_running_turn_has_a_signature() {
        let bare = body("", "", "");
        let signed = bare.replace(r#"[{"id""#, &format!(r#"[{{{ANY_SIGNATURE}"id""#));
        assert_eq!(add("gemini-3.8-pro", &bare, false), signed);
        assert_eq!(add("gemini-3.8-pro", &signed, false), signed);
        assert_eq!(add("gemini-2.5-pro", &bare, false), bare);
        // Another turn has begun.
        let later = bare.replace(
            r#""content":"r"}]"#,
            r#""content":"r"},{"role":"user","content":"u"}]"#,
        );
        assert_eq!(add("gemini-3.8-pro", &later, false), later);
    }
}
