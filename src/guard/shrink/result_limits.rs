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

/// What a session remembers of one message or text. It is stored as a number, see [`From`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u32", into = "u32")]
pub(in crate::guard) enum RememberedLimit {
    /// An annotated text is left out.
    LeftOut,
    /// The message keeps at most this amount: characters of a result and of each value of a call, raw tokens of the
    /// attachments of a user message.
    Short { most: u32, marker: TruncationMarker },
}

/// A limit by the key of its message or text: mostly the digest of the message.
pub(in crate::guard) type KeyedLimit = (u128, RememberedLimit);

/// In a stored limit, the bit that says that the marker is `NearlyFull`.
const STORED_NEARLY_FULL: u32 = 1 << 31;

impl RememberedLimit {
    pub(in crate::guard) fn new(most: usize, marker: TruncationMarker) -> Self {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        Self::Short {
            most: most.min(STORED_NEARLY_FULL - 1),
            marker,
        }
    }

    /// The most that stays; 0 for a text that is left out.
    pub(in crate::guard) const fn amount(self) -> usize {
        match self {
            Self::LeftOut => 0,
            Self::Short { most, .. } => most as usize,
        }
    }

    pub(in crate::guard) const fn marker(self) -> TruncationMarker {
        match self {
            Self::LeftOut => TruncationMarker::Plain,
            Self::Short { marker, .. } => marker,
        }
    }
}

/// The stored number: 0 for a text that is left out, else the amount, with the highest bit if the marker is `NearlyFull`.
impl From<RememberedLimit> for u32 {
    fn from(limit: RememberedLimit) -> Self {
        match limit {
            RememberedLimit::LeftOut => 0,
            RememberedLimit::Short { most, marker } => match marker {
                TruncationMarker::Plain => most,
                TruncationMarker::NearlyFull => most | STORED_NEARLY_FULL,
            },
        }
    }
}

impl From<u32> for RememberedLimit {
    fn from(stored: u32) -> Self {
        let marker = if stored & STORED_NEARLY_FULL == 0 {
            TruncationMarker::Plain
        } else {
            TruncationMarker::NearlyFull
        };
        match stored {
            0 => Self::LeftOut,
            _ => Self::Short {
                most: stored & !STORED_NEARLY_FULL,
                marker,
            },
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
