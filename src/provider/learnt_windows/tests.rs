mod any_refusal;
mod assumed_window;

use std::time::{Duration, SystemTime};

use super::{Bounds, LearntWindows, Lesson, MAX_MODELS, RefusedPrompt};
use crate::provider::{Window, WindowSource, overflow::Overflow};

const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);

fn refused(overflow: Overflow, claimed: u32, expected: u32) -> RefusedPrompt {
    RefusedPrompt {
        overflow,
        claimed: Window {
            tokens: claimed,
            input: None,
            source: WindowSource::Catalogue,
        },
        expected,
        answer: 0,
        reserve: 0,
    }
}

fn named(window: u32) -> Overflow {
    Overflow {
        window: Some(window),
        ..Overflow::default()
    }
}

/// The lessons about one model, at one time.
struct Model {
    learnt: LearntWindows,
    now: SystemTime,
}

impl Model {
    fn new() -> Self {
        Self {
            learnt: LearntWindows::new(DAY),
            now: SystemTime::now(),
        }
    }

    fn refused(&self, refused: RefusedPrompt) -> Lesson {
        self.learnt
            .record_refused_prompt("p", "m", &refused, self.now)
    }

    fn accepted(&self, tokens: u32) {
        self.learnt
            .record_accepted_prompt("p", "m", tokens, self.now);
    }

    fn known(&self) -> Bounds {
        self.learnt.find_bounds("p", "m", self.now)
    }

    fn window(&self) -> Option<u32> {
        self.known().window
    }

    fn input(&self) -> Option<u32> {
        self.known().input
    }
}

const fn tokens(lesson: Lesson) -> u32 {
    match lesson {
        Lesson::Window(tokens) | Lesson::Input(tokens) => tokens,
    }
}

#[test]
fn a_named_window_is_believed_until_it_expires() {
    let mut model = Model::new();
    let lesson = model.refused(refused(named(8_192), 128_000, 20_000));
    assert_eq!(lesson, Lesson::Window(8_192));
    assert_eq!((model.window(), model.input()), (Some(8_192), None));
    for (endpoint, name) in [("p", "other"), ("other", "m")] {
        let found = model.learnt.find_bounds(endpoint, name, model.now);
        assert_eq!(found, Bounds::default());
    }
    model.now += DAY - Duration::from_secs(1);
    assert_eq!(model.window(), Some(8_192));
    model.now += Duration::from_secs(1);
    assert_eq!(model.known(), Bounds::default());
}

#[test]
fn a_named_limit_of_the_prompt_is_no_window() {
    let model = Model::new();
    let overflow = Overflow {
        prompt_limit: Some(272_000),
        prompt_tokens: Some(289_650),
        ..Overflow::default()
    };
    let lesson = model.refused(refused(overflow, 400_000, 280_000));
    assert_eq!(lesson, Lesson::Input(272_000));
    assert_eq!((model.window(), model.input()), (None, Some(272_000)));
}

#[test]
fn impossible_numbers_are_not_believed() {
    // Misprinted, larger than claimed, and smaller than an accepted prompt.
    for (window, accepted) in [
        (3, None),
        (128_000, None),
        (200_000, None),
        (8_192, Some(9_000)),
    ] {
        let model = Model::new();
        if let Some(tokens) = accepted {
            model.accepted(tokens);
        }
        let lesson = model.refused(refused(named(window), 128_000, 20_000));
        assert_eq!(lesson, Lesson::Input(14_000), "{window}");
        assert_eq!((model.window(), model.input()), (None, Some(14_000)));
    }
}

#[test]
fn a_window_that_the_estimate_did_not_pass_is_inferred_below_it() {
    // The window is believed, but by the estimate the prompt fitted it.
    let model = Model::new();
    let lesson = model.refused(refused(named(8_192), 128_000, 6_000));
    assert_eq!(lesson, Lesson::Window(8_192));
    assert_eq!((model.window(), model.input()), (Some(8_192), Some(4_200)));
    // The provider's count goes before the estimate.
    let model = Model::new();
    let overflow = Overflow {
        prompt_tokens: Some(9_000),
        ..named(8_192)
    };
    model.refused(refused(overflow, 128_000, 6_000));
    assert_eq!((model.window(), model.input()), (Some(8_192), None));
}

#[test]
fn a_claim_that_the_error_confirms_is_not_inferred_away() {
    // The limit is the claimed one; the estimate was too low.
    let model = Model::new();
    let overflow = Overflow {
        prompt_limit: Some(1_048_576),
        prompt_tokens: Some(1_200_000),
        ..Overflow::default()
    };
    let refusal = refused(overflow, 1_048_576, 900_000);
    assert_eq!(refusal.count_prompt_tokens(), Some(1_200_000));
    assert_eq!(model.refused(refusal), Lesson::Input(1_048_576));
    assert_eq!(model.window(), None);
}

#[test]
fn every_refusal_tightens() {
    let model = Model::new();
    model.accepted(10_000);
    let lessons = [20_000, 14_000, 10_000, 9_000, 6_300].map(|sent| {
        let lesson = model.refused(refused(Overflow::default(), 128_000, sent));
        assert_eq!(model.input(), Some(tokens(lesson)));
        tokens(lesson)
    });
    // At 10,000 the accepted size is refused, so it no longer holds the limit up.
    assert_eq!(lessons, [14_000, 10_000, 7_000, 6_300, 4_410]);
    // A late refusal of a larger request loosens nothing.
    let late = model.refused(refused(Overflow::default(), 128_000, 50_000));
    assert_eq!(late, Lesson::Input(4_410));
}

#[test]
fn an_accepted_prompt_holds_the_limit_up_once() {
    let model = Model::new();
    model.accepted(30_000);
    let overflow = Overflow {
        prompt_tokens: Some(20_000),
        ..named(8_192)
    };
    let lesson = model.refused(refused(overflow, 128_000, 20_000));
    assert_eq!(lesson, Lesson::Input(18_000));
    // The server was restarted with a smaller window: now it is believed.
    let overflow = Overflow {
        prompt_tokens: Some(17_900),
        ..overflow
    };
    let lesson = model.refused(refused(overflow, 128_000, 18_000));
    assert_eq!(lesson, Lesson::Window(8_192));
}

#[test]
fn an_accepted_prompt_corrects_a_learnt_limit() {
    let model = Model::new();
    model.refused(refused(Overflow::default(), 128_000, 20_000));
    model.accepted(13_000);
    assert_eq!(model.input(), Some(14_000));
    model.accepted(15_000);
    assert_eq!(model.input(), Some(15_000));

    let model = Model::new();
    model.refused(refused(named(8_192), 128_000, 20_000));
    model.accepted(8_192);
    assert_eq!(model.window(), Some(8_192));
    model.accepted(8_193);
    assert_eq!(model.window(), None);
}

#[test]
fn an_inferred_limit_expires_sooner() {
    let mut model = Model::new();
    model.refused(refused(Overflow::default(), 128_000, 20_000));
    model.now += HOUR;
    assert_eq!(model.input(), None);

    let minute = Duration::from_secs(60);
    let short = LearntWindows::new(minute);
    let then = SystemTime::now();
    short.record_truncation("p", "m", 4_096, then);
    let input_at = |time| short.find_bounds("p", "m", time).input;
    assert_eq!(input_at(then), Some(4_096));
    assert_eq!(input_at(then + minute), None);
}

#[test]
fn a_large_answer_limits_prompts_for_five_minutes_only() {
    // A prompt of 100,000 beside an answer of 40,000; the known window is right.
    let overflow = Overflow {
        prompt_tokens: Some(100_000),
        requested: Some(140_000),
        ..named(131_072)
    };
    let mut model = Model::new();
    let lesson = model.refused(refused(overflow, 131_072, 100_000));
    assert_eq!(lesson, Lesson::Input(91_072));
    model.now += Duration::from_secs(300);
    assert_eq!(model.known(), Bounds::default());
    // The answer fills the window by itself: no prompt would fit.
    let overflow = Overflow {
        prompt_tokens: Some(10_535),
        requested: Some(141_607),
        ..named(131_072)
    };
    model.refused(refused(overflow, 131_072, 10_000));
    assert_eq!(model.known(), Bounds::default());
}

#[test]
fn an_excess_gives_the_next_limit() {
    let model = Model::new();
    let overflow = Overflow {
        excess: Some(1_119_046),
        ..Overflow::default()
    };
    let lesson = model.refused(refused(overflow, 2_000_000, 1_250_000));
    assert_eq!(lesson, Lesson::Input(124_406));
    // More than was sent by the estimate: the estimate is off.
    let lesson = Model::new().refused(refused(overflow, 2_000_000, 1_000_000));
    assert_eq!(lesson, Lesson::Input(95_000));
}

#[test]
fn without_any_count_the_limit_is_above_zero() {
    let model = Model::new();
    let lesson = model.refused(refused(Overflow::default(), 10_000, 0));
    assert_eq!(lesson, Lesson::Input(7_000));
    let lesson = Model::new().refused(refused(Overflow::default(), 0, 0));
    assert!(tokens(lesson) > 0);
    let model = Model::new();
    model.learnt.record_truncation("p", "m", 0, model.now);
    assert!(model.input().is_some_and(|tokens| tokens > 0));
}

#[test]
fn models_are_bounded() {
    let learnt = LearntWindows::new(DAY);
    let now = SystemTime::now();
    let models = MAX_MODELS.get() + 10;
    for model in 0..models {
        learnt.record_truncation("p", &format!("m{model:04}"), 4_096, now);
    }
    learnt.record_accepted_prompt("a", "only accepted", 4_096, now);
    assert_eq!(learnt.models.lock().len(), MAX_MODELS.get());
    assert_eq!(learnt.find_bounds("p", "m0000", now), Bounds::default());
    let last = format!("m{:04}", models - 1);
    assert_eq!(learnt.find_bounds("p", &last, now).input, Some(4_096));
}

/// A window of 65,536 holds 62,000 tokens beside an answer of 2,000, but not beside the requested 5,000.
#[test]
fn a_refusal_that_a_lower_answer_cap_avoids_does_not_limit_prompts() {
    let overflow = Overflow {
        prompt_tokens: Some(62_000),
        answer: Some(5_000),
        ..named(65_536)
    };
    let lowered = RefusedPrompt {
        answer: 5_000,
        reserve: 2_000,
        ..refused(overflow, 65_536, 58_000)
    };
    let model = Model::new();
    model.refused(lowered);
    assert_eq!(model.known(), Bounds::default());
    // A window smaller than the claimed one is still learnt.
    let elsewhere = RefusedPrompt {
        claimed: Window {
            tokens: 128_000,
            ..lowered.claimed
        },
        ..lowered
    };
    assert_eq!(model.refused(elsewhere), Lesson::Window(65_536));
    assert_eq!(model.known().input, None);
    // An answer that cannot be lowered leaves less for the prompt.
    let stays = RefusedPrompt {
        reserve: 5_000,
        ..lowered
    };
    let model = Model::new();
    model.refused(stays);
    assert_eq!(model.known().input, Some(60_536));
}

#[test]
fn a_refusal_far_below_an_accepted_prompt_teaches_nothing() {
    let model = Model::new();
    model.accepted(10_000);
    let lesson = model.refused(refused(Overflow::default(), 128_000, 2_000));
    assert_eq!(lesson, Lesson::Input(2_000));
    assert_eq!(model.known(), Bounds::default());
    // One with a count does.
    let counted = Overflow {
        prompt_tokens: Some(2_000),
        ..Overflow::default()
    };
    model.refused(refused(counted, 128_000, 2_000));
    assert!(model.known().input.is_some_and(|input| input < 2_000));
}
