//! Rows 000.1 to 000.6: usage, windows, ratios and levels.

use serde_json::{Value, json};

use super::{Meter, Program, header, model_lines, request_of, say, user};
use crate::support::{Agent, ScriptedProvider, Settings, answer, model::dialect::ANSWER_TOKENS};

/// 000.1: prompt and completion tokens of each generation are the provider's own, or unavailable; they
/// stand in headers, session and log, at a stream's end, and are kept after kill -9.
#[tokio::test]
async fn row_000_1_usage_is_recorded_and_kept() {
    let meter = Meter::start(say).await;
    let mut program = Program::start(&meter.up, &model_lines(200_000, "")).await;
    let mut agent = program.agent().with("te", "trailers");
    meter.set_tokens(1_234);
    let whole = agent.step().await;
    assert_eq!(whole.header("prompt-tokens"), Some("1234"));
    assert_eq!(whole.header("health-from"), Some("response"));
    let mut agent = agent.set("stream", true);
    meter.set_tokens(2_345);
    let streamed = agent.step().await;
    // The head has those of the answer before, the end its own.
    assert_eq!(header(&streamed.answer, "prompt-tokens"), "1234");
    assert_eq!(header(&streamed.answer, "health-from"), "previous");
    assert_eq!(streamed.header("prompt-tokens"), Some("2345"));
    let trailers = streamed.answer.trailers.as_ref().unwrap();
    assert_eq!(trailers["x-plimsoll-prompt-tokens"], "2345");
    meter.set_tokens(0);
    let without = agent.step().await;
    assert_eq!(without.header("prompt-tokens"), Some("unknown"));

    let known = program.session(&without.answer).await;
    let counts = |point: &Value| {
        (
            point["prompt_tokens"].clone(),
            point["completion_tokens"].clone(),
        )
    };
    let points = known["points"].as_array().unwrap();
    let expected = [
        (json!(1_234), json!(ANSWER_TOKENS)),
        (json!(2_345), json!(ANSWER_TOKENS)),
        (Value::Null, Value::Null),
    ];
    assert_eq!(points.iter().map(counts).collect::<Vec<_>>(), expected);
    for tokens in [1_234, 2_345] {
        let words = format!("\"prompt_tokens\":{tokens}");
        let line = program.process.wait_for_line(&words).await;
        assert_eq!(line["completion_tokens"], ANSWER_TOKENS);
    }
    let line = program
        .process
        .wait_for_line("\"health\":\"unknown\"")
        .await;
    assert_eq!(
        (&line["prompt_tokens"], &line["completion_tokens"]),
        (&Value::Null, &Value::Null)
    );
    let program = program.kill_and_restart().await;
    assert_eq!(program.session(&without.answer).await, known);
}

/// 000.2: prompt, completion and total; the window from the settings, else from metadata: `context_length`,
/// else `input_length`.
#[tokio::test]
async fn row_000_2_totals_and_windows() {
    let list = json!({"data": [
        {"id": "m", "context_length": 300_000},
        {"id": "by-context", "context_length": 50_000, "input_length": 40_000},
        {"id": "by-input", "input_length": 40_000},
        {"id": "none"},
    ]});
    let completion = json!({
        "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Aye."}}],
        "usage": {"prompt_tokens": 1_234, "completion_tokens": 56, "total_tokens": 1_290},
    });
    let up = ScriptedProvider::start_answering(move |seen| {
        let body = if seen.line.starts_with("GET") {
            &list
        } else {
            &completion
        };
        vec![answer("200 OK", "", body.to_string())]
    })
    .await;
    let settings = Settings::new(&up);
    let lines = model_lines(200_000, "[models.\"up/set-input\"]\ninput_length = 30000\n");
    let text = settings
        .with_lines(&lines)
        .replace("ask_models = false", "ask_models = true");
    std::fs::write(&settings.file, text).unwrap();
    let program = Program::start_with(settings).await;
    // It waits for the provider's list.
    program.get("/v1/models").await;
    for (model, window) in [
        ("m", "200000"),
        ("up/set-input", "30000"),
        ("up/by-context", "50000"),
        ("up/by-input", "40000"),
        ("up/none", "unknown"),
    ] {
        let got = program
            .chat(&json!({"model": model, "messages": [user(model)]}))
            .await;
        assert_eq!(header(&got, "context-limit"), window, "{model}");
        let session = program.session(&got).await;
        let counts =
            ["prompt_tokens", "completion_tokens", "total_tokens"].map(|name| &session[name]);
        assert_eq!(counts, [1_234, 56, 1_290], "{model}");
        let window = window.parse::<u32>().ok();
        assert_eq!(session["context_limit"], json!(window), "{model}");
    }
}

/// 000.3: health is never estimated: without usage, or with one that is empty, zero, negative or text, the
/// level is unknown and the ratios are absent, never zero.
#[tokio::test]
async fn row_000_3_health_is_never_estimated() {
    let up = ScriptedProvider::start().await;
    let program = Program::start(&up, &model_lines(200_000, "")).await;
    for usage in [
        Value::Null,
        json!({}),
        json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
        json!({"prompt_tokens": -5, "completion_tokens": 3}),
        json!({"prompt_tokens": "1234", "completion_tokens": "5"}),
        json!("much"),
    ] {
        let choice = json!({"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Aye."}});
        let completion = json!({"choices": [choice], "usage": usage});
        up.script_next([answer("200 OK", "", completion.to_string())]);
        let got = program.chat(&request_of(&[user(&usage.to_string())])).await;
        assert_eq!(got.status, 200);
        assert_eq!(header(&got, "health"), "unknown", "{usage}");
        assert_eq!(header(&got, "prompt-tokens"), "unknown", "{usage}");
        for name in ["hard-util", "optimal-util"] {
            let name = format!("x-plimsoll-{name}");
            assert!(!got.headers.contains_key(&name), "{name} {usage}");
        }
        let session = program.session(&got).await;
        assert_eq!(session["health"], "unknown");
        for name in ["prompt_tokens", "total_tokens", "hard_util", "optimal_util"] {
            assert_eq!(session[name], Value::Null, "{name} {usage}");
        }
    }
}

/// 000.4: `hard = prompt / window`, `optimal = prompt / optimal_max_tokens`.
#[tokio::test]
async fn row_000_4_ratios() {
    let meter = Meter::start(say).await;
    let lines = model_lines(100_000, "optimal_max_tokens = 40000\n");
    let program = Program::start(&meter.up, &lines).await;
    for (tokens, hard, optimal) in [(25_000, "0.250", "0.625"), (90_001, "0.900", "2.250")] {
        meter.set_tokens(tokens);
        let got = program.agent().ask().await;
        assert_eq!(got.header("hard-util"), Some(hard));
        assert_eq!(got.header("optimal-util"), Some(optimal));
        let session = program.session(&got.answer).await;
        assert_eq!(session["hard_util"], tokens as f64 / 100_000.0);
        assert_eq!(session["optimal_util"], tokens as f64 / 40_000.0);
    }
}

/// The level of a first answer with so many prompt tokens.
async fn level_at(program: &Program, meter: &Meter, model: &str, tokens: u64) -> String {
    meter.set_tokens(tokens);
    let agent = Agent::bare(program.process.client()).set("model", model);
    let got = agent.says(&format!("At {tokens}?")).ask().await;
    got.header("health").unwrap().to_owned()
}

async fn assert_levels(program: &Program, meter: &Meter, model: &str, levels: &[(u64, &str)]) {
    for (tokens, level) in levels {
        assert_eq!(
            level_at(program, meter, model, *tokens).await,
            *level,
            "{model} at {tokens}"
        );
    }
}

/// 000.5: caution above 100,000, critical above floor(0.9 × window): 180,000 of 200,000 is caution, 180,001
/// critical.
#[tokio::test]
async fn row_000_5_default_limits() {
    let meter = Meter::start(say).await;
    let program = Program::start(&meter.up, &model_lines(200_000, "")).await;
    let levels = [
        (100_000, "healthy"),
        (100_001, "caution"),
        (180_000, "caution"),
        (180_001, "critical"),
    ];
    assert_levels(&program, &meter, "m", &levels).await;
    let listed = program.get("/v1/models/m").await.json();
    assert_eq!(listed["optimal_max_tokens"], 100_000);
    assert_eq!(listed["critical_max_tokens"], 180_000);
}

/// 000.5: each limit is settable for a model; an unknown window has no critical.
#[tokio::test]
async fn row_000_5_set_limits_and_unknown_windows() {
    let meter = Meter::start(say).await;
    let set = "optimal_max_tokens = 60000\ncritical_max_tokens = 150000\n";
    let program = Program::start(&meter.up, &model_lines(200_000, set)).await;
    let levels = [
        (60_000, "healthy"),
        (60_001, "caution"),
        (150_000, "caution"),
        (150_001, "critical"),
    ];
    assert_levels(&program, &meter, "m", &levels).await;
    let levels = [
        (100_000, "healthy"),
        (100_001, "caution"),
        (900_000, "caution"),
    ];
    assert_levels(&program, &meter, "up/of-an-unknown-window", &levels).await;
}

/// 000.5, departures: critical at 90 % of the budget where that is less; optimal at 80 % of the budget where
/// 100,000 would not lie under critical.
#[tokio::test]
async fn row_000_5_limits_of_a_small_budget() {
    let meter = Meter::start(say).await;
    let lines = model_lines(200_000, "[guard]\nmax_prompt_tokens = 100000\n");
    let program = Program::start(&meter.up, &lines).await;
    let (_, report) = program.fit(&request_of(&[user("How much?")])).await;
    let budget = report["budget_tokens"].as_u64().unwrap();
    assert!(budget <= 100_000);
    let (optimal, critical) = (budget * 80 / 100, budget * 90 / 100);
    let levels = [
        (optimal, "healthy"),
        (optimal + 1, "caution"),
        (critical, "caution"),
        (critical + 1, "critical"),
    ];
    assert_levels(&program, &meter, "m", &levels).await;
}

/// 000.6: four levels: healthy, caution, critical, unknown; in Chinese 充裕, 吃紧, 告急, 未知.
#[tokio::test]
async fn row_000_6_four_levels() {
    let meter = Meter::start(say).await;
    let set = "optimal_max_tokens = 60000\ncritical_max_tokens = 150000\n";
    let program = Program::start(&meter.up, &model_lines(200_000, set)).await;
    let levels = [
        (10_000, "healthy"),
        (70_000, "caution"),
        (160_000, "critical"),
        (0, "unknown"),
    ];
    assert_levels(&program, &meter, "m", &levels).await;
    let texts = program.get("/plimsoll/words.js").await;
    for (level, word) in [
        ("healthy", "充裕"),
        ("caution", "吃紧"),
        ("critical", "告急"),
        ("unknown", "未知"),
    ] {
        let line = format!("level_{level}: \"{word}\"");
        assert!(texts.text().contains(&line), "{line}");
    }
}
