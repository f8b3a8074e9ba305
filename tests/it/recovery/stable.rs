//! The sent prefix changes with a new cut or a new course only.

use plimsoll::guard::profile::PROFILES;
use proptest::prelude::*;
use serde_json::Value;

use super::{Shape, WINDOW, proxy_before, words};
use crate::support::{Agent, AgentGeneration, Mixing, ModelSetup, NoticeManner, Worker};

fn messages(body: &Value) -> &[Value] {
    body["messages"].as_array().unwrap()
}

/// What is reported of cuts and courses. A later answer repeats it, so a change of it is a new cut or course.
fn list_cuts(generation: &AgentGeneration) -> [Option<String>; 5] {
    let names = ["course", "dropped", "cleared", "truncated", "refitted"];
    names.map(|name| generation.action(name).map(str::to_owned))
}

#[derive(Clone, Copy, Debug)]
struct Case {
    profile: usize,
    manner: NoticeManner,
    mixing: Mixing,
    turn: u32,
    stream: bool,
    tokens: usize,
}

fn any_case() -> impl Strategy<Value = Case> {
    let manners = [
        NoticeManner::Follows,
        NoticeManner::HalfFollows,
        NoticeManner::Ignores,
    ];
    let mixings = [Mixing::Never, Mixing::Before, Mixing::After];
    (
        0..PROFILES.len(),
        select(&manners),
        select(&mixings),
        select(&[1, 3, 8, 60]),
        any::<bool>(),
        select(&[60, 90, 250, 700, 1_500]),
    )
        .prop_map(|(profile, manner, mixing, turn, stream, tokens)| Case {
            profile,
            manner,
            mixing,
            turn,
            stream,
            tokens,
        })
}

fn select<T: Copy + std::fmt::Debug + 'static>(of: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(of.to_vec())
}

async fn check_prefix(case: Case) {
    let profile = &PROFILES[case.profile];
    let mut worker = Worker::new(case.manner, case.mixing);
    worker.turn = case.turn;
    let model = ModelSetup::new(WINDOW).profile(profile);
    let up = model.start(move |heard| worker.compose_reply(heard)).await;
    let shape = Shape {
        window: WINDOW,
        profile,
    };
    let proxy = proxy_before(&up, &shape).start().await;
    let mut agent = Agent::new(&proxy).set("stream", case.stream);
    agent.messages[0]["content"] = words(2_000, 0).into();
    agent.result = match case.tokens {
        60 => |nth| words(60, nth),
        90 => |nth| words(90, nth),
        250 => |nth| words(250, nth),
        700 => |nth| words(700, nth),
        _ => |nth| words(1_500, nth),
    };
    agent.user = |nth| words(200, nth);
    // The prefix of the newest request, the cuts that were reported with it, and whether these were new.
    let (mut known, mut cuts): (Option<Value>, _) = (None, <[Option<String>; 5]>::default());
    let (mut told, mut changes, mut prefixes) = (false, 0, 0);
    for nth in 0..60 {
        let before = up.count();
        let generation = agent.step().await;
        let now = list_cuts(&generation);
        let changed = now != cuts;
        cuts = now;
        for body in up.bodies_from(before).await {
            if let Some(known) = &known {
                let (before, now) = (messages(known), messages(&body));
                let same = now.len() >= before.len() && now[..before.len()] == *before;
                prefixes += 1;
                changes += usize::from(!same);
                assert!(
                    same || changed || told,
                    "{case:?}: generation {nth} changed the prefix: {:?}",
                    generation.header("actions")
                );
            }
            known = Some(body);
        }
        told = changed;
    }
    // With steps of a tenth of the window there is a cut every few steps.
    let often = if case.tokens < 500 { 10 } else { 2 };
    assert!(
        changes * often <= prefixes,
        "{case:?}: {changes} of {prefixes}"
    );
    up.assert_no_faults();
    assert_eq!(up.overflows(), 0, "{case:?}");
}

proptest! {
    // Each case is a session over sockets, so shrinking is limited.
    #![proptest_config(ProptestConfig {
        cases: 16,
        max_shrink_iters: 16,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_prefix_changes_only_with_a_new_cut_or_course(case in any_case()) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(check_prefix(case));
    }
}
