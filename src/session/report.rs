//! A session as the API shows it. Unknown values are `null`, never guesses.

use serde_json::{Value, json};

use super::{SessionState, SessionView};
use crate::{
    guard::injections::InjectionContent,
    health::HealthLevel,
    recovery::{RecoveryClock, RecoveryHold},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportReader {
    /// The account that the session belongs to.
    Owner,
    /// SECURITY: sees the numbers of every session; texts only with `admin.show_content`.
    Admin { show_content: bool },
    /// Somebody at this machine: sees numbers, gives no commands.
    Local,
    /// A tab that the link of the start opened: sees numbers and titles, gives no commands.
    Link,
}

impl ReportReader {
    /// Whether the reader sees the texts of sessions.
    pub const fn sees_content(self) -> bool {
        matches!(self, Self::Owner | Self::Admin { show_content: true })
    }

    pub const fn sees_titles(self) -> bool {
        self.sees_content() || matches!(self, Self::Link)
    }
}

/// A session in a list: its stored state, and the name by which this process knows it.
pub fn build_overview(view: &SessionView, reader: ReportReader) -> Value {
    let mut overview = describe_state(view);
    let task = view.name.task.as_ref();
    overview["task"] = json!(task.filter(|_| reader.sees_titles()));
    overview["program"] = json!(view.name.program);
    overview
}

/// The stored state in a few figures. It is the same before and after a restart.
fn describe_state(view: &SessionView) -> Value {
    let state = &view.state;
    let recovery = &state.recovery;
    let health = state.last_health();
    let compacting = state.compaction.job.is_some();
    let cached = state.cached_tokens.zip(state.prompt_tokens);
    let cached = cached.filter(|(_, prompt)| *prompt > 0);
    let tokens = state.prompt_tokens.zip(state.completion_tokens);
    json!({
        "id": state.session.to_string(),
        "client": view.client,
        "generations": state.generations,
        "messages": state.messages,
        "model": state.model,
        "provider": state.provider,
        "format": state.format.name(),
        "health": health.level,
        "health_reason": health_reason(state),
        "prompt_tokens": state.prompt_tokens,
        "completion_tokens": state.completion_tokens,
        "total_tokens": tokens.map(|(prompt, completion)| prompt.saturating_add(completion)),
        "cached_tokens": state.cached_tokens,
        "cached_share": cached.map(|(cached, prompt)| f64::from(cached) / f64::from(prompt)),
        "context_limit": health.window,
        "optimal_max_tokens": health.window.and(state.optimal_max_tokens),
        "critical_max_tokens": health.window.and(state.critical_max_tokens),
        "hard_util": health.hard_util,
        "optimal_util": health.optimal_util,
        "left_out": state.made_of.map(|made| made.left_out),
        "cuts": state.history.list_cuts(),
        "course": recovery.course_number(),
        "recovery": match recovery.clock {
            RecoveryClock::Calm => "calm",
            RecoveryClock::Caution { .. } => "caution",
            RecoveryClock::Critical { .. } => "critical",
        },
        "countdown": recovery.clock.countdown(),
        "recovery_held": recovery.held.map(RecoveryHold::word),
        "fixed_percent": recovery.held.and_then(RecoveryHold::fixed_percent),
        "clear_pending": view.clear_pending,
        "compact_pending": view.compact_pending,
        "auto_compact": match view.auto_compact {
            Some(true) => "on",
            Some(false) => "off",
            None => "follow",
        },
        "auto_compact_off": match state.window {
            None => Some("window_unknown"),
            Some(_) => compacting.then_some("running"),
        },
        "compacting": compacting,
        "updated_s": state.updated_s,
    })
}

/// Why the level of a session is unknown: the session has no answer yet (`not_answered`), or its provider reported no
/// usage (`no_usage`) or truncates prompts silently (`provider_truncates`). If the level is known, `window_unknown`
/// says why it is never critical, and why there is no share of a window.
fn health_reason(state: &SessionState) -> Option<&'static str> {
    match (state.generations, state.prompt_tokens, state.health) {
        (0, ..) => Some("not_answered"),
        (_, None, _) => Some("no_usage"),
        (_, Some(_), HealthLevel::Unknown) => Some("provider_truncates"),
        _ => state.window.is_none().then_some("window_unknown"),
    }
}

/// The body of `GET /plimsoll/api/sessions/{id}`.
pub fn build_report(view: &SessionView, reader: ReportReader) -> Value {
    let state = &view.state;
    let show_content = reader.sees_content();
    let notes = state.recovery.reminders.notes().iter();
    // The model sees a reminder's id in this form.
    let notes = notes.map(|note| json!({"id": format!("r{}", note.id), "text": note.text}));
    let reminders: Vec<Value> = notes.collect();
    let records = state.recovery.records.iter();
    let prompts = records.filter_map(|record| match &record.what {
        InjectionContent::Prompt(text) => Some(json!({"place": record.place, "text": text})),
        _ => None,
    });
    let prompts: Vec<Value> = prompts.collect();
    let summary = state.compaction.summary.as_ref();
    let mut report = describe_state(view);
    let details = json!({
        "read_only": matches!(reader, ReportReader::Local | ReportReader::Link),
        "billed_prompt_tokens": state.billed_prompt_tokens,
        "billed_completion_tokens": state.billed_completion_tokens,
        "folded_until": state.guard.boundary(),
        "tightened": state.guard.count_tightened(),
        "made_of": state.made_of,
        "points": state.history.points(),
        "summaries": state.compaction.made,
        "summary_failures": state.compaction.failures,
        "summary": summary.filter(|_| show_content).map(|summary| summary.clone().write_out(state.format).text),
        "reminder_count": reminders.len(),
        "reminders": show_content.then_some(reminders),
        "prompt_count": prompts.len(),
        "prompts": show_content.then_some(prompts),
    });
    if let (Some(report), Value::Object(details)) = (report.as_object_mut(), details) {
        report.extend(details);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        guard::injections::{Course, InjectionRecord},
        recovery::{self, fixture::build_reminders},
        session::{Account, SessionId, SessionName},
    };

    fn report_json(state: SessionState, reader: ReportReader) -> Value {
        build_report(&view_of(state), reader)
    }

    fn view_of(state: SessionState) -> SessionView {
        SessionView {
            account: Account::from_bytes([0; 16]),
            client: "alice".into(),
            name: SessionName {
                task: Some("Mend the mast".into()),
                program: Some("claude-cli".into()),
            },
            state,
            clear_pending: false,
            compact_pending: false,
            auto_compact: None,
        }
    }

    #[test]
    fn a_title_is_in_lists_only_and_for_those_who_see_texts() {
        let view = view_of(recovering_state());
        let show_content = false;
        for (reader, task) in [
            (ReportReader::Owner, json!("Mend the mast")),
            (
                ReportReader::Admin { show_content: true },
                json!("Mend the mast"),
            ),
            (ReportReader::Link, json!("Mend the mast")),
            (ReportReader::Admin { show_content }, Value::Null),
            (ReportReader::Local, Value::Null),
        ] {
            let listed = build_overview(&view, reader);
            assert_eq!(
                (&listed["task"], &listed["program"]),
                (&task, &json!("claude-cli"))
            );
            // A report is what is stored, so that it is the same after a restart.
            let restarted = SessionView {
                name: SessionName::default(),
                ..view_of(recovering_state())
            };
            assert_eq!(
                build_report(&view, reader),
                build_report(&restarted, reader)
            );
        }
    }

    #[test]
    fn unknown_values_are_null() {
        let state = SessionState::new(SessionId::from_bytes([1; 16]));
        let body = report_json(state, ReportReader::Owner);
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
    fn shares_are_of_the_last_generation() {
        let state = SessionState {
            window: Some(1_000),
            optimal_max_tokens: Some(800),
            prompt_tokens: Some(400),
            cached_tokens: Some(300),
            health: HealthLevel::Healthy,
            ..SessionState::new(SessionId::from_bytes([1; 16]))
        };
        let body = report_json(state, ReportReader::Owner);
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
            report_json(state, ReportReader::Owner)["health_reason"].clone()
        };
        assert!(reason(|_| {}).is_null());
        assert_eq!(reason(|state| state.generations = 0), "not_answered");
        assert_eq!(reason(|state| state.prompt_tokens = None), "no_usage");
        assert_eq!(reason(|state| state.window = None), "window_unknown");
        let truncated = reason(|state| state.health = HealthLevel::Unknown);
        assert_eq!(truncated, "provider_truncates");
    }

    /// In its third course, critical, with reminders `r0` and `r4`, a prompt and a tool round.
    fn recovering_state() -> SessionState {
        let at = |place, what| InjectionRecord { place, what };
        SessionState {
            recovery: recovery::RecoveryMemory {
                clock: RecoveryClock::Critical {
                    left: 0,
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
    fn the_owner_sees_prompts_and_reminders() {
        let body = report_json(recovering_state(), ReportReader::Owner);
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
    fn others_see_numbers_and_no_text() {
        let show_content = false;
        for reader in [
            ReportReader::Admin { show_content },
            ReportReader::Local,
            ReportReader::Link,
        ] {
            let body = report_json(recovering_state(), reader);
            assert_eq!(body["course"], 3);
            assert_eq!(body["reminder_count"], 2);
            assert_eq!(body["prompt_count"], 1);
            assert!(body["reminders"].is_null() && body["prompts"].is_null());
            let body = body.to_string();
            for text in ["Mend", "tests", "8080", "write", "secret"] {
                assert!(!body.contains(text), "{text} in {body}");
            }
        }
    }

    #[test]
    fn an_administrator_who_may_see_texts_sees_them() {
        let show_content = true;
        let body = report_json(recovering_state(), ReportReader::Admin { show_content });
        assert_eq!(body["reminders"].as_array().unwrap().len(), 2);
    }
}
