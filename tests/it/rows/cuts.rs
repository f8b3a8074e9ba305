//! Rows 002.1 to 002.5: what is cut of results and conversations.

use serde_json::{Value, json};

use super::{
    Meter, Program, header, kept_places, lines_with, messages_of, model_lines, request_of, said,
    say, tool_step, user,
};
use crate::support::{ModelReply, ModelSetup, Process, Settings, count::TokenCounter, words};

/// A conversation whose only step has this result.
fn with_result(result: &str) -> Vec<Value> {
    let mut messages = vec![user("Read it.")];
    messages.extend(tool_step(0, &[result]));
    messages
}

fn sent_result(meter: &Meter) -> String {
    let body = meter.last_body();
    messages_of(&body)[2]["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The first and last characters of a text around the marker.
fn truncated(text: &str, head: usize, tail: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    let (start, end) = (&chars[..head], &chars[chars.len() - tail..]);
    format!(
        "{}\n... [{} characters truncated] ...\n{}",
        start.iter().collect::<String>(),
        chars.len() - head - tail,
        end.iter().collect::<String>()
    )
}

/// 002.1: a tool result of more than 50,000 Unicode characters becomes its first 2,000, the marker
/// `... [N characters truncated] ...`, its last 2,000; never half a character; each settable without a restart.
#[tokio::test]
async fn row_002_1_long_results() {
    let meter = Meter::start(say).await;
    let set = "[guard]\nmax_tool_result_chars = 50000\n";
    let mut program = Program::start(&meter.up, &model_lines(1_000_000, set)).await;
    for unit in ["a", "é", "漏", "⛵", "😀"] {
        let whole = unit.repeat(50_000);
        let got = program.chat(&request_of(&with_result(&whole))).await;
        assert_eq!(header(&got, "actions"), "none", "{unit}");
        assert!(
            sent_result(&meter) == whole,
            "{unit}: 50,000 characters are whole"
        );
        let long = format!("<{}>", unit.repeat(50_100));
        let body = request_of(&with_result(&long)).to_string();
        // As characters, and as escapes of halves of a pair.
        for body in [body.clone(), body.replace("😀", "\\ud83d\\ude00")] {
            let got = program.process.client().chat(body).await;
            assert_eq!(header(&got, "actions"), "truncated=1", "{unit}");
            assert!(
                sent_result(&meter) == truncated(&long, 2_000, 2_000),
                "{unit}"
            );
        }
    }
    // Where lines end nearby, whole lines of them.
    let lines: String = (0..3_000)
        .map(|nth| format!("{nth} planks are sound\n"))
        .collect();
    program.chat(&request_of(&with_result(&lines))).await;
    let sent = sent_result(&meter);
    let (head, rest) = sent.split_once("\n... [").unwrap();
    let (removed, tail) = rest.split_once(" characters truncated] ...\n").unwrap();
    assert!(lines.starts_with(head) && lines.ends_with(tail));
    for end in [head, tail] {
        assert!((1_950..=2_000).contains(&end.len()), "{end}");
    }
    assert_eq!(removed, (lines.len() - head.len() - tail.len()).to_string());
    let more = "[guard]\nmax_tool_result_chars = 9000\ntruncate_head_chars = 1000\ntruncate_tail_chars = 500\n";
    program.settings.write(&model_lines(1_000_000, more));
    program
        .process
        .wait_for_line("new settings are in force")
        .await;
    let whole = "x".repeat(9_000);
    program.chat(&request_of(&with_result(&whole))).await;
    assert!(sent_result(&meter) == whole);
    let long = format!("<{}>", "x".repeat(9_000));
    program.chat(&request_of(&with_result(&long))).await;
    assert!(sent_result(&meter) == truncated(&long, 1_000, 500));
}

/// 002.1, departure: unless set, what is at most an eighth of the window goes whole, up to 400,000 characters; lines that
/// look like what was asked for stay between head and tail, up to 4,000 characters; the same bytes in each request.
#[tokio::test]
async fn row_002_1_room_and_asked_lines() {
    let meter = Meter::start(say).await;
    let windows = "[models.large]\nprovider = \"up\"\ncontext_length = 1000000\n";
    let mut program = Program::start(&meter.up, &model_lines(200_000, windows)).await;
    let lines = |count: usize| -> String {
        let line = |nth: usize| format!("{nth} of the planks are sound and dry\n");
        (0..count).map(line).collect()
    };
    let of_model = |model: &str, messages: &[Value]| {
        let mut body = request_of(messages);
        body["model"] = model.into();
        body
    };
    // 81,000 characters are a fortieth of one million tokens, and at most an eighth of 200,000.
    let read = lines(2_200);
    assert!((75_000..85_000).contains(&read.len()), "{}", read.len());
    for model in ["large", "m"] {
        let got = program.chat(&of_model(model, &with_result(&read))).await;
        assert_eq!(header(&got, "actions"), "none", "{model}");
        assert!(sent_result(&meter) == read, "{model}");
    }
    // More than 400,000 characters never go whole.
    let most = lines(11_000);
    assert!(most.len() > 400_000);
    let got = program.chat(&of_model("large", &with_result(&most))).await;
    assert_eq!(header(&got, "actions"), "truncated=1");
    assert!(sent_result(&meter).chars().count() <= 4_100);
    // A log with one error, and what its call looked for.
    let log = [
        &lines(4_000),
        "error[E0308]: mismatched types\n  --> src/deck.rs:7:5\n",
        &lines(2_000),
        "the mizzen mast creaks\n",
        &lines(4_000),
    ]
    .concat();
    let mut messages = with_result(&log);
    messages[1]["tool_calls"][0]["function"]["arguments"] =
        r#"{"pattern": "mizzen\\s+mast"}"#.into();
    let got = program.chat(&of_model("m", &messages)).await;
    assert_eq!(header(&got, "actions"), "truncated=1");
    let first = sent_result(&meter);
    assert!(first.contains("\nerror[E0308]: mismatched types\n  --> src/deck.rs:7:5\n... ["));
    assert!(first.contains("] ...\nthe mizzen mast creaks\n... ["));
    assert_eq!(first.matches("characters truncated] ...").count(), 3);
    assert!(first.chars().count() <= 8_200);
    messages.extend([said("Aye."), user("And now?")]);
    program.chat(&of_model("m", &messages)).await;
    assert!(sent_result(&meter) == first);
    // Many such lines have 4,000 characters at most.
    let errors = "an error of the mast\n".repeat(20_000);
    program.chat(&of_model("m", &with_result(&errors))).await;
    let sent = sent_result(&meter).chars().count();
    assert!((7_500..=8_200).contains(&sent), "{sent}");
    // Any of the three settings makes the form that of the row.
    for set in [
        "truncate_head_chars = 2000",
        "truncate_tail_chars = 2000",
        "max_tool_result_chars = 50000",
    ] {
        let set = format!("{windows}[guard]\n{set}\n");
        program.settings.write(&model_lines(200_000, &set));
        program
            .process
            .wait_for_line("new settings are in force")
            .await;
        program.chat(&of_model("m", &messages)).await;
        assert_eq!(sent_result(&meter).matches("... [").count(), 1, "{set}");
    }
}

/// A chat of 40 messages of one kind, about 1,000 tokens each. They name files, and speak of those of earlier
/// messages again, so that some of the older ones seem worth more than newer ones.
pub(super) fn chat_of_one_kind() -> Vec<Value> {
    let mut messages = vec![
        json!({"role": "system", "content": "You mend ships."}),
        user("Begin."),
    ];
    for nth in 0..40_usize {
        let line = |at: usize| {
            let before = nth * 7 % (nth + 1);
            format!("src/deck_{nth}_{at}.rs is sound, and src/deck_{before}_{at}.rs too. ")
        };
        let text: String = (0..42).map(line).collect();
        messages.push(match nth % 2 {
            0 => said(&text),
            _ => user(&text),
        });
    }
    messages
}

/// 002.2: what does not fit into window less reserve is dropped, in whole groups; system and newest are kept,
/// the number is told; nothing is touched while it fits; a single message that is too long is kept as it is.
#[tokio::test]
async fn row_002_2_what_does_not_fit_is_dropped() {
    let meter = Meter::start(say).await;
    // Clearing, which comes before, is a row of its own.
    let lines = model_lines(12_000, "[guard]\nclear_tools = false\n");
    let program = Program::start(&meter.up, &lines).await;
    // It fits: not a byte is touched.
    let fits = request_of(&chat_of_one_kind()[..10]);
    let got = program.chat(&fits).await;
    assert_eq!(header(&got, "actions"), "none");
    assert_eq!(meter.up.last_request().body, fits.to_string().into_bytes());
    // It does not: whole steps go, and their number is told.
    let mut messages = chat_of_one_kind()[..2].to_vec();
    for nth in 0..30 {
        messages.extend(tool_step(nth, &[&words(300, nth), &words(300, nth + 50)]));
    }
    messages.push(said("Half of it is done."));
    messages.push(user("Then go on."));
    let got = program.chat(&request_of(&messages)).await;
    let sent = meter.last_body();
    let kept = kept_places(&messages, &sent);
    assert!(
        kept.starts_with(&[0, 1]) && kept.ends_with(&[messages.len() - 1]),
        "{kept:?}"
    );
    assert!(kept.len() < messages.len());
    for nth in 0..30 {
        let step: Vec<_> = (0..3)
            .map(|at| kept.contains(&(2 + nth * 3 + at)))
            .collect();
        assert!(step == [true; 3] || !step[0], "step {nth}: {step:?}");
    }
    assert!(TokenCounter::o200k().request(sent.to_string().as_bytes()) <= 12_000);
    let sent_calls = messages_of(&sent)
        .iter()
        .filter(|it| it["tool_calls"].is_array())
        .count();
    let sent_results = messages_of(&sent)
        .iter()
        .filter(|it| it["role"] == "tool")
        .count();
    assert_eq!(sent_results, sent_calls * 2);
    let dropped = header(&got, "actions")
        .split(", ")
        .find_map(|it| it.strip_prefix("dropped="));
    let dropped: usize = dropped.expect("the number is told").parse().unwrap();
    assert_eq!(messages.len() - kept.len(), dropped);
    // A single message is kept, however long it is.
    let single = request_of(&[user(&words(40_000, 0))]);
    program.chat(&single).await;
    assert_eq!(messages_of(&meter.last_body()), messages_of(&single));
}

/// The places that are kept are the first two, and the newest ones without a gap.
#[track_caller]
pub(super) fn assert_sliding_window(kept: &[usize], all: usize) {
    assert!(kept.starts_with(&[0, 1]), "system and task: {kept:?}");
    let newest = &kept[2..];
    assert!(
        newest.len() > 1 && newest.len() < all - 2,
        "{kept:?} of {all}"
    );
    let expected: Vec<_> = (all - newest.len()..all).collect();
    assert_eq!(newest, expected, "the newest ones without a gap");
}

/// 002.2: with `guard.order = "oldest"` the oldest go first, without a gap.
#[tokio::test]
async fn row_002_2_oldest_first() {
    let meter = Meter::start(say).await;
    let lines = model_lines(12_000, "[guard]\norder = \"oldest\"\n");
    let program = Program::start(&meter.up, &lines).await;
    let messages = chat_of_one_kind();
    program.chat(&request_of(&messages)).await;
    let kept = kept_places(&messages, &meter.last_body());
    assert_sliding_window(&kept, messages.len());
}

/// 002.3: a reserve of 8,192 that is set is 8,192; a client's cap is reserved as it is where clamping is off.
#[tokio::test]
async fn row_002_3_set_reserve_and_clients_cap() {
    let meter = Meter::start(say).await;
    let more = "[guard]\nreserve_tokens = 8192\nclamp_max_tokens = false\n";
    let program = Program::start(&meter.up, &model_lines(100_000, more)).await;
    let mut body = request_of(&[user("How much is free?")]);
    let (_, report) = program.fit(&body).await;
    assert_eq!(report["reserve_tokens"], 8_192);
    for cap in [4_000, 16_000, 30_000] {
        body["max_tokens"] = cap.into();
        let (fitted, report) = program.fit(&body).await;
        assert_eq!(report["reserve_tokens"], cap);
        assert_eq!(fitted["max_tokens"], cap);
        let budget = report["budget_tokens"].as_u64().unwrap();
        assert!(
            budget <= 100_000 - cap && budget > (100_000 - cap) * 98 / 100,
            "{budget}"
        );
    }
}

/// 002.3: the reserve by default: twice the largest answer, and not less than the least of 8,192, a
/// twenty-fourth of the window and the client's own cap (1,024 at the least); a reserve that is set is taken as
/// it is, up to half of the window.
#[tokio::test]
async fn row_002_3_default_reserve() {
    let meter = Meter::start(say).await;
    let reserve = async |window: u32, cap: Option<u32>, more: &str| {
        let program = Program::start(&meter.up, &model_lines(window, more)).await;
        let mut body = request_of(&[user("How much is free?")]);
        if let Some(cap) = cap {
            body["max_tokens"] = cap.into();
        }
        program.fit(&body).await.1["reserve_tokens"].clone()
    };
    for (window, cap, expected) in [
        (200_000, None, 8_192),
        (96_000, None, 4_000),
        (12_000, None, 1_024),
        (200_000, Some(2_000), 2_000),
    ] {
        assert_eq!(reserve(window, cap, "").await, expected, "{window} {cap:?}");
    }
    let set = "[guard]\nreserve_tokens = 8192\n";
    assert_eq!(reserve(20_000, None, set).await, 8_192);
}

/// 002.4: settable by file, environment and one request's header; a model's window can be overridden, a known
/// one's too; warnings with the tool's name and both sizes, and with how many messages went; no text of a
/// conversation in the log.
#[tokio::test]
async fn row_002_4_settings_and_warnings() {
    const SECRET_WORD: &str = "xyzzyplugh";
    let meter = Meter::start(say).await;
    let known = "[models.\"gpt-4o\"]\nprovider = \"up\"\ncontext_length = 9000\n";
    let guard = "[guard]\nmax_tool_result_chars = 30000\n";
    let settings = Settings::new(&meter.up);
    settings.write(&model_lines(100_000, &format!("{known}{guard}")));
    let with_environment = |chars: Option<&'static str>| {
        let file = settings.file.clone();
        Process::run(move |command| {
            command.arg("--config").arg(file);
            if let Some(chars) = chars {
                command.env("PLIMSOLL_GUARD__MAX_TOOL_RESULT_CHARS", chars);
            }
            command
        })
    };
    let long = format!("{SECRET_WORD} ").repeat(4_000);
    let body = request_of(&with_result(&long)).to_string();
    let result_of = |most: usize| {
        let sent = sent_result(&meter).chars().count();
        assert!(sent <= most && sent > 4_000, "{sent} of {most}");
    };
    // The file.
    let process = with_environment(None).await;
    let got = process.client().chat(body.clone()).await;
    assert_eq!(header(&got, "actions"), "truncated=1");
    result_of(30_000);
    // One request's header: untouched.
    let request = process.client().chat_request(body.clone());
    let (mut parts, upload) = request.into_parts();
    parts
        .headers
        .insert("x-plimsoll-guard", "off".parse().unwrap());
    process
        .client()
        .send(http::Request::from_parts(parts, upload))
        .await;
    assert_eq!(meter.up.last_request().body, body.clone().into_bytes());
    drop(process);
    // The environment wins over the file.
    let process = with_environment(Some("60000")).await;
    let got = process.client().chat(body.clone()).await;
    assert_eq!(header(&got, "actions"), "none");
    drop(process);
    let process = with_environment(Some("20000")).await;
    let got = process.client().chat(body).await;
    assert_eq!(header(&got, "context-limit"), "100000");
    let sizes = (long.chars().count(), sent_result(&meter).chars().count());

    // A known model's window, and what went of a conversation.
    let mut messages = vec![user("Begin.")];
    for nth in 0..30 {
        messages.push(said(&format!("{SECRET_WORD} {}", words(400, nth))));
        messages.push(user(&format!("{SECRET_WORD} {nth}")));
    }
    let got = process
        .client()
        .chat(json!({"model": "gpt-4o", "messages": messages}).to_string())
        .await;
    assert_eq!(header(&got, "context-limit"), "9000");
    let dropped = header(&got, "actions")
        .strip_prefix("dropped=")
        .expect("it was cut")
        .to_owned();
    process.signal("TERM");
    let (_, log) = process.wait_for_end().await;
    assert!(!log.contains(SECRET_WORD), "{log}");
    let warned = lines_with(&log, "was truncated");
    assert_eq!(warned.len(), 1, "{log}");
    assert_eq!(
        (&warned[0]["level"], &warned[0]["tool"]),
        (&json!("WARN"), &json!("read_file"))
    );
    assert_eq!(warned[0]["before_chars"], sizes.0);
    assert_eq!(warned[0]["after_chars"], sizes.1);
    let folded = lines_with(&log, "a conversation was folded");
    assert_eq!(folded.len(), 1, "{log}");
    assert_eq!(folded[0]["level"], "WARN");
    assert_eq!(folded[0]["messages"].to_string(), dropped);
}

/// 002.5: calls and results stay whole, parallel ones all or none; a result has at most the least of 30 % of
/// the window and 400,000 characters.
#[tokio::test]
async fn row_002_5_calls_and_results() {
    let up = ModelSetup::new(20_000)
        .start(|_| ModelReply::text("Aye."))
        .await;
    let large = "[models.large]\nprovider = \"up\"\ncontext_length = 2000000\n\
                 [guard]\nmax_tool_result_chars = 400000\n";
    let program = Program::start(&up.provider, &model_lines(20_000, large)).await;
    let mut agent = program.agent();
    for nth in 0..20 {
        let results: Vec<_> = (0..3)
            .map(|at| words(300 + 40 * at, nth * 3 + at))
            .collect();
        let results: Vec<_> = results.iter().map(String::as_str).collect();
        agent.messages.extend(tool_step(nth, &results));
        let done = agent.ask().await;
        // The strict model finds no call without its results, and none the other way round.
        up.assert_no_faults();
        assert!(nth < 19 || done.action("dropped").is_some() || done.action("cleared").is_some());
    }
    assert_eq!(up.overflows(), 0);
    let sent = up.bodies().await.pop().unwrap();
    for pair in messages_of(&sent)
        .windows(4)
        .filter(|pair| pair[0]["tool_calls"].is_array())
    {
        assert!(
            pair[1..].iter().all(|message| message["role"] == "tool"),
            "{pair:?}"
        );
    }
    // 30 % of the window.
    let result = words(9_000, 0);
    assert!(result.len() < 50_000);
    let (fitted, report) = program.fit(&request_of(&with_result(&result))).await;
    assert_eq!(report["actions"], "truncated=1");
    let sent = messages_of(&fitted)[2]["content"].as_str().unwrap();
    assert!(TokenCounter::o200k().text(sent) <= 6_000);
    // 400,000 characters.
    for (chars, actions) in [(400_000, "none"), (400_001, "truncated=1")] {
        let mut body = request_of(&with_result(&"a ".repeat(200_001)[..chars]));
        body["model"] = "large".into();
        let (fitted, report) = program.fit(&body).await;
        assert_eq!(report["actions"], actions, "{chars}");
        let sent = messages_of(&fitted)[2]["content"].as_str().unwrap();
        assert!(sent.chars().count() <= 400_000);
    }
}
