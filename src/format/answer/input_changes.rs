//! What a provider says it did with the thinking of earlier answers before the model read the request
//! (`input_transformations`), in Messages and in Responses. Entries of unknown types are ignored, as both ask.

use crate::{
    format::values::{skip_value, take_raw_text, walk_if_object},
    json::scan::{JsonScanner, MalformedJson},
};

/// The member of an answer.
pub(in crate::format) const INPUT_CHANGES: &[u8] = b"input_transformations";

/// Why a block does not fit any more; those of Anthropic and Bedrock, then OpenAI's.
const REASONS: [&str; 9] = [
    "prefix_binding_mismatch",
    "model_binding_mismatch",
    "organization_binding_mismatch",
    "end_user_binding_mismatch",
    "prefix_mismatch",
    "model_mismatch",
    "organization_mismatch",
    "end_user_mismatch",
    "turn_boundary",
];

/// The label of all other reasons.
const OTHER_REASON: &str = "other";

/// Counts of blocks of thinking that did not fit, by reason: those that the provider dropped, and those that it gave to
/// the model all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputChanges {
    dropped: [u32; REASONS.len() + 1],
    allowed: [u32; REASONS.len() + 1],
}

impl InputChanges {
    pub fn count_dropped(&self) -> u32 {
        self.dropped.iter().sum()
    }

    pub fn count_allowed(&self) -> u32 {
        self.allowed.iter().sum()
    }

    /// What became of the blocks, why, and how many they are, where there are any.
    pub fn list_counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u32)> {
        let reasons = || REASONS.into_iter().chain([OTHER_REASON]);
        let dropped = reasons().zip(self.dropped);
        let dropped = dropped.map(|(reason, count)| ("dropped", reason, count));
        let allowed = reasons().zip(self.allowed);
        let allowed = allowed.map(|(reason, count)| ("allowed", reason, count));
        dropped.chain(allowed).filter(|(_, _, count)| *count > 0)
    }

    /// `action`: OpenAI's, whose entries are `{"id", "type": "reasoning", "action": "removed", "reason"}` (its SDK's types).
    fn add_entry(&mut self, kind: &[u8], action: &[u8], reason: &[u8]) {
        let mut reasons = REASONS.iter();
        let known = reasons.position(|known| known.as_bytes() == reason);
        let counts = match kind {
            b"thinking_dropped" => &mut self.dropped,
            b"thinking_mismatch_allowed" => &mut self.allowed,
            b"reasoning" if action == b"removed" => &mut self.dropped,
            _ => return,
        };
        let count = &mut counts[known.unwrap_or(REASONS.len())];
        *count = count.saturating_add(1);
    }
}

/// Reads the list; `None` for any other value.
pub(in crate::format) fn read_input_changes(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
) -> Result<Option<InputChanges>, MalformedJson> {
    if scan.peek() != Some(b'[') {
        return scan.take_value().map(|_| None);
    }
    let mut changes = InputChanges::default();
    scan.walk_array(|scan| {
        let (mut kind, mut action, mut reason) = (&b""[..], &b""[..], &b""[..]);
        walk_if_object(scan, |scan, key| {
            match key.raw_bytes(json) {
                b"type" => kind = take_raw_text(json, scan)?,
                b"action" => action = take_raw_text(json, scan)?,
                b"reason" => reason = take_raw_text(json, scan)?,
                _ => skip_value(scan)?,
            }
            Ok(())
        })?;
        changes.add_entry(kind, action, reason);
        Ok::<_, MalformedJson>(())
    })?;
    Ok(Some(changes))
}

#[cfg(test)]
mod tests {
    use crate::format::answer::input_changes::*;

    fn read(json: &str) -> Option<InputChanges> {
        let json = json.as_bytes();
        read_input_changes(json, &mut JsonScanner::new(json, 0)).unwrap()
    }

    #[test]
    fn entries_are_counted_by_what_became_of_the_block_and_why() {
        let changes = read(
            r#"[{"type":"thinking_dropped","path":"messages.1.content.0","reason":"prefix_binding_mismatch"},
                {"reason":"prefix_binding_mismatch","path":[{}],"type":"thinking_dropped"},
                {"type":"thinking_dropped","reason":"of a later day"},
                {"type":"thinking_mismatch_allowed","reason":"prefix_binding_mismatch"},
                {"id":"rs_1","type":"reasoning","action":"removed","reason":"prefix_mismatch"},
                {"id":"rs_2","type":"reasoning","action":"kept","reason":"prefix_mismatch"},
                {"type":"of a later day","reason":"x"}, {"type":1}, {}, 7, null]"#,
        );
        let changes = changes.unwrap();
        assert_eq!((changes.count_dropped(), changes.count_allowed()), (4, 1));
        let counts: Vec<_> = changes.list_counts().collect();
        assert_eq!(
            counts,
            [
                ("dropped", "prefix_binding_mismatch", 2),
                ("dropped", "prefix_mismatch", 1),
                ("dropped", "other", 1),
                ("allowed", "prefix_binding_mismatch", 1),
            ]
        );
        assert_eq!(read("[]"), Some(InputChanges::default()));
        for other in ["null", "{}", "7", "\"x\""] {
            assert_eq!(read(other), None);
        }
    }
}
