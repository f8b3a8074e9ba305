//! A summary that the provider makes on demand, of a conversation whose model binds its thinking to the messages before it.
//!
//! To the model, the block of such a summary counts as the messages that it replaces. Thinking after the block stays valid
//! if the provider summarised exactly the beginning of what was sent, up to an answer. Therefore the request for the summary
//! is the request that was just sent, cut before an answer that was made under what is sent now. Everything after the cut
//! stays unchanged.
//!
//! If no such cut is known to be safe, then the model summarises the conversation, as it does other conversations.

use bytes::Bytes;

use super::SummaryRejection;
use crate::{
    conversation::{
        Author, Conversation, Format, ItemPlace,
        edit::Edits,
        units::{self, UnitKind},
    },
    guard::{
        Plan,
        estimate::Weights,
        injections::{InjectionContent, Injections},
    },
};

/// Largest block in bytes: a session's state holds it.
const MAX_BYTES: usize = 48 << 10;

/// Finds the end of the part that the provider may be asked to summarise: the first safe place from `least` on, counted
/// without system messages. `plan` is the plan by which the conversation was sent. `is_answered`: the answer to the
/// conversation may be the first message after the summary.
pub fn find_safe_cut(
    conversation: &Conversation,
    plan: &Plan,
    injections: &Injections,
    least: u32,
    is_answered: bool,
) -> Option<u32> {
    if injections.course.is_some() {
        return None;
    }
    let least = least.max(plan.history.first_answer()).max(1);
    let units = units::split_units(conversation);
    let pinned = units::find_pinned_end(&units);
    // Whether a unit may not be left out, or is needed by a unit that stays.
    let holds = |at: usize| {
        let (unit, item) = (&units[at], &conversation.items[units[at].messages.start]);
        let is_kept = at >= pinned && !unit.is_removable() || unit.kind == UnitKind::Other;
        let is_system = unit.kind == UnitKind::System && item.place != ItemPlace::Outside;
        is_kept || is_system || unit.loader.is_some() || !unit.bound_messages().is_empty()
    };
    let end = (0..units.len())
        .find(|&at| holds(at))
        .unwrap_or(units.len());
    let is_tied = |until: usize| {
        let mut bonds = units[..until].iter().filter_map(|unit| unit.bond);
        bonds.any(|bond| bond.last >= until)
    };
    // No prompt or tool round of the proxy may be at the cut, between the summary and the answer. No tools of the proxy may
    // be there or before the cut.
    let is_free = |cut: u32| {
        !injections.records.iter().any(|record| match record.what {
            InjectionContent::Tools { .. } => record.place <= cut,
            InjectionContent::Prompt(_) | InjectionContent::Round(_) => record.place == cut,
            _ => false,
        })
    };
    let follows_answer = |until: usize| {
        let before = units[..until]
            .last()
            .map(|unit| unit.unbound_messages().end - 1);
        before.is_none_or(|at| conversation.items[at].author == Author::Model)
    };
    let begins = |at: usize| match units.get(at) {
        Some(unit) => {
            matches!(unit.kind, UnitKind::Assistant | UnitKind::Step) && !unit.follows_reasoning
        }
        None => is_answered,
    };
    let mut cuts = (0..=end).filter(|&at| begins(at) && !follows_answer(at) && !is_tied(at));
    let mut places = cuts
        .by_ref()
        .map(|at| units::count_messages_before(&units, at));
    places.find(|&cut| cut >= least && is_free(cut))
}

/// Builds the request for a summary of all messages before `cut`, with the edits with which the conversation was sent.
/// `None` if the format has no such request, or if the request would not be the beginning of what was sent.
pub(super) fn build_request(
    conversation: &Conversation,
    edits: &Edits,
    cut: u32,
    model: &str,
) -> Option<Bytes> {
    let mut sent = edits.clone();
    conversation.take_out_annotations(&mut sent);
    let mut asking = sent.clone();
    let items = conversation.items.iter().enumerate();
    let mut counted = items.filter(|(_, item)| !item.author.is_system());
    if let Some((first, _)) = counted.nth(cut as usize)
        && !conversation.truncate_list(first, &mut asking)
    {
        return None;
    }
    if !conversation.ask_for_summary(model, &mut asking) {
        return None;
    }
    let apply = |edits: &Edits| {
        let body = edits.apply(&conversation.body).to_bytes();
        conversation.format.index_body(body).ok()
    };
    let (sent, asking) = (apply(&sent)?, apply(&asking)?);
    let summarised = asking.span_bytes(asking.list).strip_suffix(b"]")?;
    let is_beginning = sent.span_bytes(sent.list).starts_with(summarised);
    is_beginning.then_some(asking.body)
}

/// Reads the summary block of an answer.
///
/// # Errors
/// If the answer holds no summary, or one that is too large to keep.
pub(super) fn read_block(
    format: Format,
    answer: &[u8],
    most: u32,
    weights: &Weights,
) -> Result<Box<str>, SummaryRejection> {
    let block = format.read_summary_block(answer);
    let block = block.ok_or(SummaryRejection::NoBlock)?;
    let text = format.read_summary_text(block);
    let text = text.ok_or(SummaryRejection::Empty)?;
    if block.len() <= MAX_BYTES && weights.count_plain_tokens(&text) <= most {
        Ok(block.into())
    } else {
        Err(SummaryRejection::TooLittleSaved)
    }
}
