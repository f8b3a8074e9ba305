//! A cut while the provider's cache is cold costs nothing, so it is made early.

use plimsoll::guard::profile::{Profile, find_profile};

use crate::support::{Agent, Mixing, ModelSetup, NoticeManner, Worker, model_with_window, words};

const WINDOW: u32 = 16_384;

/// The number of the first step whose request is cut.
async fn first_cut(profile: &'static Profile, steps_before: usize) -> usize {
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
    agent.result = |nth| words(200, nth);
    for step in 0..steps_before {
        let told = agent.step().await;
        if told.action("dropped").or(told.action("cleared")).is_some() {
            return step;
        }
    }
    panic!("no cut within {steps_before} steps");
}

/// A profile whose provider forgets at once.
fn forgetful() -> &'static Profile {
    let openai = find_profile("openai").unwrap();
    Box::leak(Box::new(Profile {
        cache_life_s: Some(0),
        ..*openai
    }))
}

#[tokio::test]
async fn a_cold_cache_is_cut_from_midway_to_the_budget() {
    let warm = first_cut(find_profile("openai").unwrap(), 80).await;
    let cold = first_cut(forgetful(), 80).await;
    assert!(cold < warm, "{cold} and {warm}");
    // Midway between seven tenths of the room and all of it.
    assert!((75..95).contains(&(cold * 100 / warm)), "{cold} and {warm}");
}
