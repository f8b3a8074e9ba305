//! The schemas of the proxy's tools, added at the end of the client's list.

use crate::{
    conversation::{Conversation, edit::Edits},
    guard::{
        inject::injections::{InjectedTools, ToolSet},
        request::estimate::Weights,
    },
    json::scan::JsonScanner,
};

pub(in crate::guard) struct ToolSchemas<'a> {
    tools: &'a InjectedTools,
    /// The byte of the body before which they are inserted.
    at: u32,
    comma: bool,
}

impl<'a> ToolSchemas<'a> {
    /// `None` where the request has no list of tools to add them to.
    pub(in crate::guard) fn from_conversation(
        conversation: &Conversation,
        tools: &'a InjectedTools,
    ) -> Option<Self> {
        let list = conversation.find_tool_list(tools.field)?;
        let mut comma = false;
        JsonScanner::new(&conversation.body, list.start as usize)
            .walk_array(|scan| {
                comma = true;
                scan.take_value().map(|_| ())
            })
            .ok()?;
        (!tools.json.is_empty()).then_some(Self {
            tools,
            at: list.end - 1,
            comma,
        })
    }

    pub(in crate::guard) const fn set(&self) -> ToolSet {
        self.tools.set
    }

    /// Raw tokens.
    pub(in crate::guard) fn count_tokens(&self, weights: &Weights) -> u32 {
        weights.count_tool_tokens(&self.tools.sizes)
    }

    pub(in crate::guard) fn insert_schemas(&self, edits: &mut Edits) {
        if self.comma {
            edits.insert(self.at, ",");
        }
        edits.insert(self.at, self.tools.json.clone());
    }
}
