//! Properties of any refusals.

use proptest::prelude::*;

use super::*;

/// Mostly numbers near each other, so that limits cross.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..40_000, 1 => any::<u32>()]
}

fn any_refusal() -> impl Strategy<Value = RefusedPrompt> {
    let some = || prop::option::of(number());
    let overflow = (some(), some(), some(), some(), some(), some());
    let source = prop_oneof![Just(WindowSource::Catalogue), Just(WindowSource::Assumed)];
    (overflow, number(), some(), number(), number(), source).prop_map(
        |(
            (window, prompt_limit, prompt_tokens, answer, requested, excess),
            tokens,
            input,
            expected,
            reserve,
            source,
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
                    taught: None,
                    source,
                },
                expected,
                answer: reserve,
                reserve,
                answered: 0,
                by_one_host: false,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_refused_size_is_not_sent_again(
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
            // Less where an earlier refusal taught this session alone.
            prop_assert!(known.window.is_some_and(|known| known <= window));
            let most = refusal.claimed.claimed_tokens().unwrap_or(u32::MAX);
            prop_assert!((1_024..most).contains(&window));
        }
        let overflow = refusal.overflow;
        let sent = refusal.count_prompt_tokens().unwrap_or(refusal.expected);
        // Nothing is learnt where far more was accepted and no number is named.
        let teaches = lesson != Lesson::Input(sent);
        if sent > 256 && teaches && !overflow.is_filled_by_answer() {
            let reserve = refusal.reserve;
            // The limits in force: what the error confirms is not learnt.
            let window = known.window.unwrap_or(u32::MAX).min(refusal.claimed.tokens);
            let window = window - reserve.min(window / 2);
            let inputs = [known.input, refusal.claimed.input].into_iter().flatten();
            let most = window.min(inputs.min().unwrap_or(u32::MAX));
            prop_assert!(most < sent, "{:?} after {:?}", known, refusal);
        }
        // Everything expires.
        prop_assert_eq!(model.learnt.find_bounds(&model.key, 0, model.now + DAY), Bounds::default());
    }

    /// A provider that refuses without a number gets less each time.
    #[test]
    fn refusals_end(window in 300_u32..200_000, estimated in 0.5_f64..2.0) {
        let model = Model::new();
        let mut sent = 1_000_000;
        for _ in 0..40 {
            // The provider's count differs from the estimate.
            if f64::from(sent) * estimated <= f64::from(window) || sent <= 256 {
                return Ok(());
            }
            model.refused(refused(Overflow::default(), 1_000_000, sent));
            sent = model.input().unwrap_or(sent);
        }
        prop_assert!(false, "still {} for {}", sent, window);
    }
}
