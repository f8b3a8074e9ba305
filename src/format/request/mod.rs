//! The options of a request other than its items, in any format.

pub mod beta_header;
pub mod block_binding;
pub(super) mod cache_markers;
pub(super) mod reasoning;
mod required_members;
mod write;

use bytes::Bytes;
use serde_json::Value;

use super::{
    chat, messages, responses,
    values::{has_type, parse_field, remove_members},
};
use crate::{
    config::profile::Profile,
    conversation::{Author, BlockKind, Conversation, Field, Format, edit::Edits},
    format::tools::ClientTools,
    json::scan::{JsonKind, JsonString, Span},
};

/// A request without tools is auxiliary if its answer cap is at most this, in tokens.
const AUXILIARY_MAX_TOKENS: u64 = 64;

impl Format {
    /// The members that cap an answer; first the one that newer engines use.
    const fn answer_caps(self) -> &'static [&'static str] {
        in_format!(self, request::CAPS)
    }

    /// The members that list tools.
    const fn tool_lists(self) -> &'static [&'static str] {
        in_format!(self, request::TOOL_LISTS)
    }
}

impl Conversation {
    /// Whether the request is not part of a conversation: it has no tools, and an answer cap of a few words. Clients send
    /// such requests to make a title or to test a key. Some only fill the provider's cache. Chat apps quote a chat in
    /// such a request. In Responses, a request that compacts is auxiliary too, and Codex itself says which of its
    /// requests belong to no turn.
    pub fn is_auxiliary(&self) -> bool {
        let is_capped = |max| self.max_answer_tokens().is_some_and(|tokens| tokens <= max);
        let is_short = || is_capped(AUXILIARY_MAX_TOKENS) && !self.names_tools();
        self.fills_cache()
            || match self.format {
                Format::Chat => is_short() || chat::request::is_app_task(self),
                Format::Messages => is_short(),
                Format::Responses => responses::request::is_beside_turns(self) || is_short(),
                #[cfg(test)]
                Format::Toy => false,
            }
    }

    /// Whether the request says that it only fills the provider's cache: a cap of 0 in Messages, `prewarm` in
    /// `prompt_cache_options` (OpenAI, from November 2026 on) or in what Codex says of its turn.
    fn fills_cache(&self) -> bool {
        let asks = || parse_field(self, "prompt_cache_options")["prewarm"] == true;
        match self.format {
            Format::Chat => asks(),
            Format::Messages => self.max_answer_tokens() == Some(0),
            Format::Responses => asks() || responses::request::is_prewarm(self),
            #[cfg(test)]
            Format::Toy => false,
        }
    }

    /// Whether the request, if it repeats another one, only fills the provider's cache: it says so, or its cap is the
    /// smallest that providers take (16 tokens in Responses, else 1), as the cap of pi's requests is.
    pub fn may_fill_cache(&self) -> bool {
        let least = by_format!(self.format, Responses => 16; else Chat | Messages => 1);
        self.fills_cache() || self.largest_answer_cap().is_some_and(|cap| cap <= least)
    }

    /// Whether the request repeats one that another model refused, with the credit for its cached prompt
    /// (`fallback_credit_token`): it must be sent as that one was.
    pub fn redeems_credit(&self) -> bool {
        let token = || self.find_field_of_kind("fallback_credit_token", JsonKind::String);
        by_format!(self.format, Messages => token().is_some(); else Chat | Responses => false)
    }

    /// The id that the client's own metadata give the thread: Codex' `client_metadata`.
    pub fn client_thread(&self) -> Option<String> {
        by_format!(self.format,
            Responses => responses::request::find_thread(self);
            else Chat | Messages => None)
    }

    /// The answer cap in tokens; of several, the one that newer engines use.
    pub fn max_answer_tokens(&self) -> Option<u64> {
        let mut caps = self.format.answer_caps().iter();
        caps.find_map(|name| self.number_value(name))
    }

    /// The largest of all answer caps, in tokens.
    pub fn largest_answer_cap(&self) -> Option<u64> {
        let caps = self.format.answer_caps().iter();
        caps.filter_map(|name| self.number_value(name)).max()
    }

    /// Lowers every answer cap above `tokens` to it. None is raised, and none is added.
    pub fn lower_answer_caps(&self, tokens: u32, edits: &mut Edits) {
        for name in self.format.answer_caps() {
            if let Some(field) = self.find_field(name)
                && self
                    .number_value(name)
                    .is_some_and(|cap| cap > tokens.into())
            {
                edits.replace(field.value, tokens.to_string());
            }
        }
    }

    /// Whether edits change what the model reads, and not answer caps alone.
    pub fn changes_prompt(&self, edits: &Edits) -> bool {
        let caps = self.format.answer_caps().iter();
        let caps: Vec<_> = caps.filter_map(|name| self.find_field(name)).collect();
        edits
            .spans()
            .any(|span| caps.iter().all(|cap| cap.value != span))
    }

    /// Whether the request itself says which reasoning the model reads, or the format does.
    pub fn names_reasoning_context(&self) -> bool {
        by_format!(self.format,
            Responses => responses::request::names_reasoning_context(self);
            else Chat | Messages => true)
    }

    /// The largest thinking budget in the request, in tokens. Thinking is part of the answer, and
    /// providers refuse an answer cap that is not above the budget.
    pub fn thinking_budget(&self) -> Option<u64> {
        by_format!(self.format,
            Chat => chat::request::thinking_budget(self),
            Messages => messages::request::thinking_budget(self);
            // It states an effort instead.
            else Responses => None)
    }

    /// Whether the client asks for the usage of a stream, or its format always has it; `None` if it leaves that open.
    pub fn include_usage(&self) -> Option<bool> {
        match self.format {
            Format::Chat => chat::request::include_usage(self),
            Format::Messages | Format::Responses => Some(true),
            #[cfg(test)]
            Format::Toy => None,
        }
    }

    /// Asks for the usage of a stream if the client leaves it open; an explicit `false` is kept.
    /// Returns whether it added the option.
    pub fn ask_usage(&self, edits: &mut Edits) -> bool {
        by_format!(self.format,
            Chat => chat::request::ask_usage(self, edits);
            else Messages | Responses => false)
    }

    /// The member by which the request asks the provider to manage its context.
    pub fn managed_by_provider(&self) -> Option<&'static str> {
        in_format!(self.format, request::managed_by_provider(self))
    }

    /// Whether the model's turn must begin with thinking while results of its calls are returned.
    pub fn begins_turns_with_thinking(&self) -> bool {
        by_format!(self.format,
            Messages => messages::request::begins_turns_with_thinking(self);
            else Chat | Responses => false)
    }

    /// Disables thinking, for a turn that must begin with thinking and does not. Returns whether it changed the request.
    pub fn switch_thinking_off(&self, edits: &mut Edits) -> bool {
        let field = self.find_field("thinking");
        let field = field.filter(|_| self.begins_turns_with_thinking());
        if let Some(field) = &field {
            edits.replace(field.value, r#"{"type":"disabled"}"#);
        }
        field.is_some()
    }

    /// Whether the client compacts its conversation with this request: it asks the model for a summary, or asks the
    /// provider to compact.
    pub fn asks_to_compact(&self) -> bool {
        by_format!(self.format,
            Messages => self.asks_for("compaction"),
            Responses => responses::request::asks_to_compact(self);
            else Chat => false)
    }

    /// Whether the request ends in an entry that asks the provider to compact, and holds all that is to be compacted.
    pub fn can_be_compacted(&self) -> bool {
        by_format!(self.format,
            Responses => responses::request::can_be_compacted(self);
            else Chat | Messages => false)
    }

    /// Returns the body of a request for a compacted list (`/responses/compact`) as a body that ends in an entry that
    /// asks to compact. Returns `None` if there is nothing to compact, or if a part of the history is not in the request.
    pub fn with_compaction_trigger(&self) -> Option<Bytes> {
        by_format!(self.format,
            Responses => responses::compaction_item::append_trigger(self);
            else Chat | Messages => None)
    }

    /// The text of a block that is a document of text; `None` for any other block.
    pub fn find_document_text(&self, block: Span) -> Option<JsonString> {
        by_format!(self.format,
            Messages => messages::blocks::find_document_text(&self.body, block);
            else Chat | Responses => None)
    }

    /// Whether a block is a document, text or not.
    pub fn is_document(&self, block: Span) -> bool {
        let name = self.format.rules().document_type;
        name.is_some_and(|name| has_type(&self.body, block.start, name))
    }

    /// Returns the spans that the model reads in addition to the items: schemas of tools and of the answer. Tools in an
    /// entry count with that entry.
    pub fn beside_items(&self) -> impl Iterator<Item = Span> {
        let answer = in_format!(self.format, request::find_answer_format(self));
        self.tool_members().chain(answer)
    }

    /// The members of the request that list tools.
    pub(in crate::format) fn tool_members(&self) -> impl Iterator<Item = Span> {
        let lists = self.format.tool_lists().iter();
        lists.filter_map(|name| self.find_field(name).map(|field| field.value))
    }

    /// Whether a member for tools is neither null, false, nor empty.
    pub fn names_tools(&self) -> bool {
        let mut lists = self.format.tool_lists().iter();
        lists.any(|name| self.asks_for(name)) || self.names_tools_elsewhere()
    }

    /// Finds the list, brackets included, to whose end tools can be added: the member `name` or, if the client has its
    /// tools in an entry of the conversation, the list in that entry.
    pub fn find_tool_list(&self, name: &str) -> Option<Span> {
        if let Some(field) = self.find_field(name) {
            return (field.kind == JsonKind::Array).then_some(field.value);
        }
        by_format!(self.format,
            Responses => responses::request::find_entry_tools(self);
            else Chat | Messages => None)
    }

    /// Whether the request names tools outside its lists of tools.
    fn names_tools_elsewhere(&self) -> bool {
        by_format!(self.format,
            Messages => self.asks_for(messages::request::TOOL_SERVERS),
            Responses => responses::request::tool_entries(self).next().is_some();
            else Chat => false)
    }

    /// Whether a list of tools has elements. Any other value but null counts too, so that a request
    /// that is not understood is left alone.
    pub fn lists_tools(&self) -> bool {
        let mut lists = self.format.tool_lists().iter();
        lists.any(|name| self.has_elements(name))
            || self.format.rules().lists_tools_in_entries && self.names_tools_elsewhere()
    }

    /// Whether the API of a model with this profile refuses the request, however it is fitted: for its tools, the call
    /// that it demands, or the answer that it begins.
    pub fn is_refused_by(&self, profile: &Profile) -> bool {
        // If an answer ends with what the server runs, then the server continues it, and the request begins no answer.
        let begins_answer = || {
            self.items.last().is_some_and(|last| {
                let block = self.blocks_of(last).last();
                last.author == Author::Model
                    && block.is_none_or(|it| matches!(it.kind, BlockKind::Text(_)))
            })
        };
        let is_refused = by_format!(self.format,
            Chat => !profile.takes_chat_tools && self.lists_tools(),
            Messages => !profile.may_end_with_assistant && begins_answer();
            else Responses => false);
        is_refused || !profile.takes_forced_calls && self.demands_call()
    }

    /// Whether the answer must call a tool.
    fn demands_call(&self) -> bool {
        let choice = match self.format {
            Format::Chat | Format::Messages | Format::Responses => parse_field(self, "tool_choice"),
            #[cfg(test)]
            Format::Toy => Value::Null,
        };
        match choice {
            Value::String(choice) => choice != "auto" && choice != "none",
            Value::Object(choice) => {
                let kind = choice.get("type").and_then(Value::as_str);
                !matches!(kind, Some("auto" | "none" | "allowed_tools"))
            }
            _ => false,
        }
    }

    /// Leaves one answer cap, under the name that the chat completions of the profile take. If two caps are set, then the
    /// value of `max_completion_tokens` stays, since the guard uses it.
    pub fn keep_one_answer_cap(&self, profile: &Profile, edits: &mut Edits) {
        let [new, old] = by_format!(self.format,
            Chat => chat::request::CAPS;
            else Messages | Responses => return);
        let (wanted, other) = if profile.names_completion_cap {
            (new, old)
        } else {
            (old, new)
        };
        let Some(refused) = self.find_field(other) else {
            return;
        };
        let is_set = |field: &Field| field.kind != JsonKind::Null;
        let taken = self.find_field(wanted);
        // The other cap is removed: some APIs refuse its name whatever its value is. If two caps are set, then the guard
        // and the newer engines use the newer one.
        let is_sent = is_set(refused) && (other == new || !taken.is_some_and(is_set));
        let surplus = if is_sent {
            edits.replace(refused.key.span, *wanted);
            taken
        } else {
            Some(refused)
        };
        if let Some(surplus) = surplus {
            remove_members(&self.fields, edits, |it| it.value == surplus.value);
        }
    }

    /// Whether the model may choose among the tools.
    pub fn may_call_tools(&self) -> bool {
        in_format!(self.format, request::may_call_tools(self))
    }

    /// Whether the next request will have the history, with what the proxy puts into it. Responses and threads of
    /// Messages may leave the history to the provider, which does not have the proxy's tool rounds.
    pub fn sends_history(&self) -> bool {
        by_format!(self.format,
            Messages => messages::request::sends_history(self),
            Responses => responses::request::sends_history(self);
            else Chat => true)
    }

    /// Returns the id of the answer that the request continues, if the provider holds what comes before.
    pub fn find_previous_answer(&self) -> Option<String> {
        by_format!(self.format,
            Messages => messages::request::find_previous_answer(self),
            Responses => responses::request::find_previous_answer(self);
            else Chat => None)
    }

    /// Whether the provider has messages before those of the request, and counts them as its prompt.
    pub fn lacks_history(&self) -> bool {
        by_format!(self.format,
            Messages => self.find_previous_answer().is_some(),
            Responses => responses::request::held_by_provider(self).is_some();
            else Chat => false)
    }

    /// Whether the guard leaves the request alone only because a thread of Messages is to hold the conversation.
    pub fn is_managed_by_thread(&self) -> bool {
        by_format!(self.format,
            Messages => self.managed_by_provider() == Some(messages::request::THREAD);
            else Chat | Responses => false)
    }

    /// Whether the request continues a thread. Each answer of a thread can be continued once, and no other provider has
    /// the thread: the request must not be sent twice, nor to another provider.
    pub fn continues_thread(&self) -> bool {
        by_format!(self.format, Messages => self.lacks_history(); else Chat | Responses => false)
    }

    /// The client's tools, to which proxy-executed ones are added. `None` if the request has no tools, or a list
    /// that cannot be read.
    pub fn read_client_tools(
        &self,
        reserved: impl Iterator<Item = &'static str>,
    ) -> Option<ClientTools> {
        in_format!(self.format, tools::read_client_tools(self, reserved))
    }

    /// Whether the request asks for several choices; a tool loop could continue only one of them.
    pub fn asks_for_many(&self) -> bool {
        by_format!(self.format,
            Chat => chat::request::asks_for_many(self);
            else Messages | Responses => false)
    }

    /// Whether the answer continues the last item.
    pub fn begins_answer(&self) -> bool {
        let newest = self.items.last();
        newest.is_some_and(|item| item.author == Author::Model)
            || by_format!(self.format,
                Chat => chat::request::continues_message(self);
                else Messages | Responses => false)
    }

    /// Whether the answer is plain text that may end with a continuation block.
    pub fn takes_plain_text(&self) -> bool {
        !self.begins_answer() && in_format!(self.format, request::takes_plain_text(self))
    }
}
