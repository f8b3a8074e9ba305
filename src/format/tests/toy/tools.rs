//! The tools of a toy request: none are read.

use crate::{conversation::Conversation, format::ClientTools};

pub(in crate::format) fn read_client_tools(
    _: &Conversation,
    _: impl Iterator<Item = &'static str>,
) -> Option<ClientTools> {
    None
}
