//! A session as the API shows it.

use serde::Serialize;

use super::{SessionState, SessionView, history::HistoryPoint, state::PromptBreakdown};
use crate::{
    guard::injections::{InjectionContent, InjectionRecord},
    health::HealthLevel,
    recovery::{RecoveryClock, Reminder},
};

/// Who reads a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportReader {
    /// The account that the session belongs to.
    Owner,
    /// SECURITY: sees every session's numbers, and what was said in one only where the settings say so.
    Admin { show_content: bool },
    /// Somebody at this machine, who sees the numbers and changes nothing.
    Local,
}

/// A session in a list, and the beginning of what is told of one. What is unknown is `null`, never a
/// guess.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionOverview {
    pub id: String,
    pub generations: u32,
    pub messages: u32,
    pub model: String,
    pub provider: String,
    pub health: HealthLevel,
    /// Why the level is unknown, or never critical; see `health_reason`.
    pub health_reason: Option<&'static str>,
    pub prompt_tokens: Option<u32>,
    pub completion_tokens: Option<u32>,
    /// Prompt and completion tokens of the last generation; `null` where one of them is unknown.
    pub total_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Cached over prompt tokens of the last generation.
    pub cached_share: Option<f64>,
    /// The window in tokens; `null` where it is only assumed.
    pub context_limit: Option<u32>,
    /// Prompt sizes beyond which the level is caution and critical; `null` with the window.
    pub optimal_max_tokens: Option<u32>,
    pub critical_max_tokens: Option<u32>,
    pub hard_util: Option<f64>,
    pub optimal_util: Option<f64>,
    /// 1 before the first clear.
    pub course: u32,
    /// Where the session stands on its way to the next course: `calm`, `caution` or `critical`.
    pub recovery: &'static str,
    /// Generations left before a clear; `null` unless critical.
    pub countdown: Option<u32>,
    /// A new course was asked for through the API, and has not begun.
    pub clear_pending: bool,
    /// A summary was asked for through the API, and has not been begun.
    pub compact_pending: bool,
    /// `on`, `off`, or `follow` for as the settings say.
    pub auto_compact: &'static str,
    /// Why the switch of automatic compaction can do nothing now: `window_unknown`, or `running` while
    /// a summary is being made.
    pub auto_compact_off: Option<&'static str>,
    /// A summary is being made.
    pub compacting: bool,
    /// Seconds since 1970.
    pub updated_s: u64,
}

/// The body of `GET /plimsoll/api/sessions/{id}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionReport {
    #[serde(flatten)]
    pub overview: SessionOverview,
    /// Whether whoever asks may ask nothing of the session, since it is another key's.
    pub read_only: bool,
    /// Of the last generation, summed over all calls to the provider that it took.
    pub billed_prompt_tokens: Option<u32>,
    pub billed_completion_tokens: Option<u32>,
    /// The first message kept after the pinned start, counted without system messages, where
    /// something is folded.
    pub folded_until: Option<u32>,
    /// Tool results that are held to a limit of their own.
    pub tightened: usize,
    /// What the last request was made of, in estimated tokens; `null` where the guard did not look.
    pub made_of: Option<PromptBreakdown>,
    /// The course of the session, oldest first; of a long one, every so many generations.
    pub points: Vec<HistoryPoint>,
    /// Summaries taken over so far, and what failed since the last one.
    pub summaries: u32,
    pub summary_failures: u32,
    /// The one in use; `null` without one, and where texts are not shown.
    pub summary: Option<String>,
    pub reminder_count: usize,
    /// What the model keeps for itself, oldest first; `null` where texts are not shown.
    pub reminders: Option<Vec<ReportedReminder>>,
    pub prompt_count: usize,
    /// What we said to the model in this course; `null` where texts are not shown.
    pub prompts: Option<Vec<ReportedPrompt>>,
}

/// A reminder, by the name that the model knows it by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedReminder {
    pub id: String,
    pub text: String,
}

/// A prompt of ours, where it stands in the conversation as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportedPrompt {
    /// The client's messages before it, system messages apart.
    pub place: u32,
    pub text: String,
}

/// What a list tells of a session.
pub fn build_overview(known: &SessionView) -> SessionOverview {
    let state = &known.state;
    let recovery = &state.recovery;
    let health = state.last_health();
    let compacting = state.compaction.job.is_some();
    let cached_share = match (state.cached_tokens, state.prompt_tokens) {
        (Some(cached), Some(prompt)) if prompt > 0 => Some(f64::from(cached) / f64::from(prompt)),
        _ => None,
    };
    let total_tokens = state
        .prompt_tokens
        .zip(state.completion_tokens)
        .map(|(prompt, completion)| prompt.saturating_add(completion));
    SessionOverview {
        id: state.session.to_string(),
        generations: state.generations,
        messages: state.messages,
        model: state.model.to_string(),
        provider: state.provider.to_string(),
        health: health.level,
        health_reason: health_reason(state),
        prompt_tokens: state.prompt_tokens,
        completion_tokens: state.completion_tokens,
        total_tokens,
        cached_tokens: state.cached_tokens,
        cached_share,
        context_limit: health.window,
        optimal_max_tokens: health.window.and(state.optimal_max_tokens),
        critical_max_tokens: health.window.and(state.critical_max_tokens),
        hard_util: health.hard_util,
        optimal_util: health.optimal_util,
        course: recovery.course_number(),
        recovery: match recovery.clock {
            RecoveryClock::Calm => "calm",
            RecoveryClock::Caution { .. } => "caution",
            RecoveryClock::Critical { .. } => "critical",
        },
        countdown: recovery.clock.countdown(),
        clear_pending: known.clear_pending,
        compact_pending: known.compact_pending,
        auto_compact: match known.auto_compact {
            Some(true) => "on",
            Some(false) => "off",
            None => "follow",
        },
        auto_compact_off: match state.window {
            None => Some("window_unknown"),
            Some(_) => compacting.then_some("running"),
        },
        compacting,
        updated_s: state.updated_s,
    }
}

/// Why the level of a session is unknown: it has no answer yet (`not_answered`), its provider reported no
/// usage (`no_usage`) or drops the front of prompts without saying so (`provider_truncates`). Where the
/// level is known, `window_unknown` says why it is never critical and no share of a window is told.
fn health_reason(state: &SessionState) -> Option<&'static str> {
    match (state.generations, state.prompt_tokens, state.health) {
        (0, ..) => Some("not_answered"),
        (_, None, _) => Some("no_usage"),
        (_, Some(_), HealthLevel::Unknown) => Some("provider_truncates"),
        _ => state.window.is_none().then_some("window_unknown"),
    }
}

/// What the API tells of a session.
pub fn build_report(known: &SessionView, reader: ReportReader) -> SessionReport {
    let state = &known.state;
    let recovery = &state.recovery;
    let notes = recovery.reminders.notes();
    let prompts: Vec<ReportedPrompt> = recovery.records.iter().filter_map(report_prompt).collect();
    let shown = match reader {
        ReportReader::Owner => true,
        ReportReader::Admin { show_content } => show_content,
        ReportReader::Local => false,
    };
    let summary = state.compaction.summary.as_ref();
    SessionReport {
        overview: build_overview(known),
        read_only: reader == ReportReader::Local,
        billed_prompt_tokens: state.billed_prompt_tokens,
        billed_completion_tokens: state.billed_completion_tokens,
        folded_until: state.guard.boundary(),
        tightened: state.guard.count_tightened(),
        made_of: state.made_of,
        points: state.history.points().to_vec(),
        summaries: state.compaction.made,
        summary_failures: state.compaction.failures,
        summary: summary.filter(|_| shown).map(|it| it.text.to_string()),
        reminder_count: notes.len(),
        reminders: shown.then(|| notes.iter().map(report_reminder).collect()),
        prompt_count: prompts.len(),
        prompts: shown.then_some(prompts),
    }
}

fn report_reminder(reminder: &Reminder) -> ReportedReminder {
    ReportedReminder {
        id: format!("r{}", reminder.id),
        text: reminder.text.to_string(),
    }
}

fn report_prompt(record: &InjectionRecord) -> Option<ReportedPrompt> {
    match &record.what {
        InjectionContent::Prompt(text) => Some(ReportedPrompt {
            place: record.place,
            text: text.to_string(),
        }),
        InjectionContent::Round(_)
        | InjectionContent::Calls { .. }
        | InjectionContent::Text { .. }
        | InjectionContent::Spoken { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        guard::injections::Course,
        recovery::{self, fixture::build_reminders},
        session::{Account, SessionId},
    };

    fn shown(state: SessionState, reader: ReportReader) -> Value {
        let known = SessionView {
            account: Account::from_bytes([0; 16]),
            state,
            clear_pending: false,
            compact_pending: false,
            auto_compact: None,
        };
        serde_json::to_value(build_report(&known, reader)).unwrap()
    }

    #[test]
    fn what_is_unknown_is_null() {
        let state = SessionState::new(SessionId::from_bytes([1; 16]));
        let body = shown(state, ReportReader::Owner);
        assert_eq!(body["health"], "unknown");
        assert_eq!(body["id"], "01".repeat(16));
        for unknown in [
            "prompt_tokens",
            "cached_share",
            "context_limit",
            "hard_util",
            "billed_prompt_tokens",
            "countdown",
        ] {
            assert!(body[unknown].is_null(), "{unknown}");
        }
    }

    #[test]
    fn ratios_are_of_the_last_generation() {
        let state = SessionState {
            window: Some(1_000),
            optimal_max_tokens: Some(800),
            prompt_tokens: Some(400),
            cached_tokens: Some(300),
            health: HealthLevel::Healthy,
            ..SessionState::new(SessionId::from_bytes([1; 16]))
        };
        let body = shown(state, ReportReader::Owner);
        assert_eq!(body["cached_share"], 0.75);
        assert_eq!(body["hard_util"], 0.4);
        assert_eq!(body["optimal_util"], 0.5);
    }

    #[test]
    fn an_unknown_level_has_its_reason() {
        let reason = |change: fn(&mut SessionState)| {
            let mut state = SessionState {
                generations: 1,
                window: Some(1_000),
                prompt_tokens: Some(400),
                health: HealthLevel::Healthy,
                ..SessionState::new(SessionId::from_bytes([1; 16]))
            };
            change(&mut state);
            shown(state, ReportReader::Owner)["health_reason"].clone()
        };
        assert!(reason(|_| {}).is_null());
        assert_eq!(reason(|state| state.generations = 0), "not_answered");
        assert_eq!(reason(|state| state.prompt_tokens = None), "no_usage");
        assert_eq!(reason(|state| state.window = None), "window_unknown");
        let cut = reason(|state| state.health = HealthLevel::Unknown);
        assert_eq!(cut, "provider_truncates");
    }

    /// In its third course, critical, with reminders `r0` and `r4`, a prompt and a round.
    fn recovering() -> SessionState {
        let at = |place, what| InjectionRecord { place, what };
        SessionState {
            recovery: recovery::RecoveryMemory {
                clock: RecoveryClock::Critical {
                    left: 0,
                    cut: false,
                    told: false,
                },
                reminders: build_reminders(&[(0, "run the tests"), (4, "port 8080")]),
                records: vec![
                    at(7, InjectionContent::Prompt("write it down".into())),
                    at(7, InjectionContent::Round(Vec::new())),
                ],
                course: Some(Course {
                    number: 3,
                    boundary: 5,
                    preface: "secret".into(),
                }),
                ..recovery::RecoveryMemory::default()
            },
            ..SessionState::new(SessionId::from_bytes([1; 16]))
        }
    }

    #[test]
    fn the_owner_sees_what_the_model_sees() {
        let body = shown(recovering(), ReportReader::Owner);
        assert_eq!(body["course"], 3);
        assert_eq!(body["recovery"], "critical");
        assert_eq!(body["countdown"], 0);
        let reminders = json!([
            {"id": "r0", "text": "run the tests"},
            {"id": "r4", "text": "port 8080"},
        ]);
        assert_eq!(body["reminders"], reminders);
        let prompts = json!([{"place": 7, "text": "write it down"}]);
        assert_eq!(body["prompts"], prompts);
    }

    #[test]
    fn the_administrator_sees_numbers_and_no_text() {
        let body = shown(
            recovering(),
            ReportReader::Admin {
                show_content: false,
            },
        );
        assert_eq!(body["course"], 3);
        assert_eq!(body["reminder_count"], 2);
        assert_eq!(body["prompt_count"], 1);
        assert!(body["reminders"].is_null() && body["prompts"].is_null());
        let whole = body.to_string();
        for said in ["tests", "8080", "write", "secret"] {
            assert!(!whole.contains(said), "{said} in {whole}");
        }
    }
}
