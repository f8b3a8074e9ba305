//! The schemas of our tools, at the end of the client's.

use super::{estimate::Weights, record::OwnTools};
use crate::{
    conversation::{Conversation, edit::Edits},
    json::scan::{Kind, Scan},
};

/// Schemas and where they go.
pub(super) struct Schemas<'a> {
    own: &'a OwnTools,
    at: u32,
    comma: bool,
}

impl<'a> Schemas<'a> {
    /// `None` where the request has no list of tools that they could be added to.
    pub(super) fn of(conversation: &Conversation, own: &'a OwnTools) -> Option<Self> {
        let field = conversation
            .field(own.field)
            .filter(|field| field.kind == Kind::Array && !own.json.is_empty())?;
        let mut comma = false;
        Scan::new(&conversation.body, field.value.start as usize)
            .array(|scan| {
                comma = true;
                scan.value().map(|_| ())
            })
            .ok()?;
        Some(Self {
            own,
            at: field.value.end - 1,
            comma,
        })
    }

    /// Raw tokens.
    pub(super) fn tokens(&self, weights: &Weights) -> u32 {
        weights.spelled(&self.own.json)
    }

    pub(super) fn put(&self, edits: &mut Edits) {
        if self.comma {
            edits.insert(self.at, ",");
        }
        edits.insert(self.at, self.own.json.clone());
    }
}
