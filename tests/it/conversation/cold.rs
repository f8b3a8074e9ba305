//! A cut while the provider's cache is cold costs nothing, so it is made early.

use plimsoll::guard::profile::{Profile, find_profile};

use serde_json::json;

use crate::support::{Agent, Mixing, ModelSetup, NoticeManner, Worker, model_with_window, words};

const WINDOW: u32 = 16_384;

/// The number of the first step whose request is cut.
async fn first_cut(profile: &'static Profile, ttl: Option<&str>) -> usize {
    let worker = Worker::new(NoticeManner::Ignores, Mixing::Never);
    let up = ModelSetup::new(WINDOW).start(move |heard| worker.compose_reply(heard));
    let up = up.await;
    let proxy = up.provider.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    let proxy = proxy.set(|config| {
        config.models.insert("m".into(), model_with_window(WINDOW));
        config.recovery.enabled = false;
    });
    let proxy = proxy.start().await;
    let mut agent = Agent::new(&proxy);
    if let Some(ttl) = ttl {
        agent.fields["prompt_cache_options"] = json!({"mode": "implicit", "ttl": ttl});
    }
    agent.result = |nth| words(200, nth);
    for step in 0..80 {
        let told = agent.step().await;
        if told.action("dropped").or(told.action("cleared")).is_some() {
            return step;
        }
    }
    panic!("no cut within 80 steps");
}

/// A profile whose provider forgets after these seconds, and after others where it is asked to.
fn forgetful(cache_life_s: u32, asked_cache_lives: &'static [(&str, u32)]) -> &'static Profile {
    let openai = find_profile("openai").unwrap();
    Box::leak(Box::new(Profile {
        cache_life_s: Some(cache_life_s),
        asked_cache_lives,
        ..*openai
    }))
}

#[tokio::test]
async fn a_cold_cache_is_cut_from_midway_to_the_budget() {
    let warm = first_cut(find_profile("openai").unwrap(), None).await;
    let cold = first_cut(forgetful(0, &[]), None).await;
    assert!(cold < warm, "{cold} and {warm}");
    // Midway between seven tenths of the room and all of it.
    assert!((75..95).contains(&(cold * 100 / warm)), "{cold} and {warm}");
}

/// By the request's own `ttl`, whatever the provider does without one.
#[tokio::test]
async fn what_is_cold_goes_by_the_ttl_that_the_request_asks_for() {
    const AT_ONCE: &[(&str, u32)] = &[("30m", 0), ("12h", 3_600)];
    let warm = first_cut(forgetful(3_600, AT_ONCE), None).await;
    for (life, ttl, is_warm) in [
        (3_600, "30m", false),
        (3_600, "12h", true),
        (0, "12h", true),
        (0, "30m", false),
        // Nobody knows how long that is.
        (3_600, "7d", true),
        (0, "7d", false),
    ] {
        let first = first_cut(forgetful(life, AT_ONCE), Some(ttl)).await;
        assert_eq!(
            first == warm,
            is_warm,
            "{life} s, {ttl}: {first} and {warm}"
        );
    }
    let known = |name| find_profile(name).unwrap().for_model("gpt-6.2-sol");
    for name in ["openai", "azure"] {
        let lives = [("30m", 30 * 60), ("12h", 12 * 3_600)];
        assert_eq!(known(name).asked_cache_lives, lives, "{name}");
    }
    assert_eq!(known("template").asked_cache_lives, []);
}
