//! The report of caps and shares, for headers, the log and commands.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::prompt_text::PromptText;
use crate::guard::request::view::RequestView;

/// The caps and shares of a request. Without annotations and with system text within its share, there is no content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityReport {
    pub shortened: Vec<ShortenedText>,
    /// By configured name, as far as it occurs in the request.
    pub caps: BTreeMap<String, CapUse>,
    pub system: SystemUse,
    /// How many messages of the client are sent, and how many there are.
    pub messages: [usize; 2],
    /// Its figures differ from those that were last logged.
    pub new: bool,
    /// A text that was sent before is left out from this request on, because the prompt was too large.
    pub cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShortenedText {
    pub message: usize,
    /// Its index among the parts of the message.
    pub part: Option<usize>,
    /// The name as it may be shown; empty without a name.
    pub name: String,
    pub how: Shortening,
    /// Tokens.
    #[serde(rename = "tokens_before")]
    pub before: u32,
    #[serde(rename = "tokens_after")]
    pub after: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shortening {
    /// Cut to the cap of its name.
    Capped,
    /// Replaced with a placeholder.
    #[serde(rename = "left out")]
    LeftOut,
    /// Cut to the share of system text, without an annotation.
    Trimmed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapUse {
    /// The cap of each text; tokens.
    pub cap: u32,
    /// The largest text as it goes out; tokens.
    pub tokens: u32,
    /// How many texts are sent whole, and how many are not.
    pub kept: usize,
    pub cut: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemUse {
    /// System text as it goes out, and its share; tokens.
    pub tokens: u32,
    pub limit: u32,
    /// Annotated texts that go out whole or capped.
    pub kept: usize,
    pub left_out: usize,
    /// Texts without annotation that were shortened.
    pub trimmed: usize,
}

impl fmt::Display for Shortening {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Capped => "capped",
            Self::LeftOut => "left out",
            Self::Trimmed => "trimmed",
        })
    }
}

impl PriorityReport {
    pub(super) fn from_texts<'p>(
        view: RequestView<'_>,
        texts: impl Iterator<Item = &'p PromptText>,
    ) -> Self {
        let mut report = Self::default();
        for text in texts {
            let how = text.replacement.as_ref().map(|(how, _)| *how);
            let tokens = view.scale.to_tokens(text.tokens);
            if let Some(how) = how {
                report.shortened.push(ShortenedText {
                    message: text.message,
                    part: text.part,
                    name: text.shown_name().unwrap_or_default(),
                    how,
                    before: view.scale.to_tokens(text.before),
                    after: tokens,
                });
            }
            if let (Some(name), Some(cap)) = (&text.name, text.find_cap(view.policy)) {
                let used = report.caps.entry(name.clone()).or_default();
                used.cap = cap;
                used.tokens = used.tokens.max(tokens);
                used.cut += usize::from(how.is_some());
                used.kept += usize::from(how.is_none());
            }
            if view.item(text.message).is_pinned_system() {
                let system = &mut report.system;
                match how {
                    Some(Shortening::LeftOut) => system.left_out += 1,
                    Some(Shortening::Trimmed) => system.trimmed += 1,
                    _ => system.kept += usize::from(text.priority.is_some()),
                }
            }
        }
        report
    }

    pub fn count_shortened(&self, how: Shortening) -> usize {
        self.shortened.iter().filter(|it| it.how == how).count()
    }

    /// The entries of the `x-plimsoll-actions` header.
    pub(in crate::guard) fn header_words(&self) -> impl Iterator<Item = String> {
        let all = [Shortening::Capped, Shortening::LeftOut, Shortening::Trimmed];
        let counted = all.map(|how| (how, self.count_shortened(how)));
        let done = counted.into_iter().filter(|(_, count)| *count > 0);
        done.map(|(how, count)| format!("{}={count}", how.to_string().replace(' ', "-")))
    }

    pub fn has_content(&self) -> bool {
        let system = &self.system;
        let in_system = system.kept + system.left_out + system.trimmed;
        in_system + self.caps.len() + self.left_out_elsewhere() > 0 || system.is_over_limit()
    }

    /// Texts left out of messages other than system messages.
    fn left_out_elsewhere(&self) -> usize {
        let all = self.count_shortened(Shortening::LeftOut);
        all.saturating_sub(self.system.left_out)
    }

    /// A digest of the figures in the log; 0 without content.
    pub(in crate::guard) fn digest_figures(&self) -> u64 {
        if self.has_content() {
            xxh3_64(self.to_string().as_bytes()).max(1)
        } else {
            0
        }
    }
}

impl SystemUse {
    /// Whether the system text is over its share although all texts that may be cut are cut.
    pub const fn is_over_limit(&self) -> bool {
        self.tokens > self.limit
    }
}

/// For the log: configured names and numbers, nothing else.
impl fmt::Display for PriorityReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, used) in &self.caps {
            write!(out, "{name} {} of {} tokens ", used.tokens, used.cap)?;
            write!(out, "({} kept, {} cut); ", used.kept, used.cut)?;
        }
        let (used, left_out) = (&self.system, self.system.left_out);
        write!(out, "system text {} of {} tokens ", used.tokens, used.limit)?;
        write!(
            out,
            "({} kept, {left_out} left out, {} trimmed)",
            used.kept, used.trimmed
        )?;
        if let more @ 1.. = self.left_out_elsewhere() {
            write!(out, "; {more} texts of other messages left out")?;
        }
        let [kept, all] = self.messages;
        write!(out, "; {kept} of {all} messages kept")
    }
}
