//! Rows 004.1 to 004.4: named parts, caps, shares, and what the log tells of them.

use serde_json::{Value, json};

use super::{
    Meter, Program,
    cuts::{assert_sliding_window, chat_of_one_kind},
    estimate::{PROSE, figures},
    header, kept_places, lines_with, messages_of, model_lines, request_of, said, say, user,
};
use crate::support::{count::TokenCounter, words};

const PRIORITIES: [&str; 4] = ["low", "medium", "high", "critical"];

fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

/// System text with a name and a priority.
fn part(name: &str, priority: &str, text: &str) -> Value {
    json!({"role": "system", "content": text, "plimsoll": {"name": name, "priority": priority}})
}

/// 004.1: named parts have a priority critical, high, medium, low, those of system text and of the user's; low
/// goes first, critical last.
#[tokio::test]
async fn row_004_1_priorities() {
    let meter = Meter::start(say).await;
    let lines = model_lines(12_000, "[guard]\nsystem_share = 0.9\n");
    let program = Program::start(&meter.up, &lines).await;
    let mut stages = Vec::new();
    for tokens in [1_200, 2_000, 3_000, 4_400] {
        let text = |nth: usize| words(tokens, nth);
        // The order in the request does not matter.
        let listed = [3, 0, 2, 1];
        let mut messages: Vec<_> = listed
            .map(|at| part(PRIORITIES[at], PRIORITIES[at], &text(at)))
            .into();
        let note = |at: usize| json!({"name": PRIORITIES[at], "priority": PRIORITIES[at]});
        let mut parts: Vec<_> = listed
            .map(|at| json!({"type": "text", "text": text(4 + at), "plimsoll": note(at)}))
            .into();
        parts.push(json!({"type": "text", "text": "What is it?"}));
        messages.push(json!({"role": "user", "content": parts}));
        let got = program.chat(&request_of(&messages)).await;
        let sent = meter.last_body();
        let texts = sent["messages"].to_string();
        assert!(
            !texts.contains("plimsoll\""),
            "no annotation reaches the provider"
        );
        assert!(texts.contains("What is it?"));
        let gone = |at: &usize| !texts.contains(&text(*at));
        let gone: Vec<usize> = (0..8).filter(gone).collect();
        let count = |priority: usize| gone.iter().filter(|at| **at % 4 == priority).count();
        let counts = [count(0), count(1), count(2), count(3)];
        // A higher one goes only where all lower ones are gone.
        for priority in 1..4 {
            assert!(
                counts[priority] == 0 || counts[priority - 1] == 2,
                "{tokens}: {counts:?}"
            );
        }
        assert_eq!(counts[3], 0, "critical ones stay");
        let actions = match gone.len() {
            0 => "none".to_owned(),
            left_out => format!("left-out={left_out}"),
        };
        // Long system text may leave little for the answer, which is said beside it.
        let said = header(&got, "actions");
        let words = said.split(", ").filter(|it| !it.starts_with("reserve="));
        let words: Vec<_> = words.collect();
        let said = if words.is_empty() {
            "none".to_owned()
        } else {
            words.join(", ")
        };
        assert_eq!(said, actions);
        stages.push(counts);
    }
    assert_eq!(stages[0], [0; 4], "nothing goes while it fits");
    assert!(stages[1][0] > 0 && stages[1][1] == 0, "{stages:?}");
    assert!(stages[2][1] > 0, "{stages:?}");
    assert!(stages[3][2] > 0, "{stages:?}");
}

/// Tokens of a text, as the provider counts it.
fn count(text: &str) -> u64 {
    TokenCounter::o200k().text(text)
}

#[track_caller]
fn assert_within(name: &str, tokens: u64, cap: u64) {
    let (least, most) = (cap * 95 / 100, cap * 105 / 100);
    assert!(
        (least..=most).contains(&tokens),
        "{name}: {tokens} tokens of {cap}"
    );
}

/// About so many bytes of prose.
fn prose(bytes: usize) -> String {
    PROSE.repeat(bytes.div_ceil(PROSE.len()))[..bytes].to_owned()
}

/// Prose, and every kind of text with figures; about so many bytes.
fn kinds(bytes: usize) -> Vec<(&'static str, String)> {
    let mut kinds = figures(bytes);
    kinds.push(("prose", prose(bytes)));
    kinds
}

const GPT_4O: &str =
    "profile = \"openai\"\n[models.\"gpt-4o\"]\nprovider = \"up\"\ncontext_length = 200000\n";

/// Starts it with these lines of `[guard]`, and asks `gpt-4o`; the request as the provider gets it.
async fn sent_with(guard: &str, messages: &[Value]) -> Value {
    let meter = Meter::start(say).await;
    let program = Program::start(&meter.up, &format!("{GPT_4O}[guard]\n{guard}")).await;
    let mut body = request_of(messages);
    body["model"] = "gpt-4o".into();
    program.fit(&body).await.0
}

/// 004.2: caps for schema, static context and the whole conversation: `light` 4,000, 12,000, 8,000; `standard`
/// 4,000, 16,000, 12,000; `complex` 6,000, 20,000, 16,000; own caps; in the provider's tokens, within 5 %.
#[tokio::test]
async fn row_004_2_caps_in_the_providers_tokens() {
    for (preset, schema, context) in [
        ("light", 4_000, 12_000),
        ("standard", 4_000, 16_000),
        ("complex", 6_000, 20_000),
    ] {
        let guard = format!("preset = \"{preset}\"\n");
        let meter = Meter::start(say).await;
        let program = Program::start(&meter.up, &format!("{GPT_4O}[guard]\n{guard}")).await;
        for (kind, text) in kinds(120_000) {
            for (name, cap) in [("schema", schema), ("static_context", context)] {
                let messages = [part(name, "critical", &text), user("What is it?")];
                let mut body = request_of(&messages);
                body["model"] = "gpt-4o".into();
                let (sent, _) = program.fit(&body).await;
                let sent = messages_of(&sent)[0]["content"].as_str().unwrap();
                assert_within(&format!("{preset}, {name}, {kind}"), count(sent), cap);
            }
        }
    }
}

/// 004.2: the same bounds hold for prose; the whole prompt is bounded; caps of one's own.
#[tokio::test]
async fn row_004_2_presets_and_own_caps() {
    let text = prose(120_000);
    for (preset, caps) in [
        ("light", [4_000, 12_000, 8_000]),
        ("standard", [4_000, 16_000, 12_000]),
        ("complex", [6_000, 20_000, 16_000]),
    ] {
        let guard = format!("preset = \"{preset}\"\n");
        for (name, cap) in [("schema", caps[0]), ("static_context", caps[1])] {
            let messages = [part(name, "critical", &text), user("What is it?")];
            let sent = sent_with(&guard, &messages).await;
            let sent = messages_of(&sent)[0]["content"].as_str().unwrap();
            assert_within(&format!("{preset}, {name}"), count(sent), cap);
        }
        let mut messages = vec![system("You mend ships."), user("Begin.")];
        for nth in 0..40 {
            let text = |from: usize, bytes: usize| PROSE[(nth * 200 + from)..][..bytes].to_owned();
            messages.push(said(&text(0, 2_800)));
            messages.push(user(&text(50, 400)));
        }
        let sent = sent_with(&guard, &messages).await;
        let tokens = TokenCounter::o200k().request(sent.to_string().as_bytes());
        assert!(
            tokens <= caps[2] * 105 / 100,
            "{preset}: {tokens} of {}",
            caps[2]
        );
        assert!(tokens >= caps[2] / 2, "{preset}: {tokens} of {}", caps[2]);
    }
    let messages = [part("manual", "critical", &text), user("What is it?")];
    let sent = sent_with("caps = { manual = 1500 }\n", &messages).await;
    let sent = messages_of(&sent)[0]["content"].as_str().unwrap();
    assert_within("a cap of one's own", count(sent), 1_500);
}

/// 004.3: system text has at most a third of the budget, where trimming it is set.
#[tokio::test]
async fn row_004_3_share_of_system_text() {
    let meter = Meter::start(say).await;
    let lines = model_lines(24_000, "[guard]\ntrim_system = true\n");
    let program = Program::start(&meter.up, &lines).await;
    let messages = [
        system(&prose(40_000)),
        system(&prose(20_000)),
        user("Go on."),
    ];
    let (sent, report) = program.fit(&request_of(&messages)).await;
    let third = report["budget_tokens"].as_u64().unwrap() / 3;
    let sent = messages_of(&sent);
    let texts = sent.iter().filter(|message| message["role"] == "system");
    let tokens: u64 = texts
        .map(|message| count(message["content"].as_str().unwrap()))
        .sum();
    assert!(
        tokens <= third * 105 / 100 && tokens > third * 3 / 4,
        "{tokens} of {third}"
    );
    assert_eq!(sent.last(), messages.last());
}

/// 004.3: the conversation has the rest, the newest first without a gap until the budget is reached
/// (`guard.order = "oldest"`).
#[tokio::test]
async fn row_004_3_newest_without_a_gap() {
    let meter = Meter::start(say).await;
    let lines = model_lines(24_000, "[guard]\ntrim_system = true\norder = \"oldest\"\n");
    let program = Program::start(&meter.up, &lines).await;
    let mut messages = chat_of_one_kind();
    messages[0] = system(&prose(60_000));
    let (sent, report) = program.fit(&request_of(&messages)).await;
    let budget = report["budget_tokens"].as_u64().unwrap();
    let first = messages_of(&sent)[0]["content"].as_str().unwrap();
    assert!(count(first) <= budget / 3 * 105 / 100);
    // The trimmed system text stands for the one that came.
    messages[0] = messages_of(&sent)[0].clone();
    let kept = kept_places(&messages, &sent);
    assert_sliding_window(&kept, messages.len());
    let tokens = TokenCounter::o200k().request(sent.to_string().as_bytes());
    assert!(tokens <= budget);
}

/// 004.4: the log tells, for each request whose figures changed, the tokens used of each cap, parts kept and
/// cut, and messages kept of all.
#[tokio::test]
async fn row_004_4_log_of_caps() {
    let meter = Meter::start(say).await;
    let lines = model_lines(
        200_000,
        "[guard]\npreset = \"complex\"\n[guard.caps]\nschema = 4000\n",
    );
    let program = Program::start(&meter.up, &lines).await;
    let mut messages = vec![part("schema", "high", ""), user("Begin.")];
    let mut expected = Vec::new();
    for (nth, (tokens, kept, cut)) in [(488, 1, 0), (2_600, 1, 0), (6_000, 0, 1)]
        .into_iter()
        .enumerate()
    {
        messages[0] = part("schema", "high", &words(tokens, 0));
        program.chat(&request_of(&messages)).await;
        let all = messages.len();
        expected.push((
            tokens,
            format!(" of 4000 tokens ({kept} kept, {cut} cut)"),
            format!("{all} of {all}"),
        ));
        messages.push(said(&format!("Answer {nth}.")));
        messages.push(user("Go on."));
    }
    let log = program.stop().await;
    let told = lines_with(&log, "schema");
    assert_eq!(told.len(), expected.len(), "{log}");
    let mut before = 0;
    for (line, (tokens, parts, kept)) in told.iter().zip(expected) {
        let text = line["message"].as_str().unwrap();
        assert!(text.contains(&parts), "{parts}: {text}");
        assert!(text.contains(&kept), "messages {kept}: {text}");
        let (_, used) = text.split_once("schema ").unwrap();
        let used: usize = used.split(' ').next().unwrap().parse().unwrap();
        assert!(
            used > before && used <= tokens * 105 / 100,
            "{used} of {tokens}"
        );
        before = used;
    }
}
