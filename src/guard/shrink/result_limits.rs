//! How long a tool result may be, and the limits that a session remembers.

use serde::{Deserialize, Serialize};

use crate::{
    guard::{
        request::{policy::Policy, view::RequestView},
        text::truncate::{self, TruncationLimit, TruncationMarker},
    },
    json::text::{self, TextSizes, TextWalk},
};

/// No result is cut below this; characters.
pub(in crate::guard) const LEAST_CHARS: usize = 200;
/// The limit of a recalled text is at least this many characters: fewer would be hardly more than the text that frames them.
const LEAST_RECALL_CHARS: usize = 1_000;
/// The largest share of the window that one result may take.
pub(in crate::guard) const FIRST_SHARE: f64 = 0.3;
/// The same while a session is not healthy.
pub(in crate::guard) const TIGHT_SHARE: f64 = 0.05;
/// The share of the window up to which a result is sent whole, but not beyond [`MOST_CHARS`]; unless a limit is set.
const WHOLE_SHARE: f64 = 0.125;
const MOST_CHARS: usize = 400_000;

/// The limit of one message: an amount and a marker. The amount is in characters for a result and for each value of a call,
/// in raw tokens for the attachments of a user message, and 0 for an annotated text that is left out. The highest bit is set
/// if the marker is `NearlyFull`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in crate::guard) struct RememberedLimit(u32);

/// A limit by the key of its message or text: mostly the digest of the message.
pub(in crate::guard) type KeyedLimit = (u128, RememberedLimit);

impl RememberedLimit {
    const NEARLY_FULL: u32 = 1 << 31;

    pub(in crate::guard) fn new(amount: usize, marker: TruncationMarker) -> Self {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX) & !Self::NEARLY_FULL;
        match marker {
            TruncationMarker::Plain => Self(amount),
            TruncationMarker::NearlyFull => Self(amount | Self::NEARLY_FULL),
        }
    }

    pub(in crate::guard) const fn amount(self) -> usize {
        (self.0 & !Self::NEARLY_FULL) as usize
    }

    pub(in crate::guard) const fn marker(self) -> TruncationMarker {
        if self.0 & Self::NEARLY_FULL == 0 {
            TruncationMarker::Plain
        } else {
            TruncationMarker::NearlyFull
        }
    }
}

/// When a result is cut, and what stays of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::guard) struct TruncationRule {
    /// The longest result; characters.
    pub(in crate::guard) chars: usize,
    /// The largest share of the window.
    pub(in crate::guard) share: f64,
    /// Characters kept at the beginning and the end of a cut result; `None` for half of the limit each.
    pub(in crate::guard) ends: Option<[usize; 2]>,
    pub(in crate::guard) marker: TruncationMarker,
}

impl TruncationRule {
    pub(in crate::guard) fn limit_for_chars(&self, chars: usize) -> TruncationLimit {
        match self.ends {
            Some([head, tail]) => TruncationLimit { chars, head, tail },
            None => TruncationLimit::with_halves(chars),
        }
    }
}

/// The most characters of one answer of `recall` for this kind of text. An answer gets the share of a new result in a nearly
/// full window, since most recalls are made in such a window.
pub fn max_recall_chars(sizes: &TextSizes, policy: &Policy<'_>) -> usize {
    let rule = TruncationRule {
        chars: policy.settings.recall_max_chars,
        share: TIGHT_SHARE,
        ends: None,
        marker: TruncationMarker::Plain,
    };
    max_chars_for_rule(sizes, &rule, policy)
        .max(LEAST_RECALL_CHARS)
        .min(rule.chars)
}

/// The longest result of this kind of text that a rule does not cut, in characters.
pub(in crate::guard) fn max_chars_for_rule(
    sizes: &TextSizes,
    rule: &TruncationRule,
    policy: &Policy<'_>,
) -> usize {
    let chars = chars_within(sizes, policy.window_share(rule.share), policy);
    rule.chars.min(chars)
}

/// Characters of this kind of text in so many raw tokens.
fn chars_within(sizes: &TextSizes, share: f64, policy: &Policy<'_>) -> usize {
    let tokens = policy.token_weights().text_weight(sizes);
    let chars = (sizes.total_chars() as f64 * share / tokens) as usize;
    if tokens <= share {
        // Rounding must not cut a result within its share.
        chars.max(sizes.total_chars())
    } else {
        chars.max(LEAST_CHARS)
    }
}

/// The longest result of this kind of text that settings and window allow to be sent whole, in characters. A guessed window
/// counts here too, since it can only raise this limit.
pub(in crate::guard) fn max_whole_chars(sizes: &TextSizes, policy: &Policy<'_>) -> usize {
    policy.settings.max_tool_result_chars.unwrap_or_else(|| {
        let share = WHOLE_SHARE * f64::from(policy.window);
        let room = chars_within(sizes, share, policy).min(MOST_CHARS);
        policy.settings.default_result_chars().max(room)
    })
}

/// How long a result may be, in characters, so that its message stays within the bytes that the provider accepts, with
/// `block` injected characters at its end. `None` if the message is within these bytes as it came.
pub(in crate::guard) fn chars_within_bytes(
    view: RequestView<'_>,
    at: usize,
    block: usize,
) -> Option<usize> {
    let most = view.policy.profile.tool_message_bytes?;
    let (conversation, message) = (view.conversation, view.item(at));
    // No character takes more than six bytes.
    let block = 6 * block;
    if message.span.len() + block <= most {
        return None;
    }
    let (mut spelled, mut shortest, mut heaviest) = (0, 0, 1);
    for piece in conversation.texts_of(message) {
        spelled += piece.span.len();
        for character in TextWalk::new(conversation.raw_bytes(piece)) {
            let bytes = text::spelt_bytes(character.code);
            shortest += bytes;
            heaviest = heaviest.max(bytes);
        }
    }
    let frame = message.span.len() - spelled + block;
    if frame + shortest <= most {
        return None;
    }
    let room = most.saturating_sub(frame + truncate::MARKER_BYTES);
    Some((room / heaviest).max(LEAST_CHARS))
}
