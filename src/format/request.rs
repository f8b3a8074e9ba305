//! What a request says of itself beside its items.

#[cfg(test)]
use super::tests::toy;
use super::{chat, tools::ToolForm};
use crate::{
    conversation::{Conversation, Format, edit::Edits},
    json::scan::Span,
};

impl Conversation {
    /// Whether it belongs to no conversation, as clients send to make a title or to try a key: no tools, and
    /// room for a few words only.
    pub fn is_auxiliary(&self) -> bool {
        match self.format {
            Format::Chat => chat::request::is_auxiliary(self),
            #[cfg(test)]
            Format::Toy => false,
        }
    }

    /// The largest answer asked for; tokens.
    pub fn max_answer_tokens(&self) -> Option<u64> {
        match self.format {
            Format::Chat => chat::request::max_answer_tokens(self),
            #[cfg(test)]
            Format::Toy => toy::max_answer_tokens(self),
        }
    }

    /// The largest of the answer caps that the request names; tokens.
    pub fn largest_answer_cap(&self) -> Option<u64> {
        match self.format {
            Format::Chat => chat::request::largest_answer_cap(self),
            #[cfg(test)]
            Format::Toy => toy::largest_answer_cap(self),
        }
    }

    /// Lowers every answer cap above `tokens` to it. None is raised, and none is added.
    pub fn lower_answer_caps(&self, tokens: u32, edits: &mut Edits) {
        match self.format {
            Format::Chat => chat::request::lower_answer_caps(self, tokens, edits),
            #[cfg(test)]
            Format::Toy => toy::lower_answer_caps(self, tokens, edits),
        }
    }

    /// The tokens that the request lets the model think for, where it names any. They are part of the answer,
    /// and providers refuse an answer cap that is not above them.
    pub fn thinking_budget(&self) -> Option<u64> {
        match self.format {
            Format::Chat => chat::request::thinking_budget(self),
            #[cfg(test)]
            Format::Toy => None,
        }
    }

    /// What the client itself said of the usage of a stream.
    pub fn include_usage(&self) -> Option<bool> {
        match self.format {
            Format::Chat => chat::request::include_usage(self),
            #[cfg(test)]
            Format::Toy => None,
        }
    }

    /// Asks for the usage of a stream where the client left it open.
    ///
    /// An explicit `false` is respected. Returns whether something was asked.
    pub fn ask_usage(&self, edits: &mut Edits) -> bool {
        match self.format {
            Format::Chat => chat::request::ask_usage(self, edits),
            #[cfg(test)]
            Format::Toy => false,
        }
    }

    /// The member by which the request asks the provider to manage its context.
    pub fn managed_by_provider(&self) -> Option<&'static str> {
        match self.format {
            Format::Chat => chat::request::managed_by_provider(self),
            #[cfg(test)]
            Format::Toy => None,
        }
    }

    /// What stands beside the items and is read by the model all the same: schemas of tools and of the answer.
    pub fn beside_items(&self) -> impl Iterator<Item = Span> {
        let spans = match self.format {
            Format::Chat => chat::request::beside_items(self),
            #[cfg(test)]
            Format::Toy => toy::beside_items(self),
        };
        spans.into_iter()
    }

    /// Whether the request has a member for tools that is neither null, false, nor empty.
    pub fn names_tools(&self) -> bool {
        match self.format {
            Format::Chat => chat::request::names_tools(self),
            #[cfg(test)]
            Format::Toy => toy::lists_tools(self),
        }
    }

    /// Whether a list of tools has anything in it; what is no list counts as one, so that nothing is asked of
    /// a request that is not understood.
    pub fn lists_tools(&self) -> bool {
        match self.format {
            Format::Chat => chat::request::lists_tools(self),
            #[cfg(test)]
            Format::Toy => toy::lists_tools(self),
        }
    }

    /// Whether the model may choose among the tools.
    pub fn may_call_tools(&self) -> bool {
        match self.format {
            Format::Chat => chat::answer_shape::may_call_tools(self),
            #[cfg(test)]
            Format::Toy => true,
        }
    }

    /// How tools of the proxy with these `reserved` names stand beside the client's own. `None` where the request
    /// has none, or a list that cannot be followed, or one with such a name.
    pub fn tool_form(&self, reserved: &[&str]) -> Option<ToolForm> {
        match self.format {
            Format::Chat => chat::tools::tool_form(self, reserved),
            #[cfg(test)]
            Format::Toy => None,
        }
    }

    /// Whether more than one answer is asked for: what of them would be for the proxy, and which one goes on?
    pub fn asks_for_many(&self) -> bool {
        match self.format {
            Format::Chat => chat::answer_shape::asks_for_many(self),
            #[cfg(test)]
            Format::Toy => false,
        }
    }

    /// Whether the answer is to continue an item that is there already.
    pub fn begins_answer(&self) -> bool {
        match self.format {
            Format::Chat => chat::answer_shape::begins_answer(self),
            #[cfg(test)]
            Format::Toy => toy::begins_answer(self),
        }
    }

    /// Whether the answer is plain text that may end with a block.
    pub fn takes_plain_text(&self) -> bool {
        match self.format {
            Format::Chat => chat::answer_shape::takes_plain_text(self),
            #[cfg(test)]
            Format::Toy => !toy::begins_answer(self),
        }
    }
}
