//! Estimates the tokens of a request before it is sent.
//!
//! An estimate drives cutting only. Health comes from the usage that the provider reports. *Raw* tokens follow the
//! fixed rule of the model's name ([`TokenRule`](crate::config::tokens::TokenRule)): they are the same for the same
//! bytes, model and settings, so that every replica cuts at the same place.
//! A [`Calibration`] turns raw tokens into expected tokens. It learns from the usage of each answer, and decides only
//! *whether* to cut.

mod calibration;
mod images;
mod weights;

pub use self::{
    calibration::{Calibration, SLOPES, TokenScale},
    images::estimate_media_block,
    weights::Weights,
};
use std::borrow::Borrow;

use crate::{
    conversation::{Conversation, Item},
    json::text::{self, TextSizes},
};

/// Raw tokens of a message with text of these sizes.
pub fn estimate_message(
    conversation: &Conversation,
    message: &Item,
    sizes: &TextSizes,
    weights: &Weights,
) -> u32 {
    if message.read_by_program && conversation.format.rules().hides_program_results {
        return weights.message_tokens();
    }
    let calls = (message.calls.len() as u32).saturating_mul(weights.call_tokens());
    weights
        .count_text_tokens(sizes)
        .saturating_add(weights.message_tokens())
        .saturating_add(calls)
        .saturating_add(estimate_media(conversation, message, weights))
}

/// Raw tokens by which a message is lighter without its reasoning; `None` where it has none.
pub(in crate::guard) fn estimate_reasoning(
    conversation: &Conversation,
    message: &Item,
    weights: &Weights,
) -> Option<u32> {
    let reasoning = conversation.measure_reasoning(message)?;
    let mut rest = message.sizes;
    rest -= reasoning;
    let all = weights.count_text_tokens(&message.sizes);
    Some(all.saturating_sub(weights.count_text_tokens(&rest)))
}

/// Raw tokens of a message's reasoning beyond its estimate, which are `density` for each byte.
pub(in crate::guard) fn estimate_dense_reasoning(
    conversation: &Conversation,
    message: &Item,
    density: f64,
) -> u32 {
    if density > 0.0 {
        (conversation.count_reasoning_bytes(message) as f64 * density) as u32
    } else {
        0
    }
}

/// Raw tokens of every message of a conversation as it came.
pub(in crate::guard) fn estimate_messages(
    conversation: &Conversation,
    weights: &Weights,
) -> Vec<u32> {
    let messages = conversation.items.iter();
    messages
        .map(|it| estimate_message(conversation, it, &it.sizes, weights))
        .collect()
}

/// Raw tokens of a whole request as it came.
pub fn estimate_request(conversation: &Conversation, weights: &Weights) -> u32 {
    sum_tokens(estimate_messages(conversation, weights))
        .saturating_add(estimate_outside_messages(conversation, weights))
}

/// Raw tokens of the media of a message.
pub fn estimate_media(conversation: &Conversation, message: &Item, weights: &Weights) -> u32 {
    let blocks = conversation.blocks_of(message).iter();
    let blocks = blocks.map(|block| estimate_media_block(conversation, block, weights));
    let beside = conversation.media_of_other(message);
    sum_tokens(blocks).saturating_add(images::estimate_media_list(conversation, beside, weights))
}

/// Raw tokens of what the model reads outside of the messages, such as tool schemas, and of what a request costs by itself.
pub fn estimate_outside_messages(conversation: &Conversation, weights: &Weights) -> u32 {
    let spans = conversation.beside_items();
    let tokens = spans
        .map(|span| weights.count_tool_tokens(&text::measure_json(conversation.span_bytes(span))));
    let once = weights.request_tokens(conversation.lists_tools());
    sum_tokens(tokens).saturating_add(once)
}

/// The sum of raw tokens.
pub(crate) fn sum_tokens(tokens: impl IntoIterator<Item: Borrow<u32>>) -> u32 {
    let tokens = tokens.into_iter();
    tokens.fold(0, |sum, it| sum.saturating_add(*it.borrow()))
}

/// Finds by bisection the largest number up to `most` that `fits`, if 0 fits and no number fits above one that does not. In
/// other cases it may not be the largest, but every result above 0 fits.
pub fn find_last_fit(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut fitting, mut beyond) = (0, most + 1);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle
        } else {
            beyond = middle
        }
    }
    fitting
}

/// Tokens as a whole number, rounded up.
fn round_up_tokens(tokens: f64) -> u32 {
    tokens.ceil() as u32
}
