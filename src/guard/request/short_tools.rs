//! Tool definitions that are sent shorter than they came.
//!
//! They are cut once in a session, with its first cut, and every later request has them cut in the same way, so that the
//! provider's cache of them is lost once. How far they are cut depends on the tools and the window alone.

use crate::{
    config::{ToolsMode, profile::PastReasoning},
    conversation::{Conversation, ToolBrevity, edit::Edits},
    guard::request::policy::Policy,
    json::text,
};

/// The share of the window that definitions may take before any of them is cut.
const SHARE: f64 = 0.25;

/// The tool definitions of a request as they are sent; by default as they came.
#[derive(Clone, Debug, Default)]
pub(in crate::guard) struct ShortTools {
    /// `None` if they are sent as they came.
    pub(in crate::guard) brevity: Option<ToolBrevity>,
    pub(in crate::guard) edits: Edits,
    /// Tools that get shorter.
    pub(in crate::guard) count: usize,
    /// Raw tokens that this frees outside of the messages.
    pub(in crate::guard) freed: u32,
    /// What each item that holds tools loses.
    pub(in crate::guard) items: Vec<FreedItem>,
}

/// Raw tokens that an item loses.
#[derive(Clone, Copy, Debug)]
pub(in crate::guard) struct FreedItem {
    pub(in crate::guard) at: usize,
    pub(in crate::guard) tokens: u32,
}

impl ShortTools {
    /// Shortens the tools as far as the session has them shortened. A model that binds its reasoning to the tools gets them
    /// as they came.
    pub(in crate::guard) fn cut_to(
        conversation: &Conversation,
        policy: &Policy<'_>,
        brevity: Option<ToolBrevity>,
    ) -> Self {
        let brevity = brevity.filter(|_| may_cut(policy));
        brevity.map_or_else(Self::default, |brevity| {
            Self::measure(conversation, policy, brevity)
        })
    }

    /// Shortens the tools with the first cut of a session, as far as it takes to bring them within their share. `None` if
    /// they are within it, must stay, or get no shorter. `refused`: raw tokens of this request, if the provider refused it
    /// as too long: by the provider's count these fill the window at least.
    pub(in crate::guard) fn cut_to_share(
        conversation: &Conversation,
        policy: &Policy<'_>,
        refused: Option<u32>,
    ) -> Option<Self> {
        let of_request = refused.map_or(f64::INFINITY, |raw| SHARE * f64::from(raw));
        let most = policy.window_share(SHARE).min(of_request);
        let all = weigh_definitions(conversation, policy);
        if !may_cut(policy) || f64::from(all) <= most {
            return None;
        }
        let [first, second] = [ToolBrevity::NoAnnotations, ToolBrevity::FirstSentences];
        let tools = Self::measure(conversation, policy, first);
        let tools = if f64::from(all.saturating_sub(tools.count_freed())) <= most {
            tools
        } else {
            Self::measure(conversation, policy, second)
        };
        (tools.count_freed() > 0).then_some(tools)
    }

    /// Raw tokens that all lists lose.
    pub(in crate::guard) fn count_freed(&self) -> u32 {
        let items = self.items.iter().map(|item| item.tokens);
        items.fold(self.freed, u32::saturating_add)
    }

    fn measure(conversation: &Conversation, policy: &Policy<'_>, brevity: ToolBrevity) -> Self {
        let weights = policy.token_weights();
        let body = &conversation.body;
        let mut this = Self {
            brevity: Some(brevity),
            ..Self::default()
        };
        for list in conversation.tool_lists() {
            let mut edits = Edits::default();
            this.count += conversation.shorten_tools(list.span, brevity, &mut edits);
            match list.item {
                None => {
                    let short = edits.apply_to_part(body, list.span);
                    let weigh = |json: &[u8]| weights.count_tool_tokens(&text::measure_json(json));
                    let whole = weigh(conversation.span_bytes(list.span));
                    this.freed += whole.saturating_sub(weigh(&short));
                }
                Some(at) => {
                    let item = &conversation.items[at];
                    let mut sizes = item.sizes;
                    sizes -= text::measure_text(conversation.span_bytes(item.span));
                    sizes += text::measure_text(&edits.apply_to_part(body, item.span));
                    let whole = weights.count_text_tokens(&item.sizes);
                    let tokens = whole.saturating_sub(weights.count_text_tokens(&sizes));
                    this.items.push(FreedItem { at, tokens });
                }
            }
            this.edits.merge(edits);
        }
        this
    }
}

/// Whether the settings and the model let definitions get shorter: if a model binds its reasoning, tools are a part of what
/// the reasoning is bound to.
fn may_cut(policy: &Policy<'_>) -> bool {
    policy.settings.tools == ToolsMode::Auto && policy.profile.past_reasoning == PastReasoning::Read
}

/// Raw tokens of all tool definitions.
fn weigh_definitions(conversation: &Conversation, policy: &Policy<'_>) -> u32 {
    let weights = policy.token_weights();
    let lists = conversation.tool_lists().into_iter();
    let tokens = lists.map(|list| {
        let json = conversation.span_bytes(list.span);
        weights.count_tool_tokens(&text::measure_json(json))
    });
    tokens.fold(0, u32::saturating_add)
}
