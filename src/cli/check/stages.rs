//! What is done to a conversation: guard, recovery, compaction.

use super::{list, or, row};
use crate::{
    compaction,
    config::{AddTools, Config, GuardConfig, Preset, UsageMode},
    guard::budget,
    provider::{Registry, Target},
    recovery::Language,
};

pub(super) fn guard(guard: &GuardConfig) -> Vec<[String; 2]> {
    let clear = &guard.clear;
    let low_water = or(guard.low_water, "0.5 for windows of up to 64k, else 0.7");
    let at_least = or(clear.at_least, "0.2 for windows of up to 64k, else 0.1");
    let usage = match guard.usage {
        UsageMode::AsSent => "as_sent",
        UsageMode::AsReceived => "as_received",
    };
    let caps = guard.caps.iter();
    let caps: Vec<_> = caps
        .map(|(name, tokens)| format!("{name} {tokens}"))
        .collect();
    vec![
        row("enabled", guard.enabled),
        row("max_tool_result_chars", guard.max_tool_result_chars),
        row("truncate_head_chars", guard.truncate_head_chars),
        row("truncate_tail_chars", guard.truncate_tail_chars),
        row("reserve_tokens", guard.reserve_tokens),
        row("clamp_max_tokens", guard.clamp_max_tokens),
        row("low_water", low_water),
        row("chars_per_token", guard.chars_per_token),
        row("max_prompt_tokens", or(guard.max_prompt_tokens, "no cap")),
        row("usage", usage),
        row("clear_tools", clear.enabled),
        row("clear_tools_at", clear.at),
        row("clear_at_least", at_least),
        row("keep_tool_rounds", clear.keep_rounds),
        row("keep_tool_steps", clear.keep_steps),
        row(
            "exclude_tools",
            list(clear.exclude.iter().map(String::as_str)),
        ),
        row("clear_tool_inputs", clear.inputs),
        row("preset", or(guard.preset.map(Preset::name), "none")),
        row("caps", list(caps.iter().map(String::as_str))),
        row("system_share", format!("{:.3}", guard.system_share)),
        row("trim_system", guard.trim_system),
    ]
}

pub(super) fn recovery(config: &Config) -> Vec<[String; 2]> {
    let recovery = &config.recovery;
    let language = match recovery.language {
        None => "each conversation's own",
        Some(Language::English) => "English",
        Some(Language::Chinese) => "Chinese",
    };
    let tools = match recovery.tools {
        AddTools::WhenDue => "from the first prompt on",
        AddTools::Always => "always",
        AddTools::Never => "never",
    };
    let folder = recovery.prompts_dir.as_ref();
    let prompts = or(folder.map(|path| path.display()), "built in");
    let mut rows = vec![
        row("enabled", recovery.enabled),
        row("language", language),
        row("tools", tools),
        row("caution_cadence", recovery.caution_cadence),
    ];
    for (name, model) in &config.models {
        if let Some(cadence) = model.caution_cadence {
            rows.push(row(&format!("  {name}"), cadence));
        }
    }
    rows.extend([
        row("critical_countdown", recovery.critical_countdown),
        row("max_rounds", recovery.max_rounds),
        row("max_tool_result_chars", recovery.max_tool_result_chars),
        row("prompts", prompts),
    ]);
    let models = config.models.iter();
    let models = models.filter(|(_, model)| model.recovery == Some(false));
    let clients = config.clients.iter().filter(|(_, client)| !client.recovery);
    for (kind, names) in [
        (
            "off for models",
            models.map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ),
        (
            "off for clients",
            clients.map(|(name, _)| name.as_str()).collect(),
        ),
    ] {
        if !names.is_empty() {
            rows.push(row(kind, names.join(", ")));
        }
    }
    rows
}

/// What makes summaries, and from how many tokens on.
pub(super) fn compaction(config: &Config, registry: &Registry) -> Vec<[String; 2]> {
    let compaction = &config.compaction;
    let auto = match compaction.auto {
        true => "on, unless a session or a request says otherwise",
        false => "off, unless a session or a request asks for it",
    };
    let [english, chinese] = compaction.strategy().names();
    let share = compaction.threshold;
    let model = compaction.model.as_deref();
    let mut rows = vec![
        row("auto", auto),
        row("threshold", format!("{share} ({english}, {chinese})")),
    ];
    for name in config.models.keys().filter(|name| !name.ends_with('*')) {
        let Ok(target) = registry.resolve(name, None) else {
            continue;
        };
        let from = match target.window.known() {
            None => "never by itself, since nobody knows its window".to_owned(),
            Some(_) => format!("from {} tokens on", threshold(&target, config)),
        };
        rows.push(row(&format!("  {name}"), from));
    }
    let wait = match compaction.wait.as_millis() {
        0 => "no request waits for one".to_owned(),
        ms => ms.to_string(),
    };
    rows.extend([
        row(
            "summarised by",
            model.unwrap_or("the conversation's own model"),
        ),
        row("max_summary_tokens", compaction.max_summary_tokens),
        row("timeout_ms", compaction.timeout.as_millis()),
        row("wait_ms", wait),
        row("max_running", compaction.max_running),
    ]);
    rows
}

/// Of a request that says nothing of its answer's length.
fn threshold(target: &Target, config: &Config) -> u32 {
    let window = target.window.tokens;
    let inside = target.provider.config.profile.answer_inside_window;
    let reserve = if inside {
        budget::default_reserve(window, &config.guard)
    } else {
        0
    };
    let budget = budget::Budget {
        window,
        reserve,
        tokens: window - reserve,
    };
    compaction::threshold(&budget, &config.compaction)
}
