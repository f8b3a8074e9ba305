//! What stays of rounds that are no longer sent: digests of those blocks that the client got, joined with the answer
//! after them. They insert nothing, and take the blocks out of the answer that the client echoes.

use crate::{
    conversation::Format,
    guard::inject::{
        echo::digest_repeatable_blocks,
        injections::{InjectedMessage, InjectionContent, InjectionRecord},
    },
};

/// Blocks of one round that are remembered. A model gives a few.
const MAX_BLOCKS: usize = 64;
/// The newest records, of which something is kept where their messages are left out.
const MAX_RETURNING: usize = 64;

/// What stays of a round; `None` where the client has none of its blocks.
pub fn drop_round(format: Format, messages: &[InjectedMessage]) -> Option<InjectionContent> {
    let json: Vec<&str> = messages.iter().map(|message| &*message.json).collect();
    drop_messages(format, &json)
}

/// The same of the round's messages, as JSON objects.
pub fn drop_messages(format: Format, messages: &[&str]) -> Option<InjectionContent> {
    let indexed = format.index_items(messages)?;
    let mut blocks: Vec<u128> = digest_repeatable_blocks(&indexed).collect();
    blocks.truncate(MAX_BLOCKS);
    let mut items = indexed.items.iter();
    // In chat completions reasoning stands beside the blocks.
    let has_any = !blocks.is_empty() || items.any(|it| indexed.measure_reasoning(it).is_some());
    has_any.then_some(InjectionContent::DroppedRound { blocks })
}

/// What stays of a record where its course ended or nothing is added: digests of a round, and in Responses a call beside
/// the client's.
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

/// Whether something is kept of record `at` of `count`, although its message is left out. The message may come back, if a
/// later request finds other cuts or has no course. In Messages and Responses its reasoning is then refused beside what the
/// client never got, or without the call that followed it. Only the newest records are kept, so that states stay small.
pub const fn may_return(format: Format, at: usize, count: usize) -> bool {
    format.rules().reasoning.needs_neighbours() && at + MAX_RETURNING >= count
}

/// What stays of the records if none of their rounds is sent: after the end of their course, or without recovery's
/// additions. `boundary`: the first message that is kept, counted without system messages. Of records before it only those
/// stay that [`may_return`].
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

/// What [`drop_record`] leaves of a record behind those that are `kept`. The text of a round stays if something else of the
/// round is kept.
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
