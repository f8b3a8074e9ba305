//! The guard's lines of defence in every combination of on and off.

use std::collections::BTreeMap;

use super::generate::Random;
use bytes::Bytes;
use plimsoll::{
    config::{ClearConfig, GuardConfig, WhenUnsure},
    conversation::{Conversation, ItemPlace, edit::Edits},
    json::scan::{JsonScanner, Span},
};

/// Settings by seed: clearing with and without inputs, excluded tools, every threshold, caps and
/// shares.
pub(crate) fn any_settings(seed: u64) -> GuardConfig {
    let mut random = Random::for_part(seed, 17);
    let defaults = GuardConfig::default();
    let at = [None, Some(0.0), Some(0.3), Some(0.8), Some(1.0)][random.below(5)];
    let at_least = [None, Some(0.02), Some(0.1), Some(0.5)][random.below(4)];
    let exclude = ["read*", "bash", "f"].map(str::to_owned);
    let clear = ClearConfig {
        enabled: random.chance(85),
        at,
        at_least,
        keep_rounds: [None, Some(1), Some(2), Some(3)][random.below(4)],
        keep_steps: [None, Some(1), Some(4), Some(10)][random.below(4)],
        exclude: exclude.into_iter().take(random.below(4)).collect(),
        inputs: random.chance(50),
    };
    let caps = [("notes", 20), ("docs", [200, 4_000][random.below(2)])];
    let caps = caps.into_iter().take(random.below(3));
    GuardConfig {
        clear,
        caps: caps.map(|(name, cap)| (name.to_owned(), cap)).collect(),
        system_share: [0.02, 0.1, 1.0, 3.0][random.below(4)],
        trim_system: random.chance(50),
        low_water: random.chance(30).then_some(0.6),
        when_unsure: [None, Some(WhenUnsure::Cut), Some(WhenUnsure::Send)][random.below(3)],
        ..defaults
    }
}

/// The settings for a request that was already guarded: annotations are applied and removed.
pub(crate) fn settings_once_applied(settings: &GuardConfig) -> GuardConfig {
    GuardConfig {
        caps: BTreeMap::new(),
        system_share: 1_000.0,
        trim_system: false,
        ..settings.clone()
    }
}

/// The same conversation with some messages and parts annotated, by seed and place, so that a
/// longer conversation has the same annotations on its earlier messages.
pub(crate) fn annotate_randomly(conversation: &Conversation, seed: u64) -> Bytes {
    let mut edits = Edits::default();
    for (at, message) in conversation.items.iter().enumerate() {
        let mut random = Random::for_part(seed, 1_000 + at as u64);
        // A run of blocks is no object, and neither is a text outside the list.
        let is_object = message.place == ItemPlace::Whole || message.author.is_tool();
        let mut parts: Vec<_> = conversation
            .blocks_of(message)
            .iter()
            .map(|part| part.span)
            .collect();
        // A block may be a whole entry, and two blocks may share one.
        parts.dedup();
        parts.retain(|part| !is_object || part.start != message.span.start);
        for object in is_object.then_some(message.span).into_iter().chain(parts) {
            if random.chance(40) {
                insert_annotation(conversation, object, &mut random, &mut edits);
            }
        }
    }
    edits.apply(&conversation.body).to_bytes()
}

/// The same without annotations, as sent to the provider.
pub(crate) fn without_annotations(conversation: &Conversation) -> Bytes {
    let mut edits = Edits::default();
    conversation.take_out_annotations(&mut edits);
    edits.apply(&conversation.body).to_bytes()
}

/// Inserts an annotation at the start of an object that has members.
fn insert_annotation(
    conversation: &Conversation,
    object: Span,
    random: &mut Random,
    edits: &mut Edits,
) {
    let name = ["notes", "docs", "rules"][random.below(3)];
    let priority = ["low", "medium", "high", "critical"][random.below(4)];
    let mut first = None;
    let read =
        JsonScanner::new(&conversation.body, object.start as usize).walk_object(|scan, key| {
            first.get_or_insert(key.quoted_span().start);
            scan.take_value().map(drop)
        });
    if let (Ok(_), Some(first)) = (read, first) {
        let note = format!(r#""plimsoll":{{"name":"{name}","priority":"{priority}"}},"#);
        edits.insert(first, note);
    }
}
