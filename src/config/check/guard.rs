//! The guard: sizes, shares and caps.

use std::collections::BTreeMap;

use super::Checker;
use crate::config::{ClearConfig, GuardConfig, Preset, file};

/// Room for the marker between head and tail of a truncated result.
const MARKER_CHARS: u64 = 100;

/// Characters of the name of a part.
const MAX_NAME_CHARS: usize = 64;

impl Checker<'_> {
    pub(super) fn guard(&mut self, written: &file::Guard) -> GuardConfig {
        const CHARS: u64 = 100_000_000;
        let head = self.size(
            &["guard", "truncate_head_chars"],
            written.truncate_head_chars,
            0..=CHARS,
            "it is what a truncated tool result keeps of its beginning, in characters",
        );
        let tail = self.size(
            &["guard", "truncate_tail_chars"],
            written.truncate_tail_chars,
            0..=CHARS,
            "it is what a truncated tool result keeps of its end, in characters",
        );
        let kept = written
            .truncate_head_chars
            .saturating_add(written.truncate_tail_chars)
            .saturating_add(MARKER_CHARS);
        let max_tool_result_chars = self.size(
            &["guard", "max_tool_result_chars"],
            written.max_tool_result_chars,
            kept.min(CHARS)..=CHARS,
            "it must hold truncate_head_chars, truncate_tail_chars and 100 for the marker between",
        );
        GuardConfig {
            enabled: written.enabled,
            max_tool_result_chars,
            truncate_head_chars: head,
            truncate_tail_chars: tail,
            reserve_tokens: self.within(
                &["guard", "reserve_tokens"],
                written.reserve_tokens,
                1..=10_000_000,
                "it is kept free for the answer, in tokens",
            ),
            clamp_max_tokens: written.clamp_max_tokens,
            low_water: written.low_water.map(|share| {
                let why = "it is the share of the window that a cut goes down to";
                self.within(&["guard", "low_water"], share, 0.3..=0.95, why)
            }),
            chars_per_token: self.within(
                &["guard", "chars_per_token"],
                written.chars_per_token,
                1.0..=8.0,
                "it is how many characters of Latin text make a token",
            ),
            max_prompt_tokens: self.max_prompt_tokens(written),
            usage: written.usage,
            clear: self.clear(written),
            preset: written.preset,
            caps: self.caps(written),
            system_share: written.system_share.map_or(
                // The layers of a preset bound system text already.
                written.preset.map_or(1.0 / 3.0, |_| 1.0),
                |share| {
                    let why = "it is the share of the budget that system text may take";
                    self.within(&["guard", "system_share"], share, 0.05..=0.9, why)
                },
            ),
            trim_system: written.trim_system,
        }
    }

    fn clear(&mut self, written: &file::Guard) -> ClearConfig {
        let at = self.within(
            &["guard", "clear_tools_at"],
            written.clear_tools_at,
            0.0..=1.0,
            "it is the share of the budget from which on old tool results are cleared, 0 for always",
        );
        let at_least = written.clear_at_least.map(|share| {
            let why = "it is the share of the budget that clearing frees at least";
            self.within(&["guard", "clear_at_least"], share, 0.02..=0.5, why)
        });
        let keep_rounds = self.within(
            &["guard", "keep_tool_rounds"],
            written.keep_tool_rounds,
            1..=1_000,
            "it is how many of the newest answered turns with tools keep their tool results",
        );
        let keep_steps = self.within(
            &["guard", "keep_tool_steps"],
            written.keep_tool_steps,
            1..=10_000,
            "it is how many of the newest steps keep their tool results",
        );
        for name in &written.exclude_tools {
            let stem = name.strip_suffix('*').unwrap_or(name);
            if name.is_empty() || stem.contains('*') {
                self.refuse(
                    &["guard", "exclude_tools"],
                    Some(format!("{name:?}")),
                    "must be a tool's name, or its beginning with one * at the end",
                );
            }
        }
        ClearConfig {
            enabled: written.clear_tools,
            at,
            at_least,
            keep_rounds,
            keep_steps,
            exclude: written.exclude_tools.clone(),
            inputs: written.clear_tool_inputs,
        }
    }

    /// The smaller of what is written and what the preset says.
    fn max_prompt_tokens(&mut self, written: &file::Guard) -> Option<u32> {
        let set = written.max_prompt_tokens.map(|tokens| {
            let why = "it caps the prompt whatever the window is, in tokens";
            let path = ["guard", "max_prompt_tokens"];
            self.within(&path, tokens, 1024..=u32::MAX, why)
        });
        let preset = written.preset.map(Preset::max_prompt_tokens);
        [set, preset].into_iter().flatten().min()
    }

    /// Those of the preset, and those that are written over them.
    fn caps(&mut self, written: &file::Guard) -> BTreeMap<String, u32> {
        let preset = written.preset.map(Preset::caps);
        let mut caps: BTreeMap<String, u32> = preset
            .into_iter()
            .flatten()
            .map(|(name, tokens)| (name.to_owned(), tokens))
            .collect();
        for (name, &tokens) in &written.caps {
            let path = ["guard", "caps", name];
            let why = "it is what a part of that name may have, in tokens";
            let tokens = self.within(&path, tokens, 64..=10_000_000, why);
            if name.is_empty() || name.chars().count() > MAX_NAME_CHARS {
                let message = format!("must be named by 1 to {MAX_NAME_CHARS} characters");
                self.refuse(&path, None, message);
            }
            caps.insert(name.clone(), tokens);
        }
        caps
    }
}
