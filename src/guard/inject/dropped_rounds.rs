//! What is kept of tool rounds that are no longer sent: the digests of those blocks that the client got, joined with the
//! answer after them. The digests insert nothing. By them, the blocks are removed from the answer that the client echoes.

use crate::{
    conversation::Format,
    guard::inject::{
        echo::digest_repeatable_blocks,
        injections::{InjectedMessage, InjectionContent, InjectionRecord},
    },
};

/// Blocks of one round that are remembered. A model usually makes a few.
const MAX_BLOCKS: usize = 64;
/// How many of the newest records are kept in part although their messages are left out.
const MAX_RETURNING: usize = 64;

/// Keeps the digests of a round that is no longer sent; `None` if the client has none of its blocks.
pub fn drop_round(format: Format, messages: &[InjectedMessage]) -> Option<InjectionContent> {
    let json: Vec<&str> = messages.iter().map(|message| &*message.json).collect();
    drop_messages(format, &json)
}

/// The same for a round's messages as JSON objects.
pub fn drop_messages(format: Format, messages: &[&str]) -> Option<InjectionContent> {
    let indexed = format.index_items(messages)?;
    let mut blocks: Vec<u128> = digest_repeatable_blocks(&indexed).collect();
    blocks.truncate(MAX_BLOCKS);
    let mut items = indexed.items.iter();
    // In chat completions reasoning is a member of the message, not a block.
    let has_any = !blocks.is_empty() || items.any(|it| indexed.measure_reasoning(it).is_some());
    has_any.then_some(InjectionContent::DroppedRound { blocks })
}

/// What is kept of a record if its course ended or recovery adds nothing: the digests of a round, and in Responses the calls
/// next to the client's and the hidden places.
pub fn drop_record(format: Format, record: &InjectionRecord) -> Option<InjectionRecord> {
    let what = match &record.what {
        InjectionContent::Round(messages) => drop_round(format, messages),
        InjectionContent::DroppedRound { .. } => Some(record.what.clone()),
        // Reasoning before such a call is refused where the call does not follow it.
        InjectionContent::Calls { .. } | InjectionContent::HiddenPlaces(_)
            if format.rules().reasoning.has_id() =>
        {
            Some(record.what.clone())
        }
        InjectionContent::Prompt(_)
        | InjectionContent::Tools { .. }
        | InjectionContent::Calls { .. }
        | InjectionContent::HiddenPlaces(_)
        | InjectionContent::Text { .. }
        | InjectionContent::Spoken { .. } => None,
    };
    let place = record.place;
    what.map(|what| InjectionRecord { place, what })
}

/// Whether something of record `at` of `count` is kept although its message is left out. The message may come back if a
/// later request finds other cuts or has no course. In Messages and Responses its reasoning is then refused if it is next to
/// what the client never got, or without the call that followed it. Only the newest records are kept, so that states stay
/// small.
pub const fn may_return(format: Format, at: usize, count: usize) -> bool {
    format.rules().reasoning.needs_neighbours() && at + MAX_RETURNING >= count
}

/// What is kept of the records if none of their rounds is sent: after the end of their course, or without recovery's
/// additions. `boundary`: the first message that is kept, counted without system messages. Records before it are dropped,
/// except those for which [`may_return`] is true.
pub fn end_records(
    format: Format,
    records: &[InjectionRecord],
    boundary: u32,
) -> Vec<InjectionRecord> {
    let mut kept: Vec<InjectionRecord> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        if record.place < boundary && !may_return(format, at, records.len()) {
            continue;
        }
        kept.extend(drop_record_after(format, record, &kept));
    }
    kept
}

/// What [`drop_record`] keeps of a record behind those that are `kept`. The digest of a round's text is kept if something
/// else of the round is.
pub fn drop_record_after(
    format: Format,
    record: &InjectionRecord,
    kept: &[InjectionRecord],
) -> Option<InjectionRecord> {
    let follows_round = kept.last().is_some_and(|last| last.place == record.place);
    match record.what {
        InjectionContent::Spoken { .. } => follows_round.then(|| record.clone()),
        _ => drop_record(format, record),
    }
}
