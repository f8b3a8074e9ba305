//! Golden pairs: guarded requests of small conversations, for a person to read.
//!
//! `tests/data/guard/NAME.json` is a request, `NAME.PROFILE.json` the guarded request at a window
//! of 1,024 tokens, rewritten by `UPDATE_GOLDEN=1`.

use std::{fs, path::PathBuf};

use crate::support::strict;
use bytes::Bytes;
use plimsoll::{
    config::{GuardConfig, tokens::find_token_rule},
    format::chat::index_body,
    guard::{self, Policy, SessionKnowledge, profile::find_profile},
};

const PROFILES: [&str; 3] = ["openai", "template", "gemini"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/guard")
}

#[test]
fn golden_requests_are_guarded_as_recorded() {
    let settings = GuardConfig::default();
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.matches('.').count() == 1)
        .collect();
    names.sort();
    assert!(names.len() >= 4, "the requests are there: {names:?}");
    for name in names {
        let body = fs::read(folder().join(&name)).unwrap();
        for profile in PROFILES {
            let policy = Policy::new(
                find_profile(profile).unwrap(),
                1_024,
                find_token_rule("", find_profile(profile).unwrap()),
                &settings,
            );
            let conversation = index_body(Bytes::from(body.clone())).unwrap();
            let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
            let sent = plan.edits.apply(&conversation.body).to_bytes();
            assert_eq!(
                strict::find_broken_rules(&body, &sent, policy.profile),
                [],
                "{name}"
            );
            let place = folder().join(name.replace(".json", &format!(".{profile}.json")));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&place, &sent).unwrap();
            }
            let expected = fs::read_to_string(&place).unwrap_or_default();
            let sent = String::from_utf8_lossy(&sent);
            assert_eq!(sent, expected, "{}", place.display());
        }
    }
}
