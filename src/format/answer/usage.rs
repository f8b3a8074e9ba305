//! The tokens that a provider reports, and OpenAI's `usage` objects in every shape seen at providers.
//!
//! Usage is the only source of health, so nothing is guessed here: a number that cannot be a
//! count of tokens is ignored.

use smallvec::SmallVec;

use crate::{
    format::{
        UsageCount, UsageCountKind, UsageReport,
        values::{ReadResult, skip_value, walk_if_object},
    },
    json::scan::{JsonScanner, JsonString, MalformedJson},
};

/// The tokens of one answer, by its provider's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: Option<u32>,
    /// The part of the prompt that came from the provider's cache.
    pub cached_tokens: Option<u32>,
    /// The part of the prompt that the provider wrote to its cache.
    pub cache_written_tokens: Option<u32>,
}

impl Usage {
    /// The valid one of two reports of one answer. Reports are cumulative, so the later one counts,
    /// unless its prompt is 0: some providers report zeros before they know the count.
    pub fn latest_report(earlier: Option<Self>, later: Self) -> Self {
        match earlier {
            Some(earlier) if later.prompt_tokens == 0 => earlier,
            _ => later,
        }
    }
}

/// A count of tokens: a whole number of 32 bits, in any spelling (`12`, `12.0`).
pub(in crate::format) fn parse_count(spelt: &[u8]) -> Option<u32> {
    let spelt = std::str::from_utf8(spelt).ok()?;
    if let Ok(whole) = spelt.parse::<u64>() {
        return u32::try_from(whole).ok();
    }
    let number = spelt.parse::<f64>().ok()?;
    let is_count = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    is_count.then_some(number as u32)
}

/// Takes a count. The second value is the count with its span, if it has a kind and is spelt in digits only, so that it
/// can be edited.
pub(in crate::format) fn take_count(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
    kind: Option<UsageCountKind>,
) -> Result<(Option<u32>, Option<UsageCount>), MalformedJson> {
    let (span, _) = scan.take_value()?;
    let spelt = &json[span.range()];
    let tokens = parse_count(spelt);
    let editable = tokens.zip(kind).filter(|_| is_plain(spelt));
    let editable = editable.map(|(tokens, kind)| UsageCount { kind, tokens, span });
    Ok((tokens, editable))
}

/// Whether a number is written in digits only.
fn is_plain(spelt: &[u8]) -> bool {
    spelt.iter().all(u8::is_ascii_digit) && (spelt.len() == 1 || !spelt.starts_with(b"0"))
}

/// The counts of a `usage` object under their various names. If a count has several names, then the first one is used.
#[derive(Default)]
struct ReportedCounts {
    prompt: [Option<u32>; 2],
    completion: [Option<u32>; 2],
    cached: [Option<u32>; 5],
    cache_written: Option<u32>,
}

/// Reads the value of a `usage` of chat completions or Responses; skips what is not an object.
pub(in crate::format) fn read_usage(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
) -> Result<Option<UsageReport>, MalformedJson> {
    use UsageCountKind::{Completion, Prompt, Total};
    let (mut found, mut total) = (ReportedCounts::default(), None);
    let mut counts = SmallVec::new();
    let span = walk_if_object(scan, |scan, key| {
        let (count, kind) = match key.raw_bytes(json) {
            b"prompt_tokens" => (&mut found.prompt[0], Some(Prompt)),
            b"input_tokens" => (&mut found.prompt[1], Some(Prompt)),
            b"completion_tokens" => (&mut found.completion[0], Some(Completion)),
            b"output_tokens" => (&mut found.completion[1], Some(Completion)),
            b"total_tokens" => (&mut total, Some(Total)),
            b"prompt_tokens_details" => return found.read_details(json, scan, 0),
            b"input_tokens_details" => return found.read_details(json, scan, 1),
            b"prompt_cache_hit_tokens" => (&mut found.cached[2], None),
            b"num_cached_tokens" => (&mut found.cached[3], None),
            b"cached_tokens" => (&mut found.cached[4], None),
            _ => return skip_value(scan),
        };
        let (tokens, editable) = take_count(json, scan, kind)?;
        *count = tokens;
        counts.extend(editable);
        Ok(())
    })?;
    let first = |counts: &[Option<u32>]| counts.iter().copied().flatten().next();
    let usage = first(&found.prompt).map(|prompt_tokens| Usage {
        prompt_tokens,
        completion_tokens: first(&found.completion),
        cached_tokens: first(&found.cached),
        cache_written_tokens: found.cache_written,
    });
    Ok(span.map(|span| UsageReport {
        span,
        usage,
        counts,
    }))
}

impl ReportedCounts {
    fn read_details(
        &mut self,
        json: &[u8],
        scan: &mut JsonScanner<'_>,
        place: usize,
    ) -> ReadResult {
        let walked = walk_if_object(scan, |scan, key: JsonString| {
            let (span, _) = scan.take_value()?;
            let tokens = || parse_count(&json[span.range()]);
            match key.raw_bytes(json) {
                b"cached_tokens" => self.cached[place] = tokens(),
                b"cache_write_tokens" => self.cache_written = tokens(),
                _ => {}
            }
            Ok(())
        });
        walked.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{AnswerEvent, chat::answer::read_answer};

    #[test]
    fn usage_is_read_in_every_shape() {
        let check = |json: &str, expected: Option<(u32, Option<u32>, Option<u32>)>| {
            let answer = read_answer(format!(r#"{{"usage":{json}}}"#).as_bytes()).unwrap();
            let usage = answer.events.first().and_then(|event| match event {
                AnswerEvent::Usage(report) => report.usage,
                _ => None,
            });
            let found = usage.map(|usage| {
                (
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.cached_tokens,
                )
            });
            assert_eq!(found, expected, "{json}");
        };
        check(
            r#"{"prompt_tokens":3,"completion_tokens":4}"#,
            Some((3, Some(4), None)),
        );
        check(
            r#"{"prompt_tokens":3.0,"completion_tokens":null}"#,
            Some((3, None, None)),
        );
        check(
            r#"{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}"#,
            Some((3, None, Some(2))),
        );
        check(
            r#"{"prompt_tokens":3,"prompt_tokens_details":null,"prompt_cache_hit_tokens":2}"#,
            Some((3, None, Some(2))),
        );
        let written = r#""cache_write_tokens":7,"cache_write_tokens_details":{"ttl_30m_tokens":3,"ttl_12h_tokens":4}"#;
        for details in ["prompt_tokens_details", "input_tokens_details"] {
            let json =
                format!(r#"{{"prompt_tokens":30,"{details}":{{"cached_tokens":2,{written}}}}}"#);
            check(&json, Some((30, None, Some(2))));
            check(
                &format!(r#"{{"prompt_tokens":30,{written}}}"#),
                Some((30, None, None)),
            );
        }
        check(
            r#"{"prompt_tokens":3,"num_cached_tokens":1}"#,
            Some((3, None, Some(1))),
        );
        check(
            r#"{"prompt_tokens":3,"cached_tokens":1,"cost":0.01}"#,
            Some((3, None, Some(1))),
        );
        check(
            r#"{"prompt_tokens":3,"completion_tokens":-4}"#,
            Some((3, None, None)),
        );
        for absurd in ["-1", "4294967296", "1e300", "1.5", "\"3\"", "null", "[]"] {
            check(&format!(r#"{{"prompt_tokens":{absurd}}}"#), None);
        }
        check("null", None);
        check("{}", None);
    }
}
