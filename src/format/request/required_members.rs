//! Adds the members that a model's API demands in the answers that clients send back, if an answer lacks them:
//! placeholder reasoning, and in chat completions a signature of the first call of each answer in the running turn.
//!
//! Such an answer was made by the client's program, by another model, or by the proxy.

use serde_json::Value;

use crate::{
    config::profile::{AnswerFilling, Profile, ReasoningMember},
    conversation::{
        Author, Block, BlockKind, Call, Content, Conversation, Field, Item,
        edit::{Edits, Rope},
    },
    format::{
        chat::reasoning_members::{COUNTED_MEMBER, REASONING_MEMBERS, SIGNED_MEMBER},
        rules::ReasoningPlace,
        values::{insert_first_member, parse_field},
    },
    json::scan::JsonKind,
};

/// By Google's guide, a signature that is not checked, for calls that another model made.
const ANY_SIGNATURE: &str =
    r#"{"google":{"thought_signature":"skip_thought_signature_validator"}}"#;

/// Placeholder reasoning, in quotes. DeepSeek V4 and Kimi K2.6 treat an empty text as missing reasoning (issues 17341 of
/// NousResearch/hermes-agent, 4251 of pi).
const NO_REASONING: &str = "\" \"";

/// Placeholder reasoning in Responses, for the place before the entries of an answer (issue 7283 of Wei-Shaw/sub2api):
/// DeepSeek reads plain texts only.
const NO_REASONING_ENTRY: &str =
    r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":" "}]}"#;

/// Placeholder thinking in Messages, spelt as in DeepSeek's answers.
const NO_THINKING: &str = r#"{"type":"thinking","thinking":"","signature":""}"#;

impl Conversation {
    /// Adds what the answers in `body`, the request as it is sent, lack for this model. Returns `None` if nothing is
    /// missing.
    pub fn add_required_members(
        &self,
        body: &Rope,
        profile: &Profile,
        filling: AnswerFilling,
    ) -> Option<Rope> {
        let place = self.format.rules().reasoning;
        let demanded = match filling {
            AnswerFilling::Nothing => return None,
            AnswerFilling::All => ReasoningMember::Always,
            AnswerFilling::ByName if place == ReasoningPlace::Blocks => return None,
            AnswerFilling::ByName => match profile.reasoning_member {
                ReasoningMember::Always => ReasoningMember::Always,
                _ if switches_thinking_off(self) => ReasoningMember::Free,
                demanded => demanded,
            },
        };
        let signs_calls = profile.signs_calls && place == ReasoningPlace::Members;
        if demanded == ReasoningMember::Free && !signs_calls {
            return None;
        }
        let sent = self.format.index_body(body.to_bytes()).ok()?;
        let mut edits = Edits::default();
        let needs = |it: &Item| match demanded {
            ReasoningMember::Free => false,
            ReasoningMember::OnEvery if place == ReasoningPlace::Members => true,
            ReasoningMember::OnCalls | ReasoningMember::OnEvery => !it.calls.is_empty(),
            ReasoningMember::Always => true,
        };
        let answers = sent.items.iter().filter(|it| it.author == Author::Model);
        for answer in answers.filter(|it| needs(it)) {
            match place {
                ReasoningPlace::Members => add_reasoning(&sent, answer, filling, &mut edits),
                ReasoningPlace::Blocks => add_thinking(&sent, answer, &mut edits),
                ReasoningPlace::Entries if lacks_reasoning(&sent, answer, filling) => {
                    edits.insert(answer.span.start, format!("{NO_REASONING_ENTRY},"));
                }
                ReasoningPlace::Entries => {}
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
        || parse_field(sent, "reasoning")["effort"] == "none"
}

/// Adds `reasoning_content` to an answer of chat completions that lacks it. After a refusal, reasoning under another name
/// does not count, nor does an empty one.
fn add_reasoning(sent: &Conversation, answer: &Item, filling: AnswerFilling, edits: &mut Edits) {
    let members = sent.list_members(answer.span.start);
    let find = |name: &[u8]| members.iter().find(|it| sent.raw_bytes(it.key) == name);
    let same = find(COUNTED_MEMBER);
    let is_empty = |it: &Field| sent.span_bytes(it.value) == b"\"\"";
    let counts = |it: &Field| match filling {
        AnswerFilling::All => it.kind != JsonKind::Null && !is_empty(it),
        _ => it.kind != JsonKind::Null,
    };
    if same.is_some_and(counts) {
        return;
    }
    if filling == AnswerFilling::ByName && names_reasoning(sent, &members) {
        return;
    }
    // What vLLM and OpenRouter call `reasoning` is the same text.
    let other = find(b"reasoning").filter(|it| it.kind == JsonKind::String && !is_empty(it));
    let text = other.map_or(NO_REASONING.into(), |it| {
        String::from_utf8_lossy(sent.span_bytes(it.value))
    });
    match same {
        Some(none) => edits.replace(none.value, text.into_owned()),
        None => {
            let member = format!(r#""reasoning_content":{text}"#);
            insert_first_member(sent, answer.span, &member, edits);
        }
    }
}

/// Whether any member holds reasoning. An empty member, as SDKs send it back, does not count.
fn names_reasoning(sent: &Conversation, members: &[Field]) -> bool {
    members.iter().any(|member| {
        let value = sent.span_bytes(member.value);
        let is_empty = member.kind == JsonKind::Null || matches!(value, b"[]" | b"\"\"");
        REASONING_MEMBERS.contains(&sent.raw_bytes(member.key)) && !is_empty
    })
}

/// Whether an answer of Responses has no reasoning. After a refusal, only reasoning as plain text counts.
fn lacks_reasoning(sent: &Conversation, answer: &Item, filling: AnswerFilling) -> bool {
    let counts = |it: &Block| match filling {
        AnswerFilling::All => has_plain_reasoning(sent.span_bytes(it.span)),
        _ => true,
    };
    let mut blocks = sent.blocks_of(answer).iter();
    !blocks.any(|it| matches!(it.kind, BlockKind::Reasoning(_)) && counts(it))
}

/// Whether an entry of Responses has reasoning as text.
fn has_plain_reasoning(entry: &[u8]) -> bool {
    let entry: Value = serde_json::from_slice(entry).unwrap_or_default();
    let mut parts = entry["content"].as_array().into_iter().flatten();
    parts.any(|part| part["text"].as_str().is_some_and(|text| !text.is_empty()))
}

/// Adds a block of thinking to an answer of Messages.
fn add_thinking(sent: &Conversation, answer: &Item, edits: &mut Edits) {
    let blocks = sent.blocks_of(answer);
    let has_any = |it: &Block| matches!(it.kind, BlockKind::Reasoning(_));
    match &answer.content {
        Content::Text(text) => {
            let raw = String::from_utf8_lossy(sent.raw_bytes(*text));
            let block = sent.format.text_block(&raw);
            edits.replace(text.quoted_span(), format!("[{NO_THINKING},{block}]"));
        }
        Content::Blocks(_, list) if !blocks.is_empty() && !blocks.iter().any(has_any) => {
            edits.insert(list.start + 1, format!("{NO_THINKING},"));
        }
        _ => {}
    }
}

/// Signs the first call of each answer since the user's newest message, unless something signs the call or the answer.
fn sign_calls(sent: &Conversation, edits: &mut Edits) {
    let is_user = |it: &Item| it.author == Author::User;
    let turn = sent.items.iter().rposition(is_user).unwrap_or(0);
    let answers = sent.items[turn..].iter();
    for answer in answers.filter(|it| it.author == Author::Model) {
        // OpenRouter puts the signature into these members of the answer.
        let is_signed = || names_reasoning(sent, &sent.list_members(answer.span.start));
        if let Some(call) = sent.calls_of(answer).first()
            && !is_signed()
        {
            sign_call(sent, call, edits);
        }
    }
}

fn sign_call(sent: &Conversation, call: &Call, edits: &mut Edits) {
    let members = sent.list_members(call.span.start);
    let signed = members
        .iter()
        .find(|it| sent.raw_bytes(it.key) == SIGNED_MEMBER);
    match signed {
        _ if !call.listed => {}
        None => {
            let member = format!(r#""extra_content":{ANY_SIGNATURE}"#);
            insert_first_member(sent, call.span, &member, edits);
        }
        Some(member) => {
            let value = sent.span_bytes(member.value);
            if memchr::memmem::find(value, b"thought_signature").is_none() {
                edits.replace(member.value, ANY_SIGNATURE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::{
        config::profile::find_profile, conversation::Format, format::request::required_members::*,
    };

    fn add(model: &str, body: &str, was_refused: bool) -> String {
        let filling = if was_refused {
            AnswerFilling::All
        } else {
            AnswerFilling::ByName
        };
        let conversation = Format::Chat
            .index_body(Bytes::from(body.to_owned()))
            .unwrap();
        let profile = find_profile("template").unwrap().for_model(model);
        let sent = Edits::default().apply(&conversation.body);
        let added = conversation.add_required_members(&sent, profile, filling);
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
        const SPACE: &str = r#""reasoning_content":" ","#;
        let bare = body("", "", "");
        assert_eq!(add("kimi-k3", &bare, false), body(SPACE, SPACE, ""));
        assert_eq!(add("kimi-k2.5", &bare, false), body("", SPACE, ""));
        for model in ["deepseek-v4-pro", "mimo-v2.6-pro", "kimi-for-coding"] {
            assert_eq!(add(model, &bare, false), body(SPACE, SPACE, ""));
            let off = body("", "", r#","thinking":{"type":"disabled"}"#);
            assert_eq!(add(model, &off, false), off);
        }
        assert_eq!(add("gpt-4o", &bare, false), bare);
        assert_eq!(add("gpt-4o", &bare, true), body(SPACE, SPACE, ""));
        for off in [
            r#","thinking":{"type":"disabled"}"#,
            r#","reasoning_effort":"none""#,
        ] {
            let off = body("", "", off);
            assert_eq!(add("kimi-k2.5", &off, false), off);
        }
        for whole in [
            SPACE,
            r#""reasoning_content":"","#,
            r#""reasoning_content":"long","#,
        ] {
            let whole = body(whole, whole, "");
            assert_eq!(add("kimi-k3", &whole, false), whole);
        }
        let null = body("", r#""reasoning_content":null,"#, "");
        assert_eq!(add("kimi-k2.5", &null, false), body("", SPACE, ""));
    }

    #[test]
    fn reasoning_under_another_name_does_until_it_is_refused() {
        let named = body("", r#""reasoning":"deep \"x\"","#, "");
        assert_eq!(add("kimi-k2.5", &named, false), named);
        let both = r#""reasoning_content":"deep \"x\"","reasoning":"deep \"x\"","#;
        let refused = add("kimi-k2.5", &named, true);
        let space = r#""reasoning_content":" ","#;
        assert_eq!(refused, body(space, both, ""));
        // An empty one is replaced once it is refused.
        let empty = body(space, r#""reasoning_content":"","#, "");
        assert_eq!(add("kimi-k2.5", &empty, false), empty);
        let filled = add("kimi-k2.5", &empty, true);
        assert_eq!(filled, body(space, space, ""));
    }

    #[test]
    fn the_first_call_of_the_running_turn_has_a_signature() {
        let bare = body("", "", "");
        let signed = bare.replace(
            r#"[{"id""#,
            &format!(r#"[{{"extra_content":{ANY_SIGNATURE},"id""#),
        );
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

    #[test]
    fn empty_members_are_none_and_odd_calls_stay_json() {
        for empty in [r#""reasoning":null,"#, r#""reasoning_details":[],"#] {
            let sent = body("", empty, "");
            let filled = add("kimi-k2.5", &sent, false);
            assert_eq!(
                filled,
                body("", &format!(r#""reasoning_content":" ",{empty}"#), "")
            );
        }
        let text = body("", r#""reasoning_content":null,"reasoning":"deep","#, "");
        assert_eq!(
            add("kimi-k3", &text, true)
                .matches(r#""reasoning_content":"deep""#)
                .count(),
            1
        );
        let turn = |call: &str| {
            format!(
                r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{call}]}}]}}"#
            )
        };
        let signature = format!(r#""extra_content":{ANY_SIGNATURE}"#);
        let signed = |call: &str| add("gemini-3.8-pro", &turn(call), false);
        assert_eq!(signed("{}"), turn(&format!("{{{signature}}}")));
        assert_eq!(
            signed(r#"{"extra_content":null}"#),
            turn(&format!("{{{signature}}}"))
        );
        let own = r#"{"extra_content":{"google":{"thought_signature":"s"}}}"#;
        assert_eq!(signed(own), turn(own));
        let details = turn("{}").replace(
            r#""role":"assistant""#,
            r#""reasoning_details":[{"type":"reasoning.encrypted","data":"d"}],"role":"assistant""#,
        );
        assert_eq!(add("gemini-3.8-pro", &details, false), details);
    }

    #[test]
    fn reasoning_of_nothing_leads_to_the_calls_of_responses() {
        let fill_by = |filling: AnswerFilling, input: &str, fields: &str| {
            let body = format!(r#"{{"input":[{input}]{fields}}}"#);
            let conversation = Format::Responses.index_body(Bytes::from(body)).unwrap();
            let profile = find_profile("deepseek").unwrap();
            let sent = Edits::default().apply(&conversation.body);
            let added = conversation.add_required_members(&sent, profile, filling);
            added.map(|it| String::from_utf8(it.to_bytes().to_vec()).unwrap())
        };
        let fill = |input: &str, fields: &str| fill_by(AnswerFilling::ByName, input, fields);
        let call = |id: &str| {
            format!(r#"{{"type":"function_call","call_id":"{id}","name":"f","arguments":"{{}}"}}"#)
        };
        let output = |id: &str| {
            format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"o"}}"#)
        };
        let user = r#"{"role":"user","content":"u"}"#;
        let said = r#"{"role":"assistant","content":"a"}"#;
        let (a, b, c) = (call("a"), call("b"), call("c"));
        let outputs = [output("a"), output("b")].join(",");
        let lacking = format!("{user},{said},{a},{b},{outputs},{c}");
        let filled = format!(
            r#"{{"input":[{user},{NO_REASONING_ENTRY},{said},{a},{b},{outputs},{NO_REASONING_ENTRY},{c}]}}"#
        );
        assert_eq!(fill(&lacking, "").unwrap(), filled);
        assert_eq!(fill(&lacking, r#","reasoning":{"effort":"none"}"#), None);
        let reasoning =
            r#"{"type":"reasoning","content":[{"type":"reasoning_text","text":"deep"}]}"#;
        let whole = format!("{user},{reasoning},{said},{a},{},{said}", output("a"));
        assert_eq!(fill(&whole, ""), None);
        // The answer behind an output has its own reasoning, whatever ids say.
        let with_id = c.replacen('{', r#"{"id":"fc_1","#, 1);
        let later = format!("{user},{reasoning},{a},{},{with_id}", output("a"));
        let expected = format!(
            r#"{{"input":[{user},{reasoning},{a},{},{NO_REASONING_ENTRY},{with_id}]}}"#,
            output("a")
        );
        assert_eq!(fill(&later, "").unwrap(), expected);
        // Where the model has refused an answer, reasoning that it cannot read is none.
        let sealed = r#"{"type":"reasoning","summary":[],"content":[],"encrypted_content":"s"}"#;
        let sealed = format!("{user},{sealed},{a},{}", output("a"));
        assert_eq!(fill(&sealed, ""), None);
        let refused = fill_by(AnswerFilling::All, &sealed, "").unwrap();
        assert!(refused.contains(NO_REASONING_ENTRY), "{refused}");
    }

    #[test]
    fn thinking_of_nothing_stands_first_in_messages() {
        let fill = |content: &str| {
            let body = format!(
                r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","content":{content}}}]}}"#
            );
            let conversation = Format::Messages.index_body(Bytes::from(body)).unwrap();
            let profile = find_profile("template").unwrap();
            let sent = Edits::default().apply(&conversation.body);
            let added = conversation.add_required_members(&sent, profile, AnswerFilling::All);
            added.map(|it| String::from_utf8(it.to_bytes().to_vec()).unwrap())
        };
        let text = r#"{"type":"text","text":"a \"b\""}"#;
        let filled = format!(r#""content":[{NO_THINKING},{text}]"#);
        assert!(fill(r#""a \"b\"""#).unwrap().contains(&filled));
        assert!(fill(&format!("[{text}]")).unwrap().contains(&filled));
        assert_eq!(fill(&format!("[{NO_THINKING},{text}]")), None);
    }
}
