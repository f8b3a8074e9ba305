//! What a provider says it did with the thinking of earlier answers before the model read the request
//! (`input_transformations`), in Messages and in Responses. Entries of unknown types are ignored, as both ask.

use crate::{
    format::values::{skip_value, take_raw_text, walk_if_object},
    json::{
        scan::{JsonScanner, MalformedJson},
        text::digest_text,
    },
};

/// The member of an answer that lists the changes.
pub(in crate::format) const INPUT_CHANGES: &[u8] = b"input_transformations";

/// The known reasons why the model does not read a block as it was sent: those of Anthropic and Bedrock, then OpenAI's.
const REASONS: [&str; 9] = [
    "prefix_binding_mismatch",
    "model_binding_mismatch",
    "organization_binding_mismatch",
    "end_user_binding_mismatch",
    "prefix_mismatch",
    "model_mismatch",
    "organization_mismatch",
    "end_user_mismatch",
    TURN_BOUNDARY,
];

/// The reason for reasoning that is forgotten by rule, which is no loss: the model, or the request's `reasoning.context`,
/// reads the reasoning of the running turn only.
const TURN_BOUNDARY: &str = "turn_boundary";

/// The label of all other reasons.
const OTHER_REASON: &str = "other";

/// Entries that are read of one answer.
const MAX_ENTRIES: usize = 1_024;

/// What the provider did with a block of thinking in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Dropped,
    /// The block does not fit, but the model got it.
    Allowed,
    Forgotten,
    /// Not a block of thinking: the server may have made images smaller than they were sent.
    Compressed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    fate: Fate,
    reason: &'static str,
    /// The digest of OpenAI's id, by which an entry that is repeated is known.
    id: Option<u64>,
    /// An earlier answer of the session had it too.
    is_repeated: bool,
}

/// What the provider did with blocks of thinking in a request. OpenAI repeats its list in each later answer that has the
/// items, so only new entries are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputChanges(Vec<Entry>);

impl InputChanges {
    fn count(&self, fate: Fate) -> u32 {
        let new = self.0.iter().filter(|it| !it.is_repeated);
        new.filter(|it| it.fate == fate).count() as u32
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count_dropped(&self) -> u32 {
        self.count(Fate::Dropped)
    }

    pub fn count_allowed(&self) -> u32 {
        self.count(Fate::Allowed)
    }

    /// Reasoning of earlier turns that the model does not read by its rule.
    pub fn count_forgotten(&self) -> u32 {
        self.count(Fate::Forgotten)
    }

    /// Whether the model read all thinking that was sent. Reasoning that an earlier answer already reported as forgotten
    /// is ignored; a dropped block never is.
    pub fn is_all_read(&self) -> bool {
        let mut dropped = self.0.iter().filter(|it| it.fate == Fate::Dropped);
        dropped.next().is_none() && self.count_forgotten() == 0
    }

    /// Notes that the server may have made images smaller before it counted tokens (OpenAI's
    /// `image.context_compression`).
    pub(in crate::format) fn note_compressed_images(&mut self) {
        self.0.push(Entry {
            fate: Fate::Compressed,
            reason: OTHER_REASON,
            id: None,
            is_repeated: false,
        });
    }

    pub fn has_compressed_images(&self) -> bool {
        self.0.iter().any(|it| it.fate == Fate::Compressed)
    }

    /// Marks the entries that an earlier answer had too. `known`: the ids that the earlier answer reported; the ids of
    /// this one replace them.
    pub fn mark_repeated(&mut self, known: &mut Vec<u64>) {
        for entry in &mut self.0 {
            entry.is_repeated = entry.id.is_some_and(|id| known.binary_search(&id).is_ok());
        }
        known.clear();
        known.extend(self.0.iter().filter_map(|it| it.id));
        known.sort_unstable();
    }

    /// Lists what the provider did with blocks, why, and with how many of them. Counts of 0 are left out.
    pub fn list_counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u32)> {
        let fates = [
            ("dropped", Fate::Dropped),
            ("allowed", Fate::Allowed),
            ("forgotten", Fate::Forgotten),
        ];
        let of = move |(name, fate)| {
            let reasons = REASONS.into_iter().chain([OTHER_REASON]);
            reasons.map(move |reason| {
                let same = self.0.iter().filter(|it| !it.is_repeated);
                let same = same.filter(|it| (it.fate, it.reason) == (fate, reason));
                (name, reason, same.count() as u32)
            })
        };
        let counts = fates.into_iter().flat_map(of);
        counts.filter(|(_, _, count)| *count > 0)
    }

    /// `action`: set by OpenAI only, whose entries are `{"id", "type": "reasoning", "action": "removed", "reason"}` (its
    /// SDK's types).
    fn add_entry(&mut self, kind: &[u8], action: &[u8], reason: &[u8], id: &[u8]) {
        let mut reasons = REASONS.into_iter();
        let known = reasons.find(|known| known.as_bytes() == reason);
        let reason = known.unwrap_or(OTHER_REASON);
        let fate = match kind {
            b"thinking_dropped" => Fate::Dropped,
            b"thinking_mismatch_allowed" => Fate::Allowed,
            b"reasoning" if action == b"removed" && reason == TURN_BOUNDARY => Fate::Forgotten,
            b"reasoning" if action == b"removed" => Fate::Dropped,
            _ => return,
        };
        if self.0.len() < MAX_ENTRIES {
            self.0.push(Entry {
                fate,
                reason,
                id: (!id.is_empty()).then(|| digest_text(id) as u64),
                is_repeated: false,
            });
        }
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
        let [mut kind, mut action, mut reason, mut id] = [&b""[..]; 4];
        walk_if_object(scan, |scan, key| {
            match key.raw_bytes(json) {
                b"type" => kind = take_raw_text(json, scan)?,
                b"action" => action = take_raw_text(json, scan)?,
                b"reason" => reason = take_raw_text(json, scan)?,
                b"id" => id = take_raw_text(json, scan)?,
                _ => skip_value(scan)?,
            }
            Ok(())
        })?;
        changes.add_entry(kind, action, reason, id);
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

    #[test]
    fn what_is_forgotten_by_rule_is_no_loss_and_what_is_repeated_counts_once() {
        let removed = |id: &str, reason: &str| {
            format!(r#"{{"id":"{id}","type":"reasoning","action":"removed","reason":"{reason}"}}"#)
        };
        let (old, lost) = (
            removed("rs_1", "turn_boundary"),
            removed("rs_2", "prefix_mismatch"),
        );
        let (mut known, newer) = (Vec::new(), removed("rs_3", "turn_boundary"));
        for (list, forgotten, dropped, all_read) in [
            (old.clone(), 1, 0, false),
            (old.clone(), 0, 0, true),
            (format!("{old},{lost}"), 0, 1, false),
            // It is repeated, and still no part of the prompt.
            (format!("{old},{lost},{newer}"), 1, 0, false),
            (String::new(), 0, 0, true),
        ] {
            let mut changes = read(&format!("[{list}]")).unwrap();
            changes.mark_repeated(&mut known);
            assert_eq!(
                (
                    changes.count_forgotten(),
                    changes.count_dropped(),
                    changes.is_all_read()
                ),
                (forgotten, dropped, all_read)
            );
        }
    }
}
