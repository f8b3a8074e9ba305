//! The note that stands for a whole conversation which its client compacts: a summary, or a ledger of all of it, for a
//! client that keeps nothing beside it.

use crate::{
    conversation::{BlockKind, Content, Conversation},
    guard::{
        fold::{
            ledger,
            preface::{LEDGER_HEAD, LEDGER_HEAD_SINCE, NOTE, SUMMARY_HEAD},
        },
        request::{budget, policy::Policy},
    },
};

/// How every preface and every note of the guard begins.
const NOTE_START: &str = "[Note by the context guard between client and model";
/// One part in so many of the budget is for the ledger, and as much for the note of the compaction before. So a small
/// window has room for work beside them, however often a client compacts.
const NOTE_SHARE: u32 = 8;
/// Most characters of an earlier note that a ledger is added to: those of the longest summary.
const MAX_EARLIER_CHARS: usize = 24_000;

/// Whether a system text is the note of an earlier compaction. Told by its text, unlike the other additions of the guard:
/// no state is kept for the entry that it comes from. Only system texts are looked at, which no tool writes; a client
/// that forges one gets no more than by another system text.
pub fn is_compaction_note(text: &str) -> bool {
    text.starts_with(NOTE_START)
}

/// The note with a summary of the conversation. Without one, with the note of the compaction before, and a ledger of
/// what came since. Never empty.
pub fn write_compaction_note(
    conversation: &Conversation,
    policy: &Policy<'_>,
    summary: Option<&str>,
) -> String {
    if let Some(summary) = summary {
        return format!("{SUMMARY_HEAD}\n\n{summary}");
    }
    let most = budget::compute_request_budget(conversation, policy).tokens / NOTE_SHARE;
    let weights = policy.token_weights();
    let fits = |text: &str| weights.count_plain_tokens(text) <= most;
    let earlier = find_earlier_note(conversation);
    let first = earlier.as_ref().map_or(0, |(at, _)| at + 1);
    let (before, head) = match earlier {
        Some((_, note)) => (shorten_note(note, fits), LEDGER_HEAD_SINCE),
        None => (NOTE.to_owned(), LEDGER_HEAD),
    };
    let items = first..conversation.items.len();
    let items = items.filter(|&at| !conversation.items[at].author.is_system());
    let items: Vec<usize> = items.collect();
    match ledger::gather_fitting(conversation, &items, ledger::MAX_FACTS_CHARS, fits) {
        facts if facts.is_empty() => before,
        facts => format!("{before}\n\n{head}\n{facts}"),
    }
}

/// The newest note of an earlier compaction, and its item.
fn find_earlier_note(conversation: &Conversation) -> Option<(usize, String)> {
    let items = conversation.items.iter().enumerate().rev();
    let notes = items.filter(|(_, item)| item.author.is_system());
    let mut notes = notes.filter_map(|(at, item)| {
        let text = match (&item.content, conversation.blocks_of(item).first()) {
            (Content::Text(text), _) => *text,
            (_, Some(block)) => match block.kind {
                BlockKind::Text(text) => text,
                _ => return None,
            },
            _ => return None,
        };
        let text = conversation.decode_text(text);
        is_compaction_note(&text).then(|| (at, text.into_owned()))
    });
    notes.next()
}

/// The note without its middle, where it is too long.
fn shorten_note(note: String, fits: impl Fn(&str) -> bool) -> String {
    let count = note.chars().count();
    if count <= MAX_EARLIER_CHARS && fits(&note) {
        return note;
    }
    let lengths = std::iter::successors(Some(count.min(MAX_EARLIER_CHARS)), |most| {
        Some(most / 8 * 7)
    });
    let lengths = lengths.take_while(|&most| most > 0);
    let mut shorter = lengths.map(|most| cut_middle(&note, most));
    shorter
        .find(|note| fits(note))
        .unwrap_or_else(|| NOTE.to_owned())
}

/// As many characters of the beginning and the end of a text.
fn cut_middle(text: &str, most: usize) -> String {
    let count = text.chars().count();
    let head: String = text.chars().take(most / 2).collect();
    let tail: String = text.chars().skip(count - most / 2).collect();
    format!("{head}\n[…]\n{tail}")
}
