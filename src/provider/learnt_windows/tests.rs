use std::time::{Duration, SystemTime};

use proptest::prelude::*;

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

/// Of one model, at one time.
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

#[test]
fn a_named_window_is_believed_until_it_expires() {
    let mut model = Model::new();
    let lesson = model.refused(refused(named(8_192), 128_000, 20_000));
    assert_eq!(lesson, Lesson::Window(8_192));
    assert_eq!((model.window(), model.input()), (Some(8_192), None));
    assert_eq!(
        model.learnt.find_bounds("p", "other", model.now),
        Bounds::default()
    );
    assert_eq!(
        model.learnt.find_bounds("other", "m", model.now),
        Bounds::default()
    );
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
fn numbers_that_cannot_be_are_not_believed() {
    // Misprinted, larger than claimed, and smaller than what was answered.
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
    // The window is believed, but by our estimate the prompt was within it all along.
    let model = Model::new();
    assert_eq!(
        model.refused(refused(named(8_192), 128_000, 6_000)),
        Lesson::Window(8_192)
    );
    assert_eq!((model.window(), model.input()), (Some(8_192), Some(4_200)));
    // Where the provider counted, the count decides.
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
    // The limit is the one we knew; the estimate was too low.
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
    // At 10,000 what was once accepted is refused, so it no longer holds the limit up.
    assert_eq!(lessons, [14_000, 10_000, 7_000, 6_300, 4_410]);
    // A late answer to a larger request, planned before, loosens nothing.
    let late = model.refused(refused(Overflow::default(), 128_000, 50_000));
    assert_eq!(late, Lesson::Input(4_410));
}

#[test]
fn what_was_accepted_holds_the_limit_up_once() {
    let model = Model::new();
    model.accepted(30_000);
    let overflow = Overflow {
        prompt_tokens: Some(20_000),
        ..named(8_192)
    };
    assert_eq!(
        model.refused(refused(overflow, 128_000, 20_000)),
        Lesson::Input(18_000)
    );
    // The server was started again with a smaller window: now it is believed.
    let overflow = Overflow {
        prompt_tokens: Some(17_900),
        ..overflow
    };
    assert_eq!(
        model.refused(refused(overflow, 128_000, 18_000)),
        Lesson::Window(8_192)
    );
}

#[test]
fn what_is_answered_corrects_what_was_learnt() {
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
fn what_is_inferred_expires_sooner() {
    let mut model = Model::new();
    model.refused(refused(Overflow::default(), 128_000, 20_000));
    model.now += HOUR;
    assert_eq!(model.input(), None);

    let short = LearntWindows::new(Duration::from_secs(60));
    let then = SystemTime::now();
    short.record_truncation("p", "m", 4_096, then);
    assert_eq!(short.find_bounds("p", "m", then).input, Some(4_096));
    assert_eq!(
        short
            .find_bounds("p", "m", then + Duration::from_secs(60))
            .input,
        None
    );
}

#[test]
fn the_answers_share_is_not_taken_for_the_prompts() {
    // 100,000 of prompt beside 40,000 of answer; nothing is wrong with the window we know.
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
    // The answer fills the window by itself: no prompt is short enough.
    let overflow = Overflow {
        prompt_tokens: Some(10_535),
        requested: Some(141_607),
        ..named(131_072)
    };
    model.refused(refused(overflow, 131_072, 10_000));
    assert_eq!(model.known(), Bounds::default());
}

#[test]
fn an_excess_says_how_much_is_left() {
    let model = Model::new();
    let overflow = Overflow {
        excess: Some(1_119_046),
        ..Overflow::default()
    };
    let lesson = model.refused(refused(overflow, 2_000_000, 1_250_000));
    assert_eq!(lesson, Lesson::Input(124_406));
    // More than was sent, by our estimate: the estimate is off.
    let lesson = Model::new().refused(refused(overflow, 2_000_000, 1_000_000));
    assert_eq!(lesson, Lesson::Input(95_000));
}

#[test]
fn nothing_known_of_the_request_is_no_limit_of_nothing() {
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
    learnt.record_accepted_prompt("a", "only answered", 4_096, now);
    assert_eq!(learnt.lock_models().len(), MAX_MODELS.get());
    assert_eq!(learnt.find_bounds("p", "m0000", now), Bounds::default());
    let last = format!("m{:04}", models - 1);
    assert_eq!(learnt.find_bounds("p", &last, now).input, Some(4_096));
}

const fn tokens(lesson: Lesson) -> u32 {
    match lesson {
        Lesson::Window(tokens) | Lesson::Input(tokens) => tokens,
    }
}

/// Numbers near each other, so that they meet, and any.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..40_000, 1 => any::<u32>()]
}

fn any_refusal() -> impl Strategy<Value = RefusedPrompt> {
    let some = || prop::option::of(number());
    let overflow = (some(), some(), some(), some(), some(), some());
    (overflow, number(), some(), number(), number()).prop_map(
        |(
            (window, prompt_limit, prompt_tokens, answer, requested, excess),
            tokens,
            input,
            expected,
            reserve,
        )| {
            RefusedPrompt {
                overflow: Overflow {
                    window,
                    prompt_limit,
                    prompt_tokens,
                    answer,
                    requested,
                    excess,
                },
                claimed: Window {
                    tokens,
                    input,
                    source: WindowSource::Catalogue,
                },
                expected,
                answer: reserve,
                reserve,
            }
        },
    )
}

/// A window of 65,536 that holds 62,000 tokens beside an answer of 2,000, and not beside the 5,000 asked for.
#[test]
fn a_refusal_that_a_lower_answer_cap_heals_says_nothing_of_prompts() {
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
    // The window is learnt all the same where it is smaller than was claimed.
    let elsewhere = RefusedPrompt {
        claimed: Window {
            tokens: 128_000,
            ..lowered.claimed
        },
        ..lowered
    };
    assert_eq!(model.refused(elsewhere), Lesson::Window(65_536));
    assert_eq!(model.known().input, None);
    // What cannot be lowered leaves less for the prompt.
    let stays = RefusedPrompt {
        reserve: 5_000,
        ..lowered
    };
    let model = Model::new();
    model.refused(stays);
    assert_eq!(model.known().input, Some(60_536));
}

proptest! {
    #[test]
    fn what_was_refused_is_not_sent_again(
        before in prop::collection::vec((any::<bool>(), number(), any_refusal()), 0..6),
        refusal in any_refusal(),
    ) {
        let model = Model::new();
        for (accepts, tokens, refusal) in before {
            if accepts { model.accepted(tokens) } else { model.refused(refusal); }
        }
        let lesson = model.refused(refusal);
        prop_assert!(tokens(lesson) > 0);
        let known = model.known();
        prop_assert!(known.input != Some(0));
        if let Lesson::Window(window) = lesson {
            prop_assert_eq!(known.window, Some(window));
            prop_assert!((1_024..refusal.claimed.tokens).contains(&window));
        }
        let overflow = refusal.overflow;
        let sent = refusal.count_prompt_tokens().unwrap_or(refusal.expected);
        // Where far more was answered and nothing is named, nothing is learnt.
        let teaches = lesson != Lesson::Input(sent);
        if sent > 256 && teaches && !overflow.is_filled_by_answer() {
            let reserve = refusal.reserve;
            let window = known.window.map(|window| window - reserve.min(window / 2));
            let most = window.unwrap_or(u32::MAX).min(known.input.unwrap_or(u32::MAX));
            prop_assert!(most < sent, "{:?} after {:?}", known, refusal);
        }
        // And nothing is known for ever.
        prop_assert_eq!(model.learnt.find_bounds("p", "m", model.now + DAY), Bounds::default());
    }

    /// However often it refuses, a provider that says nothing gets less each time.
    #[test]
    fn refusals_end(window in 300_u32..200_000, estimated in 0.5_f64..2.0) {
        let model = Model::new();
        let mut sent = 1_000_000;
        for _ in 0..40 {
            // A provider counts otherwise than we do.
            if f64::from(sent) * estimated <= f64::from(window) || sent <= 256 {
                return Ok(());
            }
            model.refused(refused(Overflow::default(), 1_000_000, sent));
            sent = model.input().unwrap_or(sent);
        }
        prop_assert!(false, "still {} for {}", sent, window);
    }
}

#[test]
fn a_refusal_far_below_what_was_answered_teaches_nothing() {
    let model = Model::new();
    model.accepted(10_000);
    assert_eq!(
        model.refused(refused(Overflow::default(), 128_000, 2_000)),
        Lesson::Input(2_000)
    );
    assert_eq!(model.known(), Bounds::default());
    // One that says how much it counted does.
    let counted = Overflow {
        prompt_tokens: Some(2_000),
        ..Overflow::default()
    };
    model.refused(refused(counted, 128_000, 2_000));
    assert!(model.known().input.is_some_and(|input| input < 2_000));
}
