//! Clearing: results of old steps become a short placeholder, long values in the arguments of old calls may be shortened,
//! old images of the user are replaced with a line of text, and what the user attached to old messages, the task included,
//! is shortened around a marker.
//!
//! What a message becomes depends on its bytes, the settings, and whether ids are named. Which messages are cleared is
//! decided by the replay (see [`crate::guard::fold::replay`]).
//!
//! Never edited: text with half a surrogate pair, and parts that are neither text nor media. No part with a cache breakpoint
//! is removed, and none moves. A message stays as it is if clearing it would save hardly anything. A placeholder of the
//! guard stays for this reason: by its size, never by its text.

pub(in crate::guard) mod attachments;
mod inputs;
mod parts;
mod recent_units;

use std::borrow::Cow;

use self::attachments::AttachmentLimit;
pub(in crate::guard) use self::recent_units::RecentUnits;
use crate::{
    config::ClearConfig,
    conversation::{Author, edit::Edits, units::Unit},
    guard::{
        request::{
            budget::{self, MEDIUM_WINDOW},
            estimate::sum_tokens,
            policy::Policy,
            recall_id::RecallId,
            view::RequestView,
        },
        shrink::shortened_messages::{ShortenedMessages, ToolNames},
    },
};

/// The placeholder of a result.
pub(in crate::guard) const RESULT: &str = "[An old tool result was left out here by the context guard to \
save room. Call the tool again if you need it.]";

/// Writes the placeholder of a result. One with an `id`, by which the result can be recalled, is no longer than [`RESULT`],
/// so that it is not cleared again.
fn write_placeholder(id: Option<RecallId>) -> Cow<'static, str> {
    id.map_or(Cow::Borrowed(RESULT), |id| {
        let text = "[An old tool result was left out here by the context guard to save room;";
        Cow::Owned(format!("{text} recall id {id} shows it.]"))
    })
}

/// Raw tokens that clearing a message must save. A message that saves less stays as it is.
const LEAST_SAVED: u32 = 64;

/// What was cleared and is still part of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Tool results.
    pub results: usize,
    /// Calls whose arguments were shortened.
    pub inputs: usize,
    /// Images, other media and long attachments of the user's.
    pub media: usize,
    /// Raw tokens that all this freed.
    pub tokens: u32,
    /// The messages.
    pub messages: Vec<usize>,
    /// Whether any message is cleared for the first time in this request.
    pub new: bool,
    /// How many messages are cleared for the first time in this request.
    pub fresh: usize,
}

impl Cleared {
    /// Results, calls and media.
    pub const fn count(&self) -> usize {
        self.results + self.inputs + self.media
    }
}

/// A message in its cleared form.
#[derive(Clone, Debug, Default)]
pub(in crate::guard) struct ClearedForm {
    edits: Edits,
    /// Raw tokens.
    pub(in crate::guard) tokens: u32,
    /// Raw tokens that clearing saves, compared with the message after the cuts of single messages.
    saves: u32,
    inputs: usize,
    media: usize,
    /// Only media are removed; the text stays.
    keeps_text: bool,
}

impl ClearedForm {
    /// Raw tokens of the cleared message, if it has `tokens` now. If only media are removed, its text weighs the same.
    const fn now(&self, tokens: u32) -> u32 {
        if self.keeps_text {
            tokens.saturating_sub(self.saves)
        } else {
            self.tokens
        }
    }
}

/// What each message becomes if it is cleared.
pub(in crate::guard) struct Clearing {
    forms: Vec<Option<ClearedForm>>,
    /// For the request that ended at each unit, the units that are too new to be cleared; `None` if the settings neither
    /// keep recent units nor clear early.
    recent: Option<Vec<RecentUnits>>,
    /// The settings keep recent units from deep cuts too, not from early clearing alone.
    cuts_keep_recent: bool,
}

impl Clearing {
    /// Finds what could be cleared. `first`: the raw tokens of every message after the cuts of single messages.
    pub(in crate::guard) fn new(view: RequestView<'_>, first: &[u32]) -> Self {
        let mut forms = vec![None; first.len()];
        let mut names = ToolNames::default();
        let pinned = view.count_pinned();
        for (place, unit) in view.units.iter().enumerate() {
            let is_pinned = unit.is_pinned || place < pinned;
            for at in unit.messages.clone() {
                let form = if is_pinned {
                    // Of a pinned unit, only the attachments of the task get shorter.
                    shorten_task(view, at)
                } else {
                    shrink(view, at, first[at], &mut names)
                };
                forms[at] = form
                    .map(|form| ClearedForm {
                        saves: first[at].saturating_sub(form.tokens),
                        ..form
                    })
                    .filter(|form| form.saves >= LEAST_SAVED);
            }
        }
        let settings = &view.policy.settings.clear;
        Self {
            forms,
            recent: find_recent_units(view, first),
            cuts_keep_recent: settings.keep_rounds.or(settings.keep_steps).is_some(),
        }
    }

    /// For a conversation in which nothing is cleared.
    pub(in crate::guard) fn nothing(messages: usize) -> Self {
        Self {
            forms: vec![None; messages],
            recent: None,
            cuts_keep_recent: false,
        }
    }

    /// The units that are too new to be cleared early, for the request that ended at unit `at`.
    pub(in crate::guard) fn recent_units(&self, at: usize) -> Option<RecentUnits> {
        self.recent.as_ref().map(|recent| recent[at])
    }

    /// The units that the settings keep from deep cuts, for the request that ended at unit `at`.
    pub(in crate::guard) fn recent_units_of_cuts(&self, at: usize) -> Option<RecentUnits> {
        self.recent_units(at).filter(|_| self.cuts_keep_recent)
    }

    /// Whether a message is a result that becomes a placeholder.
    pub(in crate::guard) fn is_cleared_result(
        &self,
        at: usize,
        messages: &ShortenedMessages<'_>,
    ) -> bool {
        let form = self.form_of(at, messages);
        form.is_some_and(|form| form.inputs == 0 && form.media == 0)
    }

    /// The edits of a user message whose text gets shorter.
    pub(in crate::guard) fn text_edits(&self, at: usize) -> Option<&Edits> {
        let form = self.forms[at].as_ref();
        let form = form.filter(|form| form.media > 0 && !form.keeps_text);
        form.map(|form| &form.edits)
    }

    /// What a message becomes; `None` if it stays as it is. Calls that an earlier cut shortened are not cleared: the cleared
    /// form is made of what the client sent, so values that are gone by now would come back.
    fn form_of(&self, at: usize, messages: &ShortenedMessages<'_>) -> Option<&ClearedForm> {
        self.forms[at]
            .as_ref()
            .filter(|form| form.inputs == 0 || !messages.has_cut_calls(at))
    }

    /// Raw tokens of a cleared unit without its bound messages, which stay when the unit is removed.
    pub(in crate::guard) fn weigh(&self, unit: &Unit, messages: &ShortenedMessages<'_>) -> u32 {
        let tokens = unit.unbound_messages().map(|at| {
            let now = messages.tokens[at];
            self.form_of(at, messages).map_or(now, |form| form.now(now))
        });
        sum_tokens(tokens)
    }

    /// Adds the edits of those of these messages that can be cleared, and reports them.
    pub(in crate::guard) fn collect_edits(
        &self,
        places: impl Iterator<Item = usize>,
        messages: &ShortenedMessages<'_>,
        edits: &mut Edits,
    ) -> Cleared {
        let tokens = &messages.tokens;
        let mut cleared = Cleared::default();
        for at in places {
            let Some(form) = self.form_of(at, messages) else {
                continue;
            };
            edits.merge(form.edits.clone());
            cleared.inputs += form.inputs;
            cleared.media += form.media;
            cleared.results += usize::from(form.inputs == 0 && form.media == 0);
            let freed = tokens[at].saturating_sub(form.now(tokens[at]));
            cleared.tokens = cleared.tokens.saturating_add(freed);
            cleared.messages.push(at);
        }
        cleared
    }
}

/// What message `at` becomes if it is cleared; `None` if nothing of it can be. `tokens`: its raw tokens after the cuts of
/// single messages.
fn shrink(
    view: RequestView<'_>,
    at: usize,
    tokens: u32,
    names: &mut ToolNames,
) -> Option<ClearedForm> {
    let settings = &view.policy.settings.clear;
    match view.item(at).author {
        Author::Tool => {
            let is_large = tokens >= least_clearable(&view.policy);
            let goes = is_large && !excludes_result(view, at, names);
            goes.then(|| parts::clear_result(view, at)).flatten()
        }
        Author::User => shrink_user_message(view, at, tokens),
        Author::Model if settings.inputs => inputs::shorten_arguments(view, at),
        _ => None,
    }
}

/// A user message without its media, and with its other attachments shortened.
fn shrink_user_message(view: RequestView<'_>, at: usize, tokens: u32) -> Option<ClearedForm> {
    let Some(shortened) = attachments::shorten_attachments(view, at, AttachmentLimit::of_old(view))
    else {
        return parts::clear_media(view, at, tokens);
    };
    let media = parts::clear_media(view, at, shortened.tokens).unwrap_or_else(|| ClearedForm {
        tokens: shortened.tokens,
        ..ClearedForm::default()
    });
    let mut edits = media.edits;
    edits.merge(shortened.edits);
    Some(ClearedForm {
        edits,
        media: media.media + shortened.count,
        keeps_text: false,
        ..media
    })
}

/// The task with its attachments shortened; its words stay. `None` for any other message.
fn shorten_task(view: RequestView<'_>, at: usize) -> Option<ClearedForm> {
    if view.item(at).author != Author::User {
        return None;
    }
    let shortened = attachments::shorten_attachments(view, at, AttachmentLimit::of_task(view))?;
    Some(ClearedForm {
        edits: shortened.edits,
        tokens: shortened.tokens,
        media: shortened.count,
        ..ClearedForm::default()
    })
}

/// Raw tokens that a cut frees at least, where it changes what was sent before.
pub(in crate::guard) fn least_freed(policy: &Policy<'_>) -> u32 {
    let usual_share = if policy.window <= MEDIUM_WINDOW {
        0.2
    } else {
        0.1
    };
    let share = policy.settings.clear.at_least.unwrap_or(usual_share);
    let budget = budget::default_budget(policy).tokens;
    ((f64::from(budget) * share) as u32).max(LEAST_SAVED)
}

/// Raw tokens of the smallest result that is cleared: clearing a smaller one saves hardly anything.
fn least_clearable(policy: &Policy<'_>) -> u32 {
    let weights = policy.token_weights();
    weights.count_json_tokens(RESULT.as_bytes()) + weights.message_tokens() + LEAST_SAVED
}

/// Whether a result is of a tool whose results stay.
pub(in crate::guard) fn excludes_result(
    view: RequestView<'_>,
    at: usize,
    names: &mut ToolNames,
) -> bool {
    let settings = &view.policy.settings.clear;
    if settings.exclude.is_empty() {
        return false;
    }
    let name = names.find_name(view.conversation, view.units, at);
    let name = name.map(|name| view.conversation.decode_text(name));
    excludes(settings, &name.unwrap_or_default())
}

/// Whether the results and arguments of a tool are left alone.
fn excludes(settings: &ClearConfig, tool: &str) -> bool {
    settings
        .exclude
        .iter()
        .any(|name| match name.strip_suffix('*') {
            Some(start) => tool.starts_with(start),
            None => tool == name,
        })
}

/// The units that are too new to be cleared. `first`: as in [`Clearing::new`].
fn find_recent_units(view: RequestView<'_>, first: &[u32]) -> Option<Vec<RecentUnits>> {
    let settings = &view.policy.settings.clear;
    let is_set = settings.keep_rounds.or(settings.keep_steps).is_some();
    if !is_set && settings.at.is_none() {
        return None;
    }
    let counts = |unit: &Unit| is_large_step(view, unit, first);
    Some(recent_units::find_recent_units(
        view.units, settings, counts,
    ))
}

/// Whether a step counts as one of the newest: it has a result, or arguments, that could be cleared.
fn is_large_step(view: RequestView<'_>, unit: &Unit, first: &[u32]) -> bool {
    let inputs = view.policy.settings.clear.inputs;
    let says = |at: usize| {
        if view.item(at).author.is_tool() {
            first[at] >= least_clearable(&view.policy)
        } else {
            inputs && inputs::has_long_arguments(view.conversation, view.item(at))
        }
    };
    unit.has_results() && unit.messages.clone().any(says)
}

#[cfg(test)]
mod tests;
