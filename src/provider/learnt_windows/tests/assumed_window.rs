//! Refusals of requests that were planned without a known window.

use super::*;
use crate::provider::ASSUMED_WINDOW;

/// A refusal of a request that was planned without a known window.
fn refused_unknown(overflow: Overflow, expected: u32) -> RefusedPrompt {
    RefusedPrompt {
        claimed: Window {
            tokens: ASSUMED_WINDOW,
            input: None,
            taught: None,
            source: WindowSource::Assumed,
        },
        reserve: 4_000,
        ..refused(overflow, 0, expected)
    }
}

#[test]
fn a_named_window_beyond_the_assumed_one_is_believed() {
    let model = Model::new();
    let lesson = model.refused(refused_unknown(named(200_000), 300_000));
    assert_eq!(lesson, Lesson::Window(200_000));
    assert_eq!((model.window(), model.input()), (Some(200_000), None));
    let limit = Overflow {
        prompt_limit: Some(180_000),
        ..Overflow::default()
    };
    let model = Model::new();
    let lesson = model.refused(refused_unknown(limit, 300_000));
    assert_eq!(lesson, Lesson::Input(180_000));
    assert_eq!((model.window(), model.input()), (None, Some(180_000)));
}

#[test]
fn without_a_number_the_assumed_window_is_tried_next() {
    let model = Model::new();
    model.refused(refused_unknown(Overflow::default(), 300_000));
    assert_eq!(model.input(), Some(92_000));
    let lesson = model.refused(refused_unknown(Overflow::default(), 92_000));
    assert_eq!(lesson, Lesson::Input(64_400));
    // What was accepted before says more.
    let model = Model::new();
    model.accepted(190_000);
    model.refused(refused_unknown(Overflow::default(), 200_000));
    assert_eq!(model.input(), Some(180_000));
}

/// The prompt fits beside an answer of the usual size, so the asked answer is what was too long.
#[test]
fn a_cap_beyond_an_assumed_window_does_not_limit_prompts() {
    let model = Model::new();
    let asked = RefusedPrompt {
        answer: 120_000,
        ..refused_unknown(Overflow::default(), 20_000)
    };
    model.refused(asked);
    assert_eq!(model.known(), Bounds::default());
}
