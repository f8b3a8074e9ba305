//! The note that replaces a whole conversation when its client compacts it: a summary, or a ledger of the whole
//! conversation, for a client that keeps nothing else.

use crate::{
    conversation::{BlockKind, Content, Conversation},
    guard::{
        fold::{
            ledger,
            note::{LEDGER_HEAD, LEDGER_HEAD_SINCE, NOTE, SUMMARY_HEAD},
        },
        request::{budget, policy::Policy},
        text::truncate::shorten_to_tokens,
    },
};

/// How every preface and every note of the guard begins.
const NOTE_START: &str = "[Note by the context guard between client and model";
/// One part in this many of the budget is for the ledger, and as much for the note of the previous compaction. So a small
/// window has room for work next to both, however often a client compacts.
const NOTE_SHARE: u32 = 8;
/// Most raw tokens of an earlier note that a ledger is added to: about those of the longest summary.
const MAX_EARLIER_TOKENS: u32 = 6_000;

/// Whether a system text is the note of an earlier compaction. Unlike the other additions of the guard, it is recognised by
/// its text: no state is kept for the entry that contains it. Only system texts are checked, which no tool writes; a client
/// that forges such a note gains no more than with any other system text.
pub fn is_compaction_note(text: &str) -> bool {
    text.starts_with(NOTE_START)
}

/// Writes the note with the summary of the conversation. Without a summary, writes it with the note of the previous
/// compaction, if there is one, and a ledger of what came since. Never empty.
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
    let most_earlier = most.min(MAX_EARLIER_TOKENS);
    let earlier = find_earlier_note(conversation);
    let first = earlier.as_ref().map_or(0, |(at, _)| at + 1);
    let (before, head) = match earlier {
        Some((_, note)) => {
            let shorter = shorten_to_tokens(&note, most_earlier, &weights).into_owned();
            // A later compaction would not recognise a note without its beginning.
            let is_known = is_compaction_note(&shorter);
            let shorter = if is_known { shorter } else { NOTE.to_owned() };
            (shorter, LEDGER_HEAD_SINCE)
        }
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
