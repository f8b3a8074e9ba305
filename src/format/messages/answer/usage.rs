//! The reader of `usage` objects.
//!
//! The prompt is the sum of what follows the last cached block, what was written to the cache, and what was read from it.
//! If there are several iterations, then the last one of the model that answers says how full the window is: a `message`,
//! or after the server's own fallback a `fallback_message`, while the refused hop is a `message`. The iterations of a
//! compaction or an advisor do not say that, and the counts next to the iterations are sums. A stream reports at its
//! beginning and at its end; the later report counts, member by member.

use smallvec::SmallVec;

use super::{MessagesAnswer, read::MessagesAnswerReader};
use crate::{
    format::{
        AnswerEvent, UsageCount, UsageCountKind, UsageReport,
        answer::usage::{Usage, take_count},
        values::{ReadResult, skip_value, take_raw_text, walk_if_object},
    },
    json::scan::{JsonScanner, JsonString, MalformedJson},
};

/// The counts of one answer, as far as they are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    pub(super) prompt: PromptCounts,
    pub(super) output: Option<u32>,
    /// The prompt of the last iteration of the model.
    last_iteration: Option<PromptCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptCounts {
    pub(super) input: Option<u32>,
    pub(super) cache_written: Option<u32>,
    pub(super) cached: Option<u32>,
}

impl PromptCounts {
    /// Returns the count for this member of a report, and the kind of the count if it can be edited.
    const fn find_count(
        &mut self,
        key: &[u8],
    ) -> Option<(&mut Option<u32>, Option<UsageCountKind>)> {
        match key {
            b"input_tokens" => Some((&mut self.input, Some(UsageCountKind::Prompt))),
            b"cache_creation_input_tokens" => Some((&mut self.cache_written, None)),
            b"cache_read_input_tokens" => Some((&mut self.cached, None)),
            _ => None,
        }
    }

    pub(super) fn total(&self) -> Option<u32> {
        let counts = [self.input, self.cache_written, self.cached];
        let add = |sum: Option<u32>, count| Some(sum.unwrap_or(0).saturating_add(count));
        counts.into_iter().flatten().fold(None, add)
    }
}

impl TokenCounts {
    fn merge(&mut self, later: &Self) {
        // Some providers report a prompt of 0 where they do not know the count.
        if later.prompt.total() != Some(0) {
            let (known, later) = (&mut self.prompt, later.prompt);
            known.input = later.input.or(known.input);
            known.cache_written = later.cache_written.or(known.cache_written);
            known.cached = later.cached.or(known.cached);
        } else if self.prompt.total().is_none() {
            self.prompt = later.prompt;
        }
        self.output = later.output.or(self.output);
        self.last_iteration = later.last_iteration.or(self.last_iteration);
    }

    fn to_usage(self) -> Option<Usage> {
        let prompt = self.last_iteration.unwrap_or(self.prompt);
        Some(Usage {
            prompt_tokens: prompt.total()?,
            completion_tokens: self.output,
            cached_tokens: prompt.cached,
            cache_written_tokens: prompt.cache_written,
        })
    }
}

impl MessagesAnswer {
    /// Merges the report of an event into the counts of the answer so far.
    pub(super) fn merge_counts(&mut self, counts: &mut TokenCounts) {
        counts.merge(&self.reported);
        self.counts = *counts;
        for event in &mut self.events {
            if let AnswerEvent::Usage(report) = event {
                report.usage = counts.to_usage();
            }
        }
    }
}

impl MessagesAnswerReader<'_> {
    /// Reads the value of a `usage`; skips what is not an object.
    pub(super) fn read_usage(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        let (mut found, mut counts) = (TokenCounts::default(), SmallVec::new());
        let mut iteration_count = None;
        let span = walk_if_object(scan, |scan, key| {
            if key.raw_bytes(self.json) == b"iterations" && scan.peek() == Some(b'[') {
                let walked = scan.walk_array(|scan| {
                    let (iteration, count) = self.read_iteration(scan)?;
                    if iteration.is_some() {
                        (found.last_iteration, iteration_count) = (iteration, count);
                    }
                    Ok::<_, MalformedJson>(())
                });
                return walked.map(drop);
            }
            let (count, kind) = match key.raw_bytes(self.json) {
                b"output_tokens" => (&mut found.output, Some(UsageCountKind::Completion)),
                key => match found.prompt.find_count(key) {
                    Some(found) => found,
                    None => return skip_value(scan),
                },
            };
            let (tokens, editable) = take_count(self.json, scan, kind)?;
            *count = tokens;
            counts.extend(editable);
            Ok(())
        })?;
        let Some(span) = span else { return Ok(()) };
        counts.extend(iteration_count);
        (self.answer.reported, self.answer.counts) = (found, found);
        self.answer.events.push(AnswerEvent::Usage(UsageReport {
            span,
            usage: found.to_usage(),
            counts,
        }));
        Ok(())
    }

    /// Reads how many tokens the server's edits took out of the prompt (`context_management` of an answer). The server's
    /// counts do not include them.
    pub(super) fn read_cleared(&mut self, scan: &mut JsonScanner<'_>) -> ReadResult {
        let mut cleared = 0_u32;
        walk_if_object(scan, |scan, key| {
            if key.raw_bytes(self.json) != b"applied_edits" || scan.peek() != Some(b'[') {
                return skip_value(scan);
            }
            let walked = scan.walk_array(|scan| {
                let count = |scan: &mut JsonScanner<'_>, key: JsonString| {
                    if key.raw_bytes(self.json) != b"cleared_input_tokens" {
                        return skip_value(scan);
                    }
                    let (tokens, _) = take_count(self.json, scan, None)?;
                    cleared = cleared.saturating_add(tokens.unwrap_or(0));
                    Ok(())
                };
                walk_if_object(scan, count).map(drop)
            });
            walked.map(drop)
        })?;
        self.answer.events.push(AnswerEvent::Cleared(cleared));
        Ok(())
    }

    /// Reads an element of `iterations`. Returns its prompt, if it is an iteration of the model itself.
    fn read_iteration(
        &self,
        scan: &mut JsonScanner<'_>,
    ) -> Result<(Option<PromptCounts>, Option<UsageCount>), MalformedJson> {
        let (mut kind, mut prompt, mut input) = (&b""[..], PromptCounts::default(), None);
        walk_if_object(scan, |scan, key| {
            let key = key.raw_bytes(self.json);
            if key == b"type" {
                kind = take_raw_text(self.json, scan)?;
            } else if let Some((count, kind)) = prompt.find_count(key) {
                let (tokens, editable) = take_count(self.json, scan, kind)?;
                *count = tokens;
                input = editable.or(input);
            } else {
                skip_value(scan)?;
            }
            Ok(())
        })?;
        let is_counted =
            matches!(kind, b"message" | b"fallback_message") && prompt.total().is_some();
        Ok(if is_counted {
            (Some(prompt), input)
        } else {
            (None, None)
        })
    }
}
