//! How refusals, truncations and accepted prompts change the lessons about one model.

use std::time::{Duration, SystemTime};

use super::{
    Lesson, Lessons, RefusedPrompt,
    dated_lessons::{
        ACCEPTED_MAX_AGE, DatedTokens, INFERRED_MAX_AGE, LEAST_INPUT, LEAST_WINDOW, believed_tokens,
    },
};
use crate::provider::{Bounds, Window, window::lesser_bound};

/// For a limit that follows from the answer size of one request: other requests may ask for less.
const ANSWER_MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// The next limit as a share of the refused prompt, and the largest one where larger prompts were
/// accepted before.
const NEXT_PERCENT: u32 = 70;
const NEXT_BELOW_ACCEPTED_PERCENT: u32 = 90;
/// A margin for the difference between the provider's count and the estimate.
const ESTIMATE_PERCENT: u32 = 95;

impl Lessons {
    pub(in crate::provider) fn bounds_at(&self, now: SystemTime) -> Bounds {
        Bounds {
            window: believed_tokens(self.window, now),
            input: lesser_bound(
                believed_tokens(self.named, now),
                believed_tokens(self.inferred, now),
            ),
            named_input: believed_tokens(self.named, now),
        }
    }

    /// The reported tokens of the longest prompt that was answered within the hour.
    pub(in crate::provider) fn longest_accepted(&self, now: SystemTime) -> Option<u32> {
        believed_tokens(self.accepted, now).or(believed_tokens(self.accepted_later, now))
    }

    /// Whether more was answered within the hour than a refusal allows.
    pub(super) fn contradicts(&self, refused: &RefusedPrompt, now: SystemTime) -> bool {
        let named = lesser_bound(refused.overflow.window, refused.overflow.prompt_limit);
        let named = named.filter(|named| *named >= LEAST_WINDOW);
        let most = refused.count_tokens().min(named.unwrap_or(u32::MAX));
        self.longest_accepted(now)
            .is_some_and(|longest| longest > most)
    }

    /// Whether anything is believed, an answered prompt included.
    pub(super) fn knows_any(&self, now: SystemTime) -> bool {
        self.longest_accepted(now).is_some() || self.bounds_at(now) != Bounds::default()
    }

    pub(super) fn record_accepted_prompt(
        &mut self,
        tokens: u32,
        max_age: Duration,
        now: SystemTime,
    ) {
        let accepted = DatedTokens::new(tokens, now, max_age.min(ACCEPTED_MAX_AGE));
        if believed_tokens(self.accepted, now).is_none() {
            self.accepted = self.accepted_later.take();
        }
        let is_most = |known| believed_tokens(known, now).is_none_or(|known| known <= tokens);
        if is_most(self.accepted) {
            (self.accepted, self.accepted_later) = (Some(accepted), None);
        } else if is_most(self.accepted_later) {
            self.accepted_later = Some(accepted);
        }
        // Smaller limits were wrong, or are no longer true.
        self.window = self.window.filter(|window| window.tokens >= tokens);
        self.named = self.named.filter(|limit| limit.tokens >= tokens);
        self.inferred = self.inferred.filter(|_| self.refused > tokens);
        if let Some(limit) = &mut self.inferred {
            limit.tokens = limit.tokens.max(tokens);
        }
    }

    pub(super) fn record_truncation(&mut self, tokens: u32, max_age: Duration, now: SystemTime) {
        let known = believed_tokens(self.inferred, now).unwrap_or(u32::MAX);
        self.refused = tokens.min(known).saturating_add(1);
        self.set_inferred_limit(tokens.min(known), max_age.min(INFERRED_MAX_AGE), now);
    }

    pub(super) fn record_refused_prompt(
        &mut self,
        refused: &RefusedPrompt,
        max_age: Duration,
        now: SystemTime,
    ) -> Lesson {
        let sent = refused.count_tokens();
        // The window has shrunk, or it is that of another host.
        if self.longest_accepted(now).is_some_and(|most| most >= sent) {
            (self.accepted, self.accepted_later) = (None, None);
        }
        let lesson = self.adopt_named_limits(refused, max_age, now);
        if refused.overflow.is_filled_by_answer()
            || self.is_due_to_answer(refused, sent, now)
            || (lesson.is_some() && room_for_prompt(self.bounds_at(now), refused.reserve) < sent)
        {
            return lesson.unwrap_or(Lesson::Input(sent));
        }
        if let Some(room) = confirmed_room(refused, sent) {
            return lesson.unwrap_or(Lesson::Input(room));
        }
        let (next, most_age) = self.choose_next_limit(refused, sent, now);
        let known = believed_tokens(self.inferred, now);
        let (tried, before) = known.map_or((u32::MAX, u32::MAX), |tried| (tried, self.refused));
        self.refused = sent.min(before);
        let next = next.min(tried);
        self.set_inferred_limit(next, max_age.min(most_age), now);
        lesson.unwrap_or(Lesson::Input(next.max(LEAST_INPUT)))
    }

    /// The prompt fits beside the lowered answer cap, but not beside the one that was refused: that does
    /// not limit prompts.
    fn is_due_to_answer(&self, refused: &RefusedPrompt, sent: u32, now: SystemTime) -> bool {
        let window = least_window(self.bounds_at(now).window, &refused.claimed);
        let room = |answer: u32| window.saturating_sub(answer);
        sent <= room(refused.reserve)
            && (sent > room(refused.answer) || refused.may_be_due_to_cap())
    }

    /// Records the believable limits that the error names.
    fn adopt_named_limits(
        &mut self,
        refused: &RefusedPrompt,
        max_age: Duration,
        now: SystemTime,
    ) -> Option<Lesson> {
        let accepted = self.longest_accepted(now).unwrap_or(0);
        let claimed = refused.claimed;
        // A guessed window claims nothing.
        let most = claimed.claimed_tokens().unwrap_or(u32::MAX);
        let most_input = claimed.input.unwrap_or(u32::MAX).min(most);
        let believable = |named: Option<u32>, most: u32| {
            named.filter(|named| (accepted.max(LEAST_WINDOW)..most).contains(named))
        };
        let window = believable(refused.overflow.window, most);
        let limit = believable(refused.overflow.prompt_limit, most_input);
        let dated = |tokens| DatedTokens::new(tokens, now, max_age);
        self.window = window.map(dated).or(self.window);
        self.named = limit.map(dated).or(self.named);
        window.map(Lesson::Window).or(limit.map(Lesson::Input))
    }

    /// The largest prompt to try next, below the refused one, and how long that is believed.
    fn choose_next_limit(
        &self,
        refused: &RefusedPrompt,
        sent: u32,
        now: SystemTime,
    ) -> (u32, Duration) {
        let overflow = refused.overflow;
        // The error counts the answer: the limit is the rest of the named or the claimed window.
        if let Some(answer) = overflow.asked_answer() {
            let named = overflow.window.filter(|&window| window >= LEAST_WINDOW);
            let window = least_window(named, &refused.claimed);
            let room = window.saturating_sub(answer);
            if (LEAST_INPUT..sent).contains(&room) {
                return (room, ANSWER_MAX_AGE);
            }
        }
        let named = overflow.prompt_limit.or(overflow.window);
        let known = refused.claimed.claimed_tokens();
        let claimed = room_for_claimed(refused);
        let guess = match overflow.excess {
            Some(excess) if overflow.prompt_tokens.is_none() => {
                let left = sent.saturating_sub(excess).max(percent_of(sent, 10));
                percent_of(left - refused.reserve.min(left / 4), ESTIMATE_PERCENT)
            }
            // Without any number, the guessed window is the better one where it is less.
            _ if known.is_none() && named.is_none() => percent_of(sent, NEXT_PERCENT).min(claimed),
            _ => percent_of(sent, NEXT_PERCENT),
        };
        let accepted = self.longest_accepted(now).unwrap_or(0);
        let floor = accepted.min(percent_of(sent, NEXT_BELOW_ACCEPTED_PERCENT));
        (guess.max(floor), INFERRED_MAX_AGE)
    }

    fn set_inferred_limit(&mut self, tokens: u32, max_age: Duration, now: SystemTime) {
        self.inferred = Some(DatedTokens::new(tokens.max(LEAST_INPUT), now, max_age));
    }
}

/// The room for prompts, if the error confirms what the request was planned for: its estimate was too low. That is no lower
/// limit, since plans go by the count from then on.
fn confirmed_room(refused: &RefusedPrompt, sent: u32) -> Option<u32> {
    let named = refused.overflow.prompt_limit.or(refused.overflow.window)?;
    let known = refused.claimed.claimed_tokens()?;
    let known = lesser_bound(Some(known), refused.claimed.input)?;
    let room = room_for_claimed(refused);
    let is_confirmed = named >= known && refused.count_prompt_tokens().is_some();
    (is_confirmed && (LEAST_INPUT..sent).contains(&room)).then_some(room)
}

fn room_for_claimed(refused: &RefusedPrompt) -> u32 {
    let claimed = Bounds {
        window: Some(refused.claimed.tokens),
        input: refused.claimed.input,
        named_input: None,
    };
    room_for_prompt(claimed, refused.reserve)
}

/// The named window, the claimed one where it is less, or the guess where nothing else is known.
fn least_window(named: Option<u32>, claimed: &Window) -> u32 {
    let known = lesser_bound(named, claimed.claimed_tokens());
    known.unwrap_or(claimed.tokens)
}

/// The largest prompt within these bounds beside an answer of `reserve` tokens.
fn room_for_prompt(bounds: Bounds, reserve: u32) -> u32 {
    let rest = bounds.window.map(|window| window - reserve.min(window / 2));
    lesser_bound(rest, bounds.input).unwrap_or(u32::MAX)
}

/// `percent` of `tokens`, rounded down.
fn percent_of(tokens: u32, percent: u32) -> u32 {
    let part = u64::from(tokens) * u64::from(percent) / 100;
    u32::try_from(part).unwrap_or(u32::MAX)
}
