//! Rows 003.4, 003.5 and 003.7: switches, the model that summarises, and summaries that fail.

use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use super::{
    Meter, Program, Settings, messages_of, model_lines, say,
    summaries::{agent_of, small_window, work_and_summarise},
};
use crate::{
    compaction::{past_steps, sections, wait_for_summary, work_reply},
    support::{ModelReply, ModelRequest, NO_CATALOGUE, model::notice::summary_key, words},
};

/// 003.4: automatic summaries have a switch for all and one for each session, the request's own word before
/// both; off by default.
#[tokio::test]
async fn row_003_4_switches() {
    let meter = Meter::start(work_and_summarise).await;
    for (setting, by_default) in [
        ("", false),
        ("auto = true\n", true),
        ("auto = false\n", false),
    ] {
        let program = Program::start(&meter.up, &small_window(setting)).await;
        let about = program.get("/plimsoll/api/about").await.json();
        assert_eq!(about["compaction"]["auto"], by_default);
        for (session, request) in [
            ("follow", ""),
            ("on", ""),
            ("off", ""),
            ("off", "on"),
            ("on", "off"),
        ] {
            let mut agent = agent_of(&program, &format!("{session} {request}"), 12);
            meter.set_tokens(5_000);
            let first = agent.step().await;
            assert!(!first.has_action("compacting"));
            let body = json!({"auto_compact": session}).to_string();
            let id = first.header("session").unwrap();
            program.command(Method::PATCH, id, "", &body).await;
            if !request.is_empty() {
                agent = agent.with("x-plimsoll-auto-compact", request);
            }
            meter.set_tokens(14_000);
            let second = agent.step().await;
            let expected = match (request, session) {
                ("on", _) | ("", "on") => true,
                ("off", _) | ("", "off") => false,
                _ => by_default,
            };
            let case = format!("{setting:?}, session {session}, request {request:?}");
            assert_eq!(second.has_action("compacting"), expected, "{case}");
            wait_for_summary(&agent, &second).await;
        }
    }
}

/// 003.4: the threshold is 0.4 to 0.9, else refused by name; up to 0.6 saves cost (成本优先), to 0.75 is
/// balanced (平衡模式), above keeps more (信息保留).
#[tokio::test]
async fn row_003_4_thresholds() {
    let meter = Meter::start(say).await;
    for (threshold, strategy, word) in [
        (0.4, "cost", "成本优先"),
        (0.6, "cost", "成本优先"),
        (0.61, "balanced", "平衡模式"),
        (0.75, "balanced", "平衡模式"),
        (0.76, "information", "信息保留"),
        (0.9, "information", "信息保留"),
    ] {
        let lines = format!("[compaction]\nthreshold = {threshold}\n");
        let program = Program::start(&meter.up, &model_lines(20_000, &lines)).await;
        let about = program.get("/plimsoll/api/about").await.json();
        assert_eq!(about["compaction"]["threshold"], threshold);
        assert_eq!(about["compaction"]["strategy"], strategy);
        let texts = program.get("/plimsoll/words.js").await;
        let line = format!("strategy_{strategy}: \"{word}\"");
        assert!(texts.text().contains(&line), "{line}");
    }
    for threshold in ["0.39", "0.91"] {
        let settings = Settings::new(&meter.up);
        settings.write(&format!("[compaction]\nthreshold = {threshold}\n"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command
            .arg("--config")
            .arg(&settings.file)
            .envs(NO_CATALOGUE);
        let refused = command.output().unwrap();
        assert!(!refused.status.success());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            said.contains("compaction.threshold") && said.contains(threshold),
            "{said}"
        );
    }
}

/// 003.5: a quicker model summarises, else the session's own; in pieces where its window is small.
#[tokio::test]
async fn row_003_5_summary_model() {
    let meter = Meter::start(work_and_summarise).await;
    let quick = Meter::start(work_and_summarise).await;
    let provider = format!(
        "[providers.quick]\nbase_url = \"http://{}/v1\"\nauth = \"none\"\nask_models = false\n\
         profile = \"openai\"\n",
        quick.up.address
    );
    for (model, window, pieces) in [
        (None, 0, 0),
        (Some("large"), 100_000, 1),
        (Some("small"), 5_000, 3),
    ] {
        let set = model.map_or(String::new(), |model| {
            format!(
                "model = \"quick/{model}\"\n{provider}[models.\"quick/{model}\"]\ncontext_length = {window}\n"
            )
        });
        let program =
            Program::start(&meter.up, &small_window(&format!("auto = true\n{set}"))).await;
        let before = (meter.up.count_requests(), quick.up.count_requests());
        let mut agent = agent_of(&program, "Find every leak.", 24);
        meter.set_tokens(14_000);
        let generation = agent.step().await;
        assert!(generation.has_action("compacting"), "{generation:?}");
        wait_for_summary(&agent, &generation).await;
        meter.set_tokens(5_000);
        assert!(agent.step().await.has_action("compacted"));
        let own = meter.up.count_requests() - before.0;
        let asked = quick.bodies().await.split_off(before.1);
        match model {
            None => assert_eq!((own, asked.len()), (3, 0), "its own model"),
            Some(model) => {
                assert_eq!(own, 2, "{model}");
                assert!(
                    asked.len() >= pieces && (pieces > 1 || asked.len() == 1),
                    "{model}: {}",
                    asked.len()
                );
                assert!(asked.iter().all(|body| body["model"] == model));
            }
        }
    }
}

/// A failing summary model, by what the conversation's task says.
fn fail(heard: &ModelRequest<'_>) -> ModelReply {
    let Some(key) = summary_key(heard.body) else {
        return work_reply(heard, heard.nth);
    };
    let text = heard.body["messages"].to_string();
    let has = |kind: &str| text.contains(&format!("It is {kind}."));
    if has("an error") {
        ModelReply::Fails(500, "internal_error")
    } else if has("empty") {
        ModelReply::text("")
    } else if has("without a shape") {
        ModelReply::text("I have mended the last leak. Shall I paint her, too?")
    } else if has("too long") {
        ModelReply::text(&format!(
            "<summary key=\"{key}\">{}</summary>",
            words(9_000, 1)
        ))
    } else if has("refused") {
        ModelReply::Fails(400, "invalid_request")
    } else {
        ModelReply::text(&sections(&key, 0))
    }
}

/// 003.7: where a summary fails (error, empty, no shape, too long, refused) the conversation is trimmed and
/// goes on; it is not asked for again at once.
#[tokio::test]
async fn row_003_7_failed_summaries() {
    let meter = Meter::start(fail).await;
    for kind in [
        "an error",
        "empty",
        "without a shape",
        "too long",
        "refused",
    ] {
        let program = Program::start(&meter.up, &small_window("auto = true\n")).await;
        let before = meter.up.count_requests();
        let mut agent = agent_of(&program, &format!("It is {kind}."), 20);
        meter.set_tokens(14_000);
        let first = agent.step().await;
        assert!(first.has_action("compacting"), "{kind}: {first:?}");
        let session = wait_for_summary(&agent, &first).await;
        assert_eq!(session["summaries"], 0, "{kind}");
        assert_eq!(session["summary"], Value::Null, "{kind}");
        assert_eq!(session["summary_failures"], 1, "{kind}");
        // It goes on, and is trimmed once it is too long.
        let mut more = past_steps(40);
        agent.messages.extend(more.split_off(40));
        let next = agent.step().await;
        assert!(next.action("dropped").is_some(), "{kind}: {next:?}");
        let sent = meter.last_body();
        assert!(
            messages_of(&sent).len() < agent.messages.len() - 2,
            "{kind}"
        );
        for generation in agent.steps(2).await {
            assert!(!generation.has_action("compacting"), "{kind}");
        }
        let bodies = meter.bodies().await.split_off(before);
        let asked = bodies
            .iter()
            .filter(|body| summary_key(body).is_some())
            .count();
        assert_eq!((asked, bodies.len()), (1, 5), "{kind}");
    }
}
