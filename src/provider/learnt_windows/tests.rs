mod any_refusal;
mod assumed_window;

use std::time::{Duration, SystemTime};

use super::{
    Bounds, LearntWindows, Lesson, LessonKey, LessonScope, MAX_LESSONS, MAX_OF_ACCOUNT,
    RefusedPrompt,
};
use crate::{
    provider::{Window, WindowSource, overflow::Overflow},
    store::{Account, SessionId},
};

const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);

fn refused(overflow: Overflow, claimed: u32, expected: u32) -> RefusedPrompt {
    RefusedPrompt {
        overflow,
        claimed: Window {
            tokens: claimed,
            input: None,
            taught: None,
            source: WindowSource::Catalogue,
        },
        expected,
        answer: 0,
        reserve: 0,
        answered: 0,
        by_one_host: false,
    }
}

/// The model `m` for a session of an account.
fn key(account: u8, session: u8) -> LessonKey {
    let scope = LessonScope {
        account: Some(Account::from_bytes([account; 16])),
        betas: 0,
        session: Some(SessionId::from_bytes([session; 16])),
    };
    LessonKey::new("p", "m", scope)
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
    key: LessonKey,
    now: SystemTime,
}

impl Model {
    fn new() -> Self {
        Self {
            learnt: LearntWindows::new(DAY),
            key: key(1, 1),
            now: SystemTime::now(),
        }
    }

    /// The same model for another session or account.
    fn ask_for(&mut self, account: u8, session: u8) -> &Self {
        self.key = key(account, session);
        self
    }

    fn refused(&self, refused: RefusedPrompt) -> Lesson {
        self.learnt
            .record_refused_prompt(&self.key, &refused, self.now)
    }

    fn accepted(&self, tokens: u32) {
        self.learnt
            .record_accepted_prompt(&self.key, tokens, self.now);
    }

    fn known(&self) -> Bounds {
        self.learnt.find_bounds(&self.key, 0, self.now)
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
        let other = LessonKey::new(endpoint, name, model.key.scope);
        let found = model.learnt.find_bounds(&other, 0, model.now);
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
    // Misprinted, and larger than claimed.
    for window in [3, 128_000, 200_000] {
        let model = Model::new();
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

/// However often it comes: the host of these sessions has a smaller window, or another setting than the others.
#[test]
fn a_refusal_below_what_was_answered_teaches_its_session_alone() {
    let mut model = Model::new();
    model.accepted(30_000);
    for session in 2..6 {
        for (sent, learnt) in [(20_000, 8_192), (8_000, 8_192)] {
            let overflow = Overflow {
                prompt_tokens: Some(sent),
                ..named(8_192)
            };
            model
                .ask_for(1, session)
                .refused(refused(overflow, 128_000, sent));
            assert_eq!(model.window(), Some(learnt), "{session}");
        }
        assert_eq!(model.ask_for(1, 1).known(), Bounds::default());
    }
    // Without a number.
    let without = refused(Overflow::default(), 128_000, 2_000);
    model.ask_for(1, 7).refused(without);
    assert_eq!(model.input(), Some(1_400));
    assert_eq!(model.ask_for(1, 1).known(), Bounds::default());
    // The session believes it for an hour, and the account learns once nothing longer was answered for an hour.
    model.now += HOUR;
    assert_eq!(model.ask_for(1, 2).known(), Bounds::default());
    model.refused(refused(named(8_192), 128_000, 20_000));
    assert_eq!(model.ask_for(1, 1).window(), Some(8_192));
}

#[test]
fn accounts_betas_and_hosts_are_apart() {
    let mut model = Model::new();
    model.refused(refused(named(8_192), 128_000, 20_000));
    assert_eq!(model.ask_for(1, 2).window(), Some(8_192));
    assert_eq!(model.ask_for(2, 1).known(), Bounds::default());
    model.ask_for(1, 2);
    model.key.scope.betas = 1;
    assert_eq!(model.known(), Bounds::default());
    // One of several hosts says nothing of the others.
    let mut model = Model::new();
    let by_one_host = RefusedPrompt {
        by_one_host: true,
        ..refused(named(32_768), 131_072, 40_000)
    };
    assert_eq!(model.refused(by_one_host), Lesson::Window(32_768));
    assert_eq!(model.window(), Some(32_768));
    assert_eq!(model.ask_for(1, 2).known(), Bounds::default());
}

/// A session that was answered above what another one taught is not cut by it.
#[test]
fn a_longer_session_is_not_cut_by_a_refusal_of_another() {
    let mut model = Model::new();
    model.refused(refused(named(117_000), 1_000_000, 130_000));
    let known = |model: &Model, answered| model.learnt.find_bounds(&model.key, answered, model.now);
    model.ask_for(1, 2);
    assert_eq!(known(&model, 100_000).window, Some(117_000));
    assert_eq!(known(&model, 318_000), Bounds::default());
    // Its own refusal counts, whatever it was answered before.
    let own = RefusedPrompt {
        answered: 318_000,
        ..refused(named(200_000), 1_000_000, 320_000)
    };
    model.refused(own);
    assert_eq!(known(&model, 318_000).input, Some(288_000));
    model.refused(RefusedPrompt {
        expected: 288_000,
        ..own
    });
    assert_eq!(known(&model, 318_000).window, Some(200_000));
    assert_eq!(model.ask_for(1, 3).window(), Some(200_000));
}

#[test]
fn a_longer_answer_ends_the_lesson() {
    let mut model = Model::new();
    for overflow in [named(8_192), Overflow::default()] {
        model
            .ask_for(1, 1)
            .refused(refused(overflow, 128_000, 20_000));
        assert_ne!(model.known(), Bounds::default());
        model.ask_for(1, 2).accepted(20_000);
        assert_eq!(model.ask_for(1, 1).known(), Bounds::default());
        model.now += HOUR;
    }
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
    let (short, key) = (LearntWindows::new(minute), key(1, 1));
    let then = SystemTime::now();
    short.record_truncation(&key, 4_096, then);
    let input_at = |time| short.find_bounds(&key, 0, time).input;
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
    model.learnt.record_truncation(&model.key, 0, model.now);
    assert!(model.input().is_some_and(|tokens| tokens > 0));
}

/// An account with many lessons displaces its own, and then those of the account that has the most.
#[test]
fn lessons_are_bounded_for_each_account_and_in_all() {
    let learnt = LearntWindows::new(DAY);
    let now = SystemTime::now();
    let model = |account: u8, nth: usize| LessonKey {
        model: format!("m{nth}").into(),
        scope: LessonScope {
            session: None,
            ..key(account, 0).scope
        },
        ..key(account, 0)
    };
    let learn = |account, nth| learnt.record_truncation(&model(account, nth), 4_096, now);
    let knows = |account, nth| {
        learnt
            .find_bounds(&model(account, nth), 0, now)
            .input
            .is_some()
    };
    for nth in 0..3 {
        learn(1, nth);
    }
    for nth in 0..MAX_OF_ACCOUNT + 10 {
        learn(2, nth);
    }
    assert!(knows(1, 0) && knows(1, 2));
    assert!(!knows(2, 9) && knows(2, 10) && knows(2, MAX_OF_ACCOUNT + 9));
    for account in 3..10 {
        for nth in 0..MAX_OF_ACCOUNT {
            learn(account, nth);
        }
    }
    assert_eq!(learnt.lessons.lock().len(), MAX_LESSONS);
    assert!(knows(1, 0) && knows(1, 2) && knows(9, MAX_OF_ACCOUNT - 1));
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
    // The error confirms the window, and so what the request was planned for.
    let model = Model::new();
    assert_eq!(model.refused(stays), Lesson::Input(60_536));
    assert_eq!(model.known(), Bounds::default());
}
