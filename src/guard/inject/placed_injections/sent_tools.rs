//! Which of the proxy's tools are sent, and where: in the client's list, or in an entry that came with a prompt.

use super::PlacedInjections;
use crate::guard::inject::{injections::ToolSet, tool_schemas::ToolSchemas};

/// The proxy's tools that are sent. They are either all in the list or all in entries.
pub(in crate::guard) struct SentTools {
    /// In the client's list.
    pub(in crate::guard) in_list: ToolSet,
    /// In an entry among the messages.
    pub(in crate::guard) in_entry: ToolSet,
}

impl<'a> PlacedInjections<'a> {
    /// The proxy's tools that are sent if these messages are `kept`. `is_cut`: something of the request is cut.
    pub(in crate::guard) fn sent_tools(&self, kept: &[bool], is_cut: bool) -> SentTools {
        let schemas = self.listed_schemas(kept, is_cut);
        SentTools {
            in_list: schemas.map_or(ToolSet::Nothing, ToolSchemas::set),
            in_entry: self.tools_in_entry(kept),
        }
    }

    fn tools_in_entry(&self, kept: &[bool]) -> ToolSet {
        let standing = self.places.iter().filter(|it| it.is_sent_where(kept));
        standing.fold(ToolSet::Nothing, |set, it| set.union(it.between.tools))
    }

    /// Raw tokens of tools that this request is sent without, and that are weighed in it all the same.
    pub(in crate::guard) fn unsent_tokens(&self, kept: &[bool], is_cut: bool) -> u32 {
        if !self.tools_in_entry(kept).is_empty() {
            return 0;
        }
        self.weigh_schemas(true)
            .saturating_sub(self.weigh_schemas(is_cut))
    }

    /// The schemas that are added to the client's list; `None` if an entry has the tools.
    pub(super) fn listed_schemas(&self, kept: &[bool], is_cut: bool) -> Option<&ToolSchemas<'a>> {
        let schemas = self.offered_schemas(is_cut);
        schemas.filter(|_| self.tools_in_entry(kept).is_empty())
    }

    fn offered_schemas(&self, is_cut: bool) -> Option<&ToolSchemas<'a>> {
        let when_cut = self.schemas_when_cut.as_ref().filter(|_| is_cut);
        when_cut.or(self.schemas.as_ref())
    }

    pub(super) fn weigh_schemas(&self, is_cut: bool) -> u32 {
        let weights = self.view.token_weights();
        self.offered_schemas(is_cut)
            .map_or(0, |it| it.count_tokens(&weights))
    }
}
