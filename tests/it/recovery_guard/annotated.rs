//! Annotations with the guard's edits and injections: the sent request is the same as without
//! annotations.

use super::{WINDOWS, index_conversation, make_injected, make_policy, profiles_of};
use crate::support::generate::{Random, any_conversation};
use bytes::Bytes;
use plimsoll::{
    config::GuardConfig,
    conversation::{Conversation, edit::Edits},
    guard::{self, SessionKnowledge},
    json::scan::{JsonScanner, MalformedJson, Span},
};
use proptest::prelude::*;

/// Critical ones, so that nothing is cut for them.
const SAYS: &[&str] = &[
    r#""plimsoll":{"name":"x","priority":"critical"}"#,
    r#""plimsoll" : {"priority":"critical", "name":"a,}]"}"#,
    r#""plimsoll":null"#,
];

/// Puts an annotation into an object, at an end or between two members.
fn annotate(conversation: &Conversation, object: Span, random: &mut Random, edits: &mut Edits) {
    let (mut first, mut ends) = (None, Vec::new());
    JsonScanner::new(&conversation.body, object.start as usize)
        .walk_object(|scan, key| {
            first.get_or_insert(key.quoted_span().start);
            scan.take_value()?;
            ends.push(scan.position() as u32);
            Ok::<_, MalformedJson>(())
        })
        .unwrap();
    let Some(first) = first else {
        return;
    };
    for _ in 0..random.between(1, 2) {
        let says = SAYS[random.below(SAYS.len())];
        match random.below(ends.len() + 1) {
            0 => edits.insert(first, format!("{says} , ")),
            member => edits.insert(ends[member - 1], format!(" , {says}")),
        }
    }
}

/// The same conversation with some messages and parts annotated.
fn annotated(conversation: &Conversation, seed: u64) -> Bytes {
    let mut random = Random::for_part(seed, 17);
    let mut edits = Edits::default();
    for message in &conversation.items {
        let parts = conversation.blocks_of(message).iter();
        for object in parts.map(|part| part.span).chain([message.span]) {
            if random.chance(40) {
                annotate(conversation, object, &mut random, &mut edits);
            }
        }
    }
    edits.apply(&conversation.body).to_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn annotations_never_reach_a_provider_after_any_edit(case in any_conversation(50), window in prop::sample::select(&WINDOWS[..]), seed in any::<u64>()) {
        let plain = index_conversation(&case.body());
        let noted = index_conversation(&annotated(&plain, seed));
        let settings = GuardConfig::default();
        for (one, other) in plain.items.iter().zip(&noted.items) {
            prop_assert_eq!(one.digest, other.digest);
        }
        for profile in profiles_of(&case) {
            let policy = make_policy(profile, window, &settings);
            for ours in [make_injected(&plain, seed), Default::default()] {
                let knowledge = SessionKnowledge { injections: ours, ..SessionKnowledge::default() };
                let sent = |conversation: &Conversation| {
                    let plan = guard::plan(conversation, &policy, &knowledge);
                    let mut edits = plan.edits;
                    conversation.take_out_annotations(&mut edits);
                    let body = edits.apply(&conversation.body).to_bytes();
                    (String::from_utf8_lossy(&body).into_owned(), plan.report.format_actions())
                };
                prop_assert_eq!(sent(&plain), sent(&noted));
            }
        }
        // They are removed with the guard off too.
        let mut edits = Edits::default();
        noted.take_out_annotations(&mut edits);
        prop_assert_eq!(edits.apply(&noted.body).to_bytes(), plain.body);
    }
}
