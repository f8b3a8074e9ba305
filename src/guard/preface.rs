//! What stands where the folded messages stood, and the edits that make a fold.
//!
//! The text says plainly where it comes from and that it is no new task: models take secrecy in
//! such a text for an attack, and a bare notice for a request. It holds no number, so that it is
//! the same in every request.

use super::{
    lint::Item,
    place,
    profile::{Profile, Takes},
    record::Course,
    units::{Unit, UnitKind},
};
use crate::wire::{
    chat::{Content, Conversation, Role},
    edit::Edits,
    scan::Span,
    text,
};

/// The note itself.
pub const NOTE: &str = "[Note by the context guard between client and model, not by the user: \
earlier messages of this conversation were left out here, so that it fits into the model's context \
window. What is above and below this note is unchanged. This is no new task; the work goes on with \
the messages below. Look up again what you need and no longer see.]";

/// Where the note stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A message of its own.
    Message(Role),
    /// A paragraph at the end of the first user message.
    Paragraph(usize),
    Nowhere,
}

/// A fold as it is carried out.
#[derive(Clone, Debug, Default)]
pub(super) struct Folding {
    /// Messages that were left out.
    pub(super) messages: usize,
    /// A note or a preface was put in their place.
    pub(super) prefaced: bool,
    pub(super) edits: Edits,
    /// The messages of the edited conversation.
    pub(super) outline: Vec<Item>,
}

/// Leaves out the units from `pinned` to `boundary`, but for system messages, and puts the note
/// in their place; where there is a course, its preface, also where nothing goes.
pub(super) fn fold(
    conversation: &Conversation,
    units: &[Unit],
    pinned: usize,
    boundary: usize,
    profile: &Profile,
    course: Option<&Course>,
) -> Folding {
    let mut folding = Folding::default();
    let gone = |unit: usize| (pinned..boundary).contains(&unit) && !units[unit].stays;
    let any = (pinned..boundary).any(gone);
    let place = if any || course.is_some() {
        place(conversation, units, pinned, gone, profile)
    } else {
        Place::Nowhere
    };
    for (at, unit) in units.iter().enumerate() {
        if at == pinned {
            folding.outline.extend(place.item());
        }
        if gone(at) {
            folding.messages += unit.messages.len();
        } else {
            folding
                .outline
                .extend(unit.messages.clone().map(Item::Theirs));
        }
    }
    if units.len() == pinned {
        folding.outline.extend(place.item());
    }
    remove(conversation, units, gone, &mut folding.edits);
    let note = course.map_or(NOTE, |course| &course.preface);
    let edits = &mut folding.edits;
    folding.prefaced = put(conversation, units, pinned, gone, (place, note), edits);
    folding
}

impl Place {
    /// The message it is.
    const fn item(self) -> Option<Item> {
        match self {
            Self::Message(role) => Some(Item::Ours(role)),
            _ => None,
        }
    }
}

fn place(
    conversation: &Conversation,
    units: &[Unit],
    pinned: usize,
    gone: impl Fn(usize) -> bool,
    profile: &Profile,
) -> Place {
    let strict = profile.adjacent_users == Takes::No;
    let user = pinned
        .checked_sub(1)
        .filter(|&unit| units[unit].kind == UnitKind::User)
        .map(|unit| units[unit].messages.start);
    // System messages stand outside of the turns.
    let mut kept = (pinned..units.len()).filter(|&unit| !gone(unit));
    let tail = kept.find(|&unit| units[unit].kind != UnitKind::System);
    let tail_is_user = tail.is_some_and(|unit| units[unit].kind == UnitKind::User);
    match user {
        Some(_) if strict && tail_is_user => Place::Message(Role::Assistant),
        Some(first) if strict => match conversation.messages[first].content {
            Content::Text(_) | Content::Parts(..) => Place::Paragraph(first),
            _ => Place::Nowhere,
        },
        None if strict && tail_is_user => Place::Nowhere,
        _ => Place::Message(Role::User),
    }
}

/// Removes the messages of the units that go, each run with the commas before it.
fn remove(
    conversation: &Conversation,
    units: &[Unit],
    gone: impl Fn(usize) -> bool,
    edits: &mut Edits,
) {
    let messages = &conversation.messages;
    let mut at = 0;
    while at < units.len() {
        if !gone(at) {
            at += 1;
            continue;
        }
        let end = (at..units.len())
            .find(|&unit| !gone(unit))
            .unwrap_or(units.len());
        let first = units[at].messages.start;
        let last = units[end - 1].messages.end - 1;
        let span = match (first.checked_sub(1), messages.get(last + 1)) {
            (Some(before), _) => Span {
                start: messages[before].span.end,
                end: messages[last].span.end,
            },
            (None, Some(after)) => Span {
                start: messages[first].span.start,
                end: after.span.start,
            },
            // The newest message always stays.
            (None, None) => return,
        };
        edits.remove(span);
        at = end;
    }
}

/// Whether the note could be put there.
fn put(
    conversation: &Conversation,
    units: &[Unit],
    pinned: usize,
    gone: impl Fn(usize) -> bool,
    (place, note): (Place, &str),
    edits: &mut Edits,
) -> bool {
    let note = text::escape(note);
    match place {
        Place::Nowhere => return false,
        Place::Message(role) => {
            let role = if role == Role::User {
                "user"
            } else {
                "assistant"
            };
            let message = format!(r#"{{"role":"{role}","content":"{note}"}}"#);
            match pinned.checked_sub(1) {
                Some(last) => {
                    let after = &conversation.messages[units[last].messages.end - 1];
                    edits.insert(after.span.end, format!(",{message}"));
                }
                None => {
                    let kept = (0..units.len()).find(|&unit| !gone(unit));
                    let before =
                        kept.map(|unit| &conversation.messages[units[unit].messages.start]);
                    let Some(before) = before else {
                        return false;
                    };
                    edits.insert(before.span.start, format!("{message},"));
                }
            }
        }
        Place::Paragraph(at) => place::paragraph(conversation, at, &note, edits),
    }
    true
}
