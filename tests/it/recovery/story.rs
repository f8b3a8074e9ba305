//! A hundred generations with recovery; the upstream requests are golden files.
//!
//! They are `tests/data/recovery/NAME.golden`, rewritten by `UPDATE_GOLDEN=1`.

use std::{fs, path::PathBuf};

use plimsoll::guard::profile::{PROFILES, Profile, ReasoningMember};

use super::{Shape, WINDOW, proxy_before, tale::Tale, words};
use crate::support::{Agent, AgentGeneration, Mixing, ModelSetup, NoticeManner, Worker};

const GENERATIONS: usize = 100;
/// Profiles with a golden file: the most lenient, and the strictest.
const KEPT: [&str; 2] = ["openai", "template"];

struct Played {
    generations: Vec<AgentGeneration>,
    tale: String,
}

async fn play_session(profile: &'static Profile, manner: NoticeManner, stream: bool) -> Played {
    let worker = Worker::new(manner, Mixing::Never);
    let model = ModelSetup::new(WINDOW).profile(profile);
    let up = model.start(move |heard| worker.compose_reply(heard)).await;
    let shape = Shape {
        window: WINDOW,
        profile,
    };
    let proxy = proxy_before(&up, &shape).start().await;
    let mut agent = Agent::new(&proxy).set("stream", stream);
    agent.messages[0]["content"] = words(6_000, 0).into();
    // What these calls hold beside takes some of the room, and no cut shall end the countdown.
    agent.result = match profile.reasoning_member {
        ReasoningMember::OnEvery => |nth| words(80, nth + 1),
        _ => |nth| words(85, nth + 1),
    };
    let (mut tale, mut generations) = (Tale::default(), Vec::new());
    for nth in 1..=GENERATIONS {
        let (before, sent) = (up.count(), agent.messages.clone());
        let generation = agent.step().await;
        let upstream = up.bodies_from(before).await;
        tale.generation(nth, &sent, &upstream, &generation);
        generations.push(generation);
    }
    up.assert_no_faults();
    assert_eq!(up.overflows(), 0);
    Played {
        generations,
        tale: tale.text,
    }
}

/// Compares with `tests/data/FOLDER/NAME.golden`.
pub(crate) fn is_kept_in(folder: &str, name: &str, tale: &str) {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let folder = data.join(folder);
    let place = folder.join(format!("{name}.golden"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&place, tale).unwrap();
    }
    let expected = fs::read_to_string(&place).unwrap_or_default();
    let first = tale.lines().zip(expected.lines()).position(|(a, b)| a != b);
    assert!(
        tale == expected,
        "{} is otherwise from line {:?} on",
        place.display(),
        first.map(|at| at + 1)
    );
}

/// Numbers of the generations with such a prompt, from 0.
fn prompted_at(generations: &[AgentGeneration], word: &str) -> Vec<usize> {
    let listed = generations.iter().enumerate();
    let found = listed.filter(|(_, it)| it.injected() == Some(word));
    found.map(|(at, _)| at).collect()
}

/// Caution at once and again after ten, a countdown of five, and a healthy second course.
#[track_caller]
fn has_its_course(generations: &[AgentGeneration], manner: NoticeManner) {
    let (cautions, criticals) = (
        prompted_at(generations, "caution"),
        prompted_at(generations, "critical"),
    );
    let began = generations
        .iter()
        .position(|it| it.action("course") == Some("2"));
    let began = began.expect("a second course begins");
    let first: Vec<usize> = cautions.iter().copied().filter(|at| *at < began).collect();
    assert!(first.len() >= 2, "{cautions:?}");
    assert!(
        first.windows(2).all(|pair| pair[1] - pair[0] == 10),
        "{cautions:?}"
    );
    let down: Vec<usize> = criticals
        .iter()
        .copied()
        .filter(|at| *at <= began)
        .collect();
    assert_eq!(down.len(), 5, "{criticals:?}");
    assert!(
        down.windows(2).all(|pair| pair[1] - pair[0] == 1),
        "{criticals:?}"
    );
    // The model calls `clear_mind` in the last of the five; otherwise the next request clears.
    let last = down[4];
    assert_eq!(
        began,
        if manner == NoticeManner::Follows {
            last
        } else {
            last + 1
        }
    );
    assert!(generations[..began].iter().all(|it| it.course() == 1));
    assert!(generations[began..].iter().all(|it| it.course() >= 2));
    let after = &generations[began + 1];
    assert_eq!(after.header("health"), Some("healthy"), "{after:?}");
    let kept = after.number("reminders").unwrap_or(0);
    assert_eq!(
        kept > 0,
        manner != NoticeManner::Ignores,
        "{kept} reminders"
    );
    let cut = generations[..began]
        .iter()
        .any(|it| it.action("dropped").is_some());
    let told: Vec<_> = generations[..=began]
        .iter()
        .map(|it| it.header("actions"))
        .collect();
    assert!(!cut, "the guard cut before the course was over: {told:?}");
}

async fn check(manner: NoticeManner, name: &str) {
    for profile in PROFILES {
        for (stream, mode) in [(false, "whole"), (true, "stream")] {
            let played = play_session(profile, manner, stream).await;
            if KEPT.contains(&profile.name) {
                let name = format!("{name}.{}.{mode}", profile.name);
                is_kept_in("recovery", &name, &played.tale);
            }
            // Where a prompt waits for its place, generations are counted differently.
            if profile.user_after_tool != plimsoll::guard::profile::Acceptance::No {
                has_its_course(&played.generations, manner);
            }
            let courses = played.generations.iter().map(AgentGeneration::course).max();
            assert!(courses >= Some(2), "{}: {courses:?}", profile.name);
        }
    }
}

#[tokio::test]
async fn recovery_with_a_model_that_follows_the_prompts() {
    check(NoticeManner::Follows, "follows").await;
}

#[tokio::test]
async fn recovery_with_a_model_that_ignores_the_prompts() {
    check(NoticeManner::Ignores, "ignores").await;
}

#[tokio::test]
async fn recovery_with_a_model_that_half_follows_the_prompts() {
    check(NoticeManner::HalfFollows, "half").await;
}
