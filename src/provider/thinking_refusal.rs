//! Detects that a provider refuses thinking of earlier answers, in any wrapping of the error: gateways quote it, with
//! escapes or without quotes. Judged by the leading clause, as AWS asks.

use http::{HeaderMap, StatusCode};

use super::overflow::read_error_sentences;
use crate::format::{
    block_binding::{self, MismatchField},
    refusal::{
        BROKEN_TURN, CHANGED_BEFORE_THINKING, MISSING_REASONING, REFUSED_THINKING,
        UNPAIRED_REASONING,
    },
};

/// What a provider refuses of the thinking of earlier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingRefusal {
    /// The block is as it was made, and what stands before it is not. `names`: the member that the error names.
    Conversation { names: Option<MismatchField> },
    /// Its signature is of no use at all.
    Signature,
    /// The running turn does not begin with thinking, or has it in another order than it was made in.
    Turn,
    /// An item of an answer is missing that belongs to its reasoning, or the reasoning that belongs to an item (Responses).
    Unpaired,
    /// An answer lacks the member that holds its reasoning.
    Missing,
}

/// Judges an error by its status and its decoded body. Some gateways answer with 200 and an error.
pub fn detect_thinking_refusal(status: StatusCode, body: &[u8]) -> Option<ThinkingRefusal> {
    // Some gateways answer with 500 or 502 and quote the provider's error.
    if !matches!(status.as_u16(), 200 | 400 | 422 | 500 | 502) {
        return None;
    }
    let has_any = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    read_error_sentences(body).find_map(|text| {
        if has_any(&text, REFUSED_THINKING) {
            let names = MismatchField::find_in_text(&text);
            return Some(if has_any(&text, CHANGED_BEFORE_THINKING) {
                ThinkingRefusal::Conversation { names }
            } else {
                ThinkingRefusal::Signature
            });
        }
        if has_any(&text, BROKEN_TURN) {
            return Some(ThinkingRefusal::Turn);
        }
        if has_any(&text, MISSING_REASONING) {
            return Some(ThinkingRefusal::Missing);
        }
        has_any(&text, UNPAIRED_REASONING).then_some(ThinkingRefusal::Unpaired)
    })
}

/// Whether an error is about the member or the header by which the proxy asks for thinking to be dropped.
pub fn names_binding(body: &[u8]) -> bool {
    read_error_sentences(body).any(|text| block_binding::names_binding(&text))
}

/// The entry of `messages` with the first block that does not fit, as Anthropic's header of the refusal names it
/// (`block=messages.3.content.0;kind=…`).
pub fn read_stale_entry(headers: &HeaderMap) -> Option<usize> {
    let value = headers.get("anthropic-thinking-prefix-mismatch")?;
    let mut members = value.to_str().ok()?.split(';');
    let block = members.find_map(|it| it.trim().strip_prefix("block=messages."))?;
    block.split('.').next()?.parse().ok()
}

/// Whether an error refuses the member by which thinking was to be dropped, by the name that it had.
pub fn refuses_name(body: &[u8], sent: MismatchField) -> bool {
    read_error_sentences(body).any(|text| sent.is_refused_in(&text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CLAUSE: &str = "messages.1.content.0: Invalid `signature` in `thinking` block";
    const BOUND: &str = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header.";
    const BEDROCK: &str = "messages.3.content.0: Invalid `signature` in `redacted_thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.mismatch_behavior` to \"drop_block\".";

    fn anthropic(message: &str) -> Value {
        let error = json!({"type": "invalid_request_error", "message": message});
        json!({"type": "error", "error": error, "request_id": "req_1"})
    }

    fn detect(body: &Value) -> Option<ThinkingRefusal> {
        detect_thinking_refusal(StatusCode::BAD_REQUEST, body.to_string().as_bytes())
    }

    #[test]
    fn the_refusal_is_seen_in_any_wrapping() {
        let bound = |names| Some(ThinkingRefusal::Conversation { names });
        for (message, names) in [
            (BOUND, Some(MismatchField::Prefix)),
            (BEDROCK, Some(MismatchField::Any)),
            (
                "messages.1.content.0: Invalid `signature` in `thinking` block. Content before this block differs from when it was created, first at `messages.0.content.0`.",
                None,
            ),
            (
                "messages.1.content.0: Invalid `signature` in `thinking` block. The `thinking` block that preceded this one when it was created is missing from this request.",
                None,
            ),
            (
                "messages.1.content.0: Invalid `signature` in `thinking` block. The `system` prompt differs from the one this block was created with.",
                None,
            ),
        ] {
            let plain = anthropic(message);
            let quoted = plain.to_string();
            for body in [
                plain.clone(),
                json!({"message": message}),
                json!({"error": {"message": "Provider returned error", "code": 400,
                    "metadata": {"raw": quoted, "provider_name": "Anthropic"}}}),
                json!({"error": {"message": format!("litellm.BadRequestError: AnthropicException - {quoted}. Received Model Group=m"),
                    "type": null, "param": null, "code": "400"}}),
                json!({"error": {"message": format!("litellm.BadRequestError: AnthropicException - b'{}'", quoted.replace('\\', "\\\\"))}}),
                json!({"error": {"message": message.replace('`', "'")}}),
                json!({"error": {"message": message.replace('`', "\\\"")}}),
                json!({"error": {"message": message.replace('`', "")}}),
            ] {
                assert_eq!(detect(&body), bound(names), "{body}");
            }
        }
    }

    #[test]
    fn a_signature_that_is_of_no_use_is_told_apart() {
        let mere = Some(ThinkingRefusal::Signature);
        assert_eq!(detect(&anthropic(CLAUSE)), mere);
        assert_eq!(detect(&json!({"message": CLAUSE})), mere);
    }

    #[test]
    fn a_broken_turn_and_unpaired_reasoning_are_told_apart() {
        for message in [
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block",
            "messages.5.content.137: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
        ] {
            assert_eq!(detect(&anthropic(message)), Some(ThinkingRefusal::Turn));
        }
        let openai = |message, code| json!({"error": {"message": message, "type": "invalid_request_error", "param": "input", "code": code}});
        for message in [
            "Item 'rs_06a20bd006d58dde' of type 'reasoning' was provided without its required following item.",
            "Item 'msg_07ddda73bf133ab6' of type 'message' was provided without its required 'reasoning' item: 'rs_1'.",
        ] {
            let unpaired = openai(message, Value::Null);
            assert_eq!(detect(&unpaired), Some(ThinkingRefusal::Unpaired));
        }
        let message = "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not be decrypted or parsed.";
        let sealed = openai(message, "invalid_encrypted_content".into());
        assert_eq!(detect(&sealed), Some(ThinkingRefusal::Signature));
    }

    #[test]
    fn a_missing_member_is_told_apart() {
        for message in [
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "The `content[].thinking` in the thinking mode must be passed back to the API.",
            "preserved thinking (thinking.keep=all) requires reasoning_content on every assistant message, but assistant message at index 6 is missing reasoning_content",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        ] {
            assert_eq!(detect(&anthropic(message)), Some(ThinkingRefusal::Missing));
            let wrapped = json!({"error": {"message": "Provider returned error", "code": 400,
                "metadata": {"raw": json!({"error": {"message": message}}).to_string()}}});
            assert_eq!(
                detect(&wrapped),
                Some(ThinkingRefusal::Missing),
                "{wrapped}"
            );
        }
    }

    #[test]
    fn other_errors_are_none_of_it() {
        for message in [
            "thinking.adaptive.block_binding: Extra inputs are not permitted",
            "Invalid request signature",
            "prompt is too long: 210000 tokens > 200000 maximum",
        ] {
            assert_eq!(detect(&anthropic(message)), None, "{message}");
        }
        let echoed = json!({"detail": [{"msg": "Field required", "input": BOUND}]});
        assert_eq!(detect(&echoed), None);
        let answer = json!({"choices": [{"message": {"content": BOUND}}], "message": BOUND});
        let answer = answer.to_string();
        assert_eq!(
            detect_thinking_refusal(StatusCode::OK, answer.as_bytes()),
            None
        );
        let bound = anthropic(BOUND).to_string();
        for status in [500, 502] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(detect_thinking_refusal(status, bound.as_bytes()).is_some());
        }
        for status in [401, 403, 429, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(detect_thinking_refusal(status, bound.as_bytes()), None);
        }
    }

    #[test]
    fn a_refusal_of_the_member_is_known_by_its_name() {
        for message in [
            "thinking.adaptive.block_binding: Extra inputs are not permitted",
            "Unexpected value(s) `thinking-binding-controls-2026-08-01` for the `anthropic-beta` header.",
        ] {
            assert!(names_binding(anthropic(message).to_string().as_bytes()));
        }
        assert!(!names_binding(anthropic(CLAUSE).to_string().as_bytes()));
    }
}
