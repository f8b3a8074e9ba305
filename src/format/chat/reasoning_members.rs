//! The members of a chat message in which clients send reasoning back, and the sizes of this reasoning.

use crate::{
    format::{index::sealed::measure_sealed, values::skip_value},
    json::{
        scan::{JsonScanner, JsonString, MalformedJson},
        text::{self, TextSizes},
    },
};

/// The member that some models demand.
pub(in crate::format) const COUNTED_MEMBER: &[u8] = b"reasoning_content";
/// The members that hold reasoning: the first of DeepSeek, Kimi and GLM, the second of vLLM and OpenRouter, the third of
/// OpenRouter, the fourth of LiteLLM. The last two may have signatures, from which the gateway restores signed thinking.
pub(in crate::format) const REASONING_MEMBERS: [&[u8]; 4] = [
    COUNTED_MEMBER,
    b"reasoning",
    b"reasoning_details",
    b"thinking_blocks",
];

/// The member of a message, and of its calls, in which Gemini signs them.
pub(in crate::format) const SIGNED_MEMBER: &[u8] = b"extra_content";

/// Levels of nesting that are followed inside a member.
const MAX_DEPTH: usize = 8;

/// Measures the reasoning of the message whose object begins at `start`. Gateways send the same text under two names, so
/// only the longest of these members counts. What [`SIGNED_MEMBER`] holds is added to it.
pub(in crate::format) fn measure_reasoning(body: &[u8], start: u32) -> TextSizes {
    let mut scan = JsonScanner::new(body, start as usize);
    let (mut longest, mut beside) = (TextSizes::default(), TextSizes::default());
    // The object was read before.
    let _ = scan.walk_object(|scan, key| {
        let key = key.raw_bytes(body);
        if REASONING_MEMBERS.contains(&key) {
            let mut sizes = TextSizes::default();
            match scan.peek() {
                Some(b'"') => sizes += measure(body, scan.take_string()?),
                _ => add_parts(body, scan, MAX_DEPTH, &mut sizes)?,
            }
            if sizes.total_chars() > longest.total_chars() {
                longest = sizes;
            }
        } else if key == SIGNED_MEMBER {
            add_parts(body, scan, MAX_DEPTH, &mut beside)?;
        } else if key == b"tool_calls" && scan.peek() == Some(b'[') {
            scan.walk_array(|scan| add_of_call(body, scan, &mut beside))?;
        } else {
            skip_value(scan)?;
        }
        Ok::<_, MalformedJson>(())
    });
    longest += beside;
    longest
}

fn measure(body: &[u8], text: JsonString) -> TextSizes {
    text::measure_text(text.raw_bytes(body))
}

fn add_of_call(
    body: &[u8],
    scan: &mut JsonScanner<'_>,
    sizes: &mut TextSizes,
) -> Result<(), MalformedJson> {
    if scan.peek() != Some(b'{') {
        return skip_value(scan);
    }
    let walked = scan.walk_object(|scan, key| match key.raw_bytes(body) {
        SIGNED_MEMBER => add_parts(body, scan, MAX_DEPTH, sizes),
        _ => skip_value(scan),
    });
    walked.map(drop)
}

/// Adds the sizes of the texts in blocks and details, and of what is sealed in them. A signature next to its text does
/// not count, since the model does not read it.
fn add_parts(
    body: &[u8],
    scan: &mut JsonScanner<'_>,
    depth: usize,
    sizes: &mut TextSizes,
) -> Result<(), MalformedJson> {
    match scan.peek() {
        Some(b'{') if depth > 0 => {
            let walked = scan.walk_object(|scan, key| {
                let key = key.raw_bytes(body);
                let is_string = scan.peek() == Some(b'"');
                match key {
                    b"text" | b"thinking" | b"summary" if is_string => {
                        *sizes += measure(body, scan.take_string()?);
                    }
                    b"data" | b"thought_signature" if is_string => {
                        *sizes += measure_sealed(scan.take_string()?);
                    }
                    _ => add_parts(body, scan, depth - 1, sizes)?,
                }
                Ok::<_, MalformedJson>(())
            });
            walked.map(drop)
        }
        Some(b'[') if depth > 0 => {
            let walked = scan.walk_array(|scan| add_parts(body, scan, depth - 1, sizes));
            walked.map(drop)
        }
        _ => skip_value(scan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chars(message: &str) -> usize {
        measure_reasoning(message.as_bytes(), 0).total_chars()
    }

    #[test]
    fn reasoning_weighs_the_same_under_all_names_and_once() {
        let text = "the keel has a leak ".repeat(100);
        let sealed = "A".repeat((text.len() + 650) * 4 / 3);
        for members in [
            format!(r#""reasoning_content":"{text}""#),
            format!(r#""reasoning":"{text}""#),
            format!(
                r#""reasoning_details":[{{"type":"reasoning.text","text":"{text}","signature":"s"}}]"#
            ),
            format!(
                r#""reasoning":"{text}","reasoning_details":[{{"type":"reasoning.text","text":"{text}","index":0}}]"#
            ),
            format!(r#""reasoning_details":[{{"type":"reasoning.summary","summary":"{text}"}}]"#),
            format!(
                r#""reasoning_details":[{{"type":"reasoning.encrypted","data":"{sealed}","id":"rs_1"}}]"#
            ),
            format!(
                r#""thinking_blocks":[{{"type":"thinking","thinking":"{text}","signature":"s"}}]"#
            ),
            format!(r#""thinking_blocks":[{{"type":"redacted_thinking","data":"{sealed}"}}]"#),
            format!(r#""extra_content":{{"google":{{"thought_signature":"{sealed}"}}}}"#),
            format!(
                r#""tool_calls":[{{"id":"c","extra_content":{{"google":{{"thought_signature":"{sealed}"}}}}}},{{"id":"d"}}]"#
            ),
        ] {
            let found = chars(&format!(
                r#"{{"role":"assistant",{members},"content":"t"}}"#
            ));
            assert!(found.abs_diff(text.len()) <= 2, "{found}: {members:.60}");
        }
    }

    #[test]
    fn odd_values_weigh_nothing() {
        for members in [
            r#""reasoning":null"#,
            r#""reasoning_details":[1,null,[]]"#,
            r#""thinking_blocks":{"data":5}"#,
            r#""extra_content":7,"tool_calls":[3,{"extra_content":null}]"#,
        ] {
            assert_eq!(chars(&format!(r#"{{{members}}}"#)), 0, "{members}");
        }
    }
}
