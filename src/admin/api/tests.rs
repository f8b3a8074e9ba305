//! The description has every path and every field of the API, and no other.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use super::{DESCRIPTION, PATHS, about, find_path, providers, session_list};
use crate::{
    format::chat,
    guard::{
        self, Policy,
        explain::{ExplainedModel, explain_plan, explain_unguarded},
        injections::Summary,
        profile::PROFILES,
    },
    health::HealthLevel,
    provider::WindowSource,
    session::{
        self, Account, ReportReader, SessionCommands, SessionId, SessionState, SessionView,
        history::HistoryPoint, state::PromptBreakdown,
    },
    telemetry::{metrics::Metrics, recent_latencies::RecentLatencies},
};

fn description() -> Value {
    serde_json::from_str(DESCRIPTION).unwrap()
}

/// A schema with the schemas that it refers to and extends.
fn schema<'a>(whole: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let mut parts = vec![schema];
    if let Some(name) = schema["$ref"].as_str() {
        let found = whole.pointer(name.strip_prefix('#').unwrap());
        return self::schema(whole, found.unwrap());
    }
    let several = schema["allOf"].as_array().into_iter().flatten();
    parts.extend(several.flat_map(|part| self::schema(whole, part)));
    parts
}

/// Asserts that every object in `value` has exactly the fields of its schema, all of them required.
fn conforms(whole: &Value, value: &Value, described: &Value, place: &str) {
    let parts = schema(whole, described);
    if let Some(choices) = parts.iter().find_map(|part| part["oneOf"].as_array()) {
        let is_null = |choice: &&Value| choice["type"] == "null";
        let chosen = choices
            .iter()
            .find(|choice| is_null(choice) == value.is_null());
        conforms(whole, value, chosen.unwrap(), place);
        return;
    }
    match value {
        Value::Object(fields) => {
            let properties = parts
                .iter()
                .filter_map(|part| part["properties"].as_object());
            let described: BTreeMap<_, _> = properties.flatten().collect();
            let names: BTreeSet<_> = described.keys().map(|name| name.as_str()).collect();
            let found: BTreeSet<_> = fields.keys().map(String::as_str).collect();
            assert_eq!(found, names, "{place}");
            let required = parts.iter().filter_map(|part| part["required"].as_array());
            let required = required.flatten().map(|name| name.as_str().unwrap());
            assert_eq!(required.collect::<BTreeSet<_>>(), names, "{place}");
            for (name, field) in fields {
                conforms(whole, field, described[name], &format!("{place}.{name}"));
            }
        }
        Value::Array(items) => {
            let described = parts.iter().find_map(|part| part.get("items"));
            let described = described.unwrap_or_else(|| panic!("{place} is described as no list"));
            for item in items {
                conforms(whole, item, described, place);
            }
        }
        simple => {
            let kinds = parts.iter().map(|part| &part["type"]);
            let kind = match simple {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::String(_) => "string",
                Value::Number(number) if number.is_f64() => "number",
                _ => "integer",
            };
            let fits = |found: &Value| {
                let words = [kind, if kind == "integer" { "number" } else { kind }];
                words.iter().any(|word| {
                    found == word
                        || found
                            .as_array()
                            .is_some_and(|all| all.contains(&json!(word)))
                })
            };
            assert!(kinds.clone().any(fits), "{place}: {simple}");
        }
    }
    for words in parts.iter().filter_map(|part| part["enum"].as_array()) {
        assert!(words.contains(value), "{place}: {value}");
    }
}

fn check(name: &str, value: &impl Serialize) {
    let whole = description();
    let described = json!({"$ref": format!("#/components/schemas/{name}")});
    let value = serde_json::to_value(value).unwrap();
    conforms(&whole, &value, &described, name);
}

#[test]
fn every_path_is_described_and_no_other() {
    let whole = description();
    let mut found = HashSet::new();
    for (described, methods) in whole["paths"].as_object().unwrap() {
        let real = described.replace("{id}", &"0".repeat(32));
        let real = &real[1..];
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ] {
            let name = method.as_str().to_lowercase();
            let entry = find_path(&method, real);
            let is_described = methods.get(&name).is_some();
            assert_eq!(entry.is_ok(), is_described, "{name} {described}");
            if let Ok((path, _)) = entry {
                assert_eq!(path, &described[1..]);
                found.insert(path);
            }
        }
    }
    assert_eq!(found, PATHS.map(|(path, _)| path).into());
}

/// A session with all values.
fn full_session() -> SessionView {
    let mut state = SessionState {
        window: Some(1_000),
        optimal_max_tokens: Some(800),
        critical_max_tokens: Some(900),
        prompt_tokens: Some(400),
        completion_tokens: Some(10),
        cached_tokens: Some(300),
        health: HealthLevel::Healthy,
        made_of: Some(PromptBreakdown::default()),
        recovery: crate::recovery::RecoveryMemory {
            reminders: crate::recovery::fixture::build_reminders(&[(0, "run the tests")]),
            records: vec![guard::injections::InjectionRecord {
                place: 7,
                what: guard::injections::InjectionContent::Prompt("write it down".into()),
            }],
            ..crate::recovery::RecoveryMemory::default()
        },
        ..SessionState::new(SessionId::from_bytes([1; 16]))
    };
    state.history.add_point(HistoryPoint {
        generation: 1,
        prompt_tokens: Some(400),
        cached_tokens: None,
        completion_tokens: Some(10),
        marks: session::history::Marks::default().with_mark(session::history::Marks::FOLDED, true),
    });
    state.compaction.summary = Some(Summary {
        boundary: 3,
        text: "done".into(),
    });
    let account = Account::from_bytes([1; 16]);
    let mut view = SessionView::from_state(account, state, &SessionCommands::default());
    view.name.task = Some("mend the mast".into());
    view.name.program = Some("claude-cli".into());
    view
}

#[test]
fn sessions_are_described() {
    let full = full_session();
    check(
        "Overview",
        &session::build_overview(&full, ReportReader::Owner),
    );
    let state = SessionState::new(SessionId::from_bytes([2; 16]));
    let empty = SessionView::from_state(full.account, state, &SessionCommands::default());
    let admin = ReportReader::Admin {
        show_content: false,
    };
    for (view, reader) in [
        (&full, ReportReader::Owner),
        (&empty, admin),
        (&empty, ReportReader::Local),
    ] {
        check("Report", &session::build_report(view, reader));
    }
    let page = session_list::SessionPage {
        sessions: vec![session::build_overview(&full, ReportReader::Local)],
        next: Some(100),
        of_other_keys: Some(3),
        hint: Some("send a key"),
    };
    check("Sessions", &page);
}

#[test]
fn providers_are_described() {
    let metrics = Metrics::default();
    let recent = RecentLatencies::default();
    recent.record_latency("up", Duration::from_millis(3));
    let known = providers::ProviderView {
        name: "up".into(),
        breaker: "closed",
        attempts: Some(providers::count_attempts(&metrics, "up")),
        retries: Some(1),
        fallbacks: Some(0),
        latency_ms: recent.latency_of_provider("up"),
        models: vec![providers::ModelView {
            id: "up/m".into(),
            context_length: Some(1_000),
            window_from: WindowSource::Learnt.api_name(),
        }],
    };
    let unknown = providers::ProviderView {
        name: "other".into(),
        breaker: "half_open",
        attempts: None,
        retries: None,
        fallbacks: None,
        latency_ms: None,
        models: vec![providers::ModelView {
            id: "other/m".into(),
            context_length: None,
            window_from: WindowSource::Assumed.api_name(),
        }],
    };
    let providers = vec![known, unknown];
    check("Providers", &providers::Providers { providers });
    let config = crate::config::Config::default();
    let about = about::describe_proxy(&config, ReportReader::Owner, false);
    check("About", &about);
    check("Settings", &about::settings_to_json(&config));
}

#[test]
fn reports_of_the_guard_are_described() {
    let mut messages = Vec::new();
    for turn in 0..12 {
        let id = format!("call_{turn}");
        let call = json!({"id": id, "type": "function",
            "function": {"name": "read", "arguments": "{}"}});
        let question = format!("look at {turn}: {}", "at length ".repeat(600));
        let result = "word ".repeat(8_000);
        messages.extend([
            json!({"role": "user", "content": question}),
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            json!({"role": "tool", "tool_call_id": id, "content": result}),
            json!({"role": "assistant", "content": "seen"}),
        ]);
    }
    messages.push(json!({"role": "user", "content": "go on"}));
    let body = json!({"model": "m", "messages": messages}).to_string();
    let settings = crate::config::Config::default().guard;
    let model = ExplainedModel {
        name: Some("m".into()),
        provider: Some("up".into()),
        window_source: "settings",
        ..ExplainedModel::default()
    };
    let policy = Policy::new(
        &PROFILES[0],
        16_000,
        crate::config::tokens::unknown_model(),
        &settings,
    );
    let conversation = chat::index_body(body.into()).unwrap();
    let (_, _, explained) = explain_plan(&conversation, &policy, model.clone());
    assert!(explained.removals.folded.is_some() && !explained.truncated.is_empty());
    assert!(explained.next.is_some_and(|next| next.folded.is_some()));
    check("FitReport", &explained);
    let unguarded = explain_unguarded(9, "no object".into(), &policy, model);
    check("FitReport", &unguarded);
}
