//! What caps and shares did with the texts of a request, for headers, the log and commands.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::prompt_text::PromptText;
use crate::guard::view::RequestView;

/// All of it. Empty where nobody annotated anything and system text is within its share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityReport {
    pub shortened: Vec<ShortenedText>,
    /// By the names in the settings that stand in the request.
    pub caps: BTreeMap<String, CapUse>,
    pub system: SystemUse,
    /// It is not what the log was last told.
    pub new: bool,
    /// A text that was sent before is left out from this request on, because the prompt was too large.
    pub cut: bool,
}

/// A text that goes out as another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShortenedText {
    pub message: usize,
    /// Its place among the parts of the message.
    pub part: Option<usize>,
    /// As it may be shown; empty without one.
    pub name: String,
    pub how: Shortening,
    /// Raw tokens.
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
    /// A placeholder stands for it.
    #[serde(rename = "left out")]
    LeftOut,
    /// Cut although nobody annotated it.
    Trimmed,
}

/// What the texts of one name take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapUse {
    /// What each of them may have; raw tokens.
    pub cap: u32,
    /// The largest as it goes; raw tokens.
    pub tokens: u32,
    /// Texts that go whole, and those that do not.
    pub kept: usize,
    pub cut: usize,
}

/// What system text takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemUse {
    /// As it goes, and what it may have; raw tokens.
    pub tokens: u32,
    pub limit: u32,
    /// Annotated texts that go whole, or as far as their caps let them.
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
        pieces: impl Iterator<Item = &'p PromptText>,
    ) -> Self {
        let mut texts = Self::default();
        for piece in pieces {
            let how = piece.with.as_ref().map(|(how, _)| *how);
            if let Some(how) = how {
                texts.shortened.push(ShortenedText {
                    message: piece.message,
                    part: piece.part,
                    name: piece.shown_name().unwrap_or_default(),
                    how,
                    before: piece.before,
                    after: piece.tokens,
                });
            }
            if let (Some(name), Some(&cap)) = (&piece.name, piece.find_cap(view.policy)) {
                let used = texts.caps.entry(name.clone()).or_default();
                used.cap = cap;
                used.tokens = used.tokens.max(piece.tokens);
                *(if how.is_some() {
                    &mut used.cut
                } else {
                    &mut used.kept
                }) += 1;
            }
            if view.item(piece.message).author.is_system() {
                let system = &mut texts.system;
                match how {
                    Some(Shortening::LeftOut) => system.left_out += 1,
                    Some(Shortening::Trimmed) => system.trimmed += 1,
                    _ if piece.priority.is_some() => system.kept += 1,
                    _ => {}
                }
            }
        }
        texts
    }

    /// How many were shortened in that way.
    pub fn count_shortened(&self, how: Shortening) -> usize {
        self.shortened.iter().filter(|it| it.how == how).count()
    }

    /// For the header of what was done.
    pub(in crate::guard) fn header_words(&self) -> impl Iterator<Item = String> {
        let all = [Shortening::Capped, Shortening::LeftOut, Shortening::Trimmed];
        let counted = all.map(|how| (how, self.count_shortened(how)));
        let done = counted.into_iter().filter(|(_, count)| *count > 0);
        done.map(|(how, count)| format!("{}={count}", how.to_string().replace(' ', "-")))
    }

    /// Whether there is anything to tell of.
    pub fn has_content(&self) -> bool {
        let system = &self.system;
        let annotated = system.kept + system.left_out + system.trimmed > 0;
        annotated
            || !self.caps.is_empty()
            || system.is_over_limit()
            || self.left_out_elsewhere() > 0
    }

    /// Texts left out of messages that are no system messages.
    fn left_out_elsewhere(&self) -> usize {
        self.count_shortened(Shortening::LeftOut)
            .saturating_sub(self.system.left_out)
    }

    /// Stands for what is told, numbers of tokens apart, which may change with every request; 0 for
    /// nothing.
    pub(in crate::guard) fn digest_counts(&self) -> u64 {
        if !self.has_content() {
            return 0;
        }
        let system = &self.system;
        let counts = (
            system.kept,
            system.left_out,
            system.trimmed,
            system.is_over_limit(),
        );
        let mut told = format!("{counts:?} {}", self.left_out_elsewhere());
        for (name, used) in &self.caps {
            told.push_str(&format!("{name:?} {} {} {}", used.cap, used.kept, used.cut));
        }
        xxh3_64(told.as_bytes()).max(1)
    }
}

impl SystemUse {
    /// It has more than its share all the same.
    pub const fn is_over_limit(&self) -> bool {
        self.tokens > self.limit
    }
}

/// For a sentence of the log: names from the settings and numbers, nothing else.
impl fmt::Display for PriorityReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, used) in &self.caps {
            let CapUse {
                cap,
                tokens,
                kept,
                cut,
            } = used;
            write!(
                out,
                "{name} {tokens} of {cap} tokens ({kept} kept, {cut} cut); "
            )?;
        }
        let SystemUse {
            tokens,
            limit,
            kept,
            left_out,
            trimmed,
        } = self.system;
        write!(
            out,
            "system text {tokens} of {limit} tokens ({kept} kept, {left_out} left out, {trimmed} trimmed)"
        )?;
        match self.left_out_elsewhere() {
            0 => Ok(()),
            more => write!(out, "; {more} texts of other messages left out"),
        }
    }
}
