//! Caps and the share of system text hold in the tokens that the provider counts.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::annotation;
use crate::{
    conversation::{Talk, completion_of, header, proxy_before},
    support::{
        RunningProxy, ScriptedProvider,
        count::TokenCounter,
        generate::figures::{KINDS, write_kind},
    },
};

/// A provider that counts by o200k, times the hundredths of `factor` at request n.
async fn counting_provider(factor: fn(u64) -> u64) -> ScriptedProvider {
    let (counter, asked) = (TokenCounter::o200k(), AtomicU64::new(0));
    ScriptedProvider::start_answering(move |request| {
        let nth = asked.fetch_add(1, Ordering::Relaxed);
        let tokens = counter.request(&request.body) * factor(nth) / 100;
        vec![completion_of("hi", Some(tokens as u32))]
    })
    .await
}

async fn proxy_with_caps(up: &ScriptedProvider) -> RunningProxy {
    let proxy = proxy_before(up, 400_000).set(|config| {
        let caps = [("schema", 4_000), ("static_context", 16_000)];
        config.guard.caps = caps.map(|(name, cap)| (name.to_owned(), cap)).into();
        config.guard.chars_per_token = None;
    });
    proxy.start().await
}

/// A text of one kind with 30,000 tokens or more.
fn long_text(kind: &str) -> String {
    let kind = KINDS.iter().find(|it| it.0 == kind).unwrap();
    (0..40).map(|part| write_kind(*kind, part)).collect()
}

fn talk_with(proxy: &RunningProxy, name: &str, text: &str) -> Talk {
    let mut talk = Talk::new(proxy);
    talk.messages = vec![json!({
        "role": "system", "content": text, "plimsoll": annotation(name, "critical"),
    })];
    talk
}

/// The text of the first message as it went out.
fn sent_text(up: &ScriptedProvider) -> String {
    let sent: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    sent["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn caps_hold_for_texts_full_of_figures_before_any_usage() {
    let up = counting_provider(|_| 100).await;
    let proxy = proxy_with_caps(&up).await;
    let counter = TokenCounter::o200k();
    for kind in [
        "column of integers",
        "sentences with numbers",
        "CSV of figures",
        "JSON of floats",
        "hex dump",
        "base64",
        "table in Markdown",
        "log",
    ] {
        for (name, cap) in [("schema", 4_000), ("static_context", 16_000)] {
            let got = talk_with(&proxy, name, &long_text(kind)).say("go").await;
            assert_eq!(header(&got, "actions"), "capped=1");
            let tokens = counter.text(&sent_text(&up));
            assert!(
                (cap * 80 / 100..=cap * 105 / 100).contains(&tokens),
                "{kind}: {tokens} of {cap}"
            );
        }
    }
}

/// The provider counts a third more than the estimate, and texts of each kind a little differently.
#[tokio::test]
async fn caps_follow_usage_once_and_stand_still_then() {
    let up = counting_provider(|_| 133).await;
    let proxy = proxy_with_caps(&up).await;
    let counter = TokenCounter::o200k();
    let mut talk = talk_with(&proxy, "schema", &long_text("CSV with names"));
    talk.say("go").await;
    let first = sent_text(&up);
    let mut fronts = Vec::new();
    for turn in 0..12 {
        let kind = KINDS[(5 * turn) % KINDS.len()];
        let text: String = write_kind(kind, turn as u64).chars().take(600).collect();
        talk.say(&text).await;
        fronts.push(sent_text(&up));
    }
    let tokens = counter.text(&fronts[0]) * 133 / 100;
    assert!((3_200..=4_200).contains(&tokens), "{tokens}");
    assert!(counter.text(&first) > counter.text(&fronts[0]));
    fronts.dedup();
    assert_eq!(fronts.len(), 1, "the front changed with usage");
}

#[tokio::test]
async fn the_share_of_system_text_holds_in_the_providers_tokens() {
    let up = counting_provider(|_| 140).await;
    let proxy = proxy_before(&up, 24_000).set(|config| {
        config.guard.trim_system = true;
        config.guard.chars_per_token = None;
        config.guard.system_share = 0.5;
        config.guard.reserve_tokens = Some(4_000);
    });
    let proxy = proxy.start().await;
    let mut talk = Talk::new(&proxy);
    talk.messages = vec![json!({"role": "system", "content": long_text("log")})];
    talk.say("go").await;
    talk.say("on").await;
    let tokens = TokenCounter::o200k().text(&sent_text(&up)) * 140 / 100;
    assert!((8_500..=10_500).contains(&tokens), "{tokens} of 10,000");
}
