//! The reader of `usage` objects, in every shape seen at providers.
//!
//! Usage is the only source of health, so nothing is guessed here: a number that cannot be a
//! count of tokens is ignored.

use smallvec::SmallVec;

use super::read::ChatAnswerReader;
use crate::{
    format::{
        AnswerEvent, UsageCount, UsageCountKind, UsageReport,
        usage::{Usage, is_plain, parse_count},
        values::{ReadResult, skip_value, walk_if_object},
    },
    json::scan::JsonScanner,
};

/// The counts of a `usage` object by their various names. Of several, the first one counts.
#[derive(Default)]
struct ReportedCounts {
    prompt: [Option<u32>; 2],
    completion: [Option<u32>; 2],
    cached: [Option<u32>; 5],
}

impl ChatAnswerReader<'_> {
    /// Reads the value of a `usage`; skips what is not an object.
    pub(super) fn read_usage(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        use UsageCountKind::{Completion, Prompt, Total};
        let (mut found, mut total) = (ReportedCounts::default(), None);
        let mut counts = SmallVec::new();
        let span = walk_if_object(scan, |scan, key| {
            let (count, kind) = match self.raw_bytes(key) {
                b"prompt_tokens" => (&mut found.prompt[0], Some(Prompt)),
                b"input_tokens" => (&mut found.prompt[1], Some(Prompt)),
                b"completion_tokens" => (&mut found.completion[0], Some(Completion)),
                b"output_tokens" => (&mut found.completion[1], Some(Completion)),
                b"total_tokens" => (&mut total, Some(Total)),
                b"prompt_tokens_details" => return self.read_cached(scan, &mut found.cached[0]),
                b"input_tokens_details" => return self.read_cached(scan, &mut found.cached[1]),
                b"prompt_cache_hit_tokens" => (&mut found.cached[2], None),
                b"num_cached_tokens" => (&mut found.cached[3], None),
                b"cached_tokens" => (&mut found.cached[4], None),
                _ => return skip_value(scan),
            };
            let (span, _) = scan.take_value()?;
            let spelt = &self.json[span.range()];
            *count = parse_count(spelt);
            if let (Some(tokens), Some(kind), true) = (*count, kind, is_plain(spelt)) {
                counts.push(UsageCount { kind, tokens, span });
            }
            Ok(())
        })?;
        let first = |counts: &[Option<u32>]| counts.iter().copied().flatten().next();
        let usage = first(&found.prompt).map(|prompt_tokens| Usage {
            prompt_tokens,
            completion_tokens: first(&found.completion),
            cached_tokens: first(&found.cached),
            cache_written_tokens: None,
        });
        let report = span.map(|span| UsageReport {
            span,
            usage,
            counts,
        });
        self.answer.events.extend(report.map(AnswerEvent::Usage));
        Ok(())
    }

    fn read_cached(&self, scan: &mut JsonScanner<'_>, cached: &mut Option<u32>) -> ReadResult {
        let walked = walk_if_object(scan, |scan, key| {
            let (span, _) = scan.take_value()?;
            if self.raw_bytes(key) == b"cached_tokens" {
                *cached = parse_count(&self.json[span.range()]);
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
