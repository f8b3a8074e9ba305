//! Summaries together with every other edit, for every profile: all requests are checked against
//! its grammar, those for summaries too.

use plimsoll::guard::profile::{PROFILES, Profile};

use super::{Pair, WINDOW, busy_agent, good_summary, wait_for_summary, words};
use crate::support::ModelSetup;

/// Runs long enough for several summaries, prompts, and a new course.
async fn play_session(profile: &'static Profile, stream: bool) -> u64 {
    let model = ModelSetup::new(WINDOW).profile(profile);
    let pair = Pair::with_model(model, Box::new(good_summary)).await;
    let proxy = pair.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    let proxy = proxy.set(|config| {
        config.recovery.enabled = true;
        config.guard.clear.enabled = true;
        config.guard.clear.at = Some(0.6);
        // Clearing, prompts and summaries alternate.
        config.compaction.threshold = 0.6;
    });
    let proxy = proxy.start().await;
    let mut agent = busy_agent(&proxy).set("stream", stream);
    agent.result = |nth| words(600, nth);
    let mut summaries = 0;
    for _ in 0..70 {
        let generation = agent.step().await;
        let session = wait_for_summary(&agent, &generation).await;
        assert_eq!(session["summary_failures"], 0, "{}", profile.name);
        summaries = session["summaries"].as_u64().unwrap();
    }
    pair.up.assert_no_faults();
    assert_eq!(pair.up.overflows(), 0, "{}", profile.name);
    summaries
}

#[tokio::test]
async fn requests_with_a_summary_are_valid_for_every_profile() {
    let mut made = 0;
    for profile in PROFILES {
        made += play_session(profile, false).await;
        made += play_session(profile, true).await;
    }
    assert!(made > 0);
}
