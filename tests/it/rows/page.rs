//! Rows 000.10 and 003.6: the page, the API that it reads, and its events. A real browser opens it in
//! `tests/browser/`.

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{Meter, Program, model_lines, say};
use crate::{
    compaction::{completion, past_steps, sections, wait_for_summary},
    support::{
        ModelReply, ProviderStep, answer, full_body, model::notice::summary_key, within_time,
    },
};

/// A reader of the stream of events.
struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    async fn open(program: &Program) -> Self {
        let client = program.process.client();
        let request = client.request(Method::GET, "/plimsoll/api/events");
        let answer = client.begin(request.body(full_body("")).unwrap()).await;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self {
            body: answer.into_body(),
            text: String::new(),
        }
    }

    /// The next event of a session that is as wanted.
    async fn wait_for_session(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let told = block.strip_prefix("event: session\ndata: ");
                let told = told.map(|data| serde_json::from_str::<Value>(data).unwrap());
                self.text = rest.to_owned();
                if let Some(told) = told.filter(|told| wanted(told)) {
                    return told;
                }
            }
            let frame = within_time(self.body.frame()).await.expect("it goes on");
            let data = frame.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }
}

/// All files of the page, joined.
async fn page_text(program: &Program) -> String {
    let page = program.get("/plimsoll/").await;
    assert_eq!(page.status, 200);
    assert!(
        page.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
    let mut text = page.text().to_owned();
    for file in [
        "main.js",
        "colours.css",
        "gauge.css",
        "gauge.js",
        "list.css",
        "view.css",
        "session.js",
        "auto.js",
        "events.js",
        "api.js",
        "words.js",
    ] {
        let got = program.get(&format!("/plimsoll/{file}")).await;
        assert_eq!(got.status, 200, "{file}");
        text.push_str(got.text());
    }
    text
}

/// 000.10: an indicator with tokens, share and four colours, live, on a phone too.
#[tokio::test]
async fn row_000_10_indicator() {
    let meter = Meter::start(say).await;
    let set = "optimal_max_tokens = 60000\ncritical_max_tokens = 150000\n";
    let program = Program::start(&meter.up, &model_lines(200_000, set)).await;
    let page = page_text(&program).await;
    assert!(page.contains(r#"name="viewport" content="width=device-width"#));
    assert!(page.contains("@media (max-width") || page.contains("@media (width <"));
    for level in ["healthy", "caution", "critical", "unknown"] {
        assert!(
            page.contains(&format!("--fill-{level}: ")),
            "a colour of {level}"
        );
        assert!(page.contains(&format!("\"{level}\"")), "{level}");
    }
    let mut events = Events::open(&program).await;
    let mut agent = program.agent();
    for (tokens, level, share) in [
        (10_000, "healthy", json!(0.05)),
        (70_000, "caution", json!(0.35)),
        (160_000, "critical", json!(0.8)),
        (0, "unknown", Value::Null),
    ] {
        meter.set_tokens(tokens);
        agent.step().await;
        let told = events
            .wait_for_session(|told| told["health"] == level)
            .await;
        let reported = Some(tokens).filter(|tokens| *tokens > 0);
        assert_eq!(told["prompt_tokens"], json!(reported));
        assert_eq!(told["context_limit"], 200_000);
        assert_eq!(told["hard_util"], share, "{level}");
    }
}

/// 003.6: a panel with tokens, limit and share; compact now; a three-way switch; compacting.
#[tokio::test]
async fn row_003_6_panel() {
    let meter = Meter::start(|heard| match summary_key(heard.body) {
        Some(key) => ModelReply::Raw(vec![
            ProviderStep::Stall,
            answer("200 OK", "", completion(&sections(&key, 0))),
        ]),
        None => say(heard),
    })
    .await;
    let program = Program::start(&meter.up, &model_lines(20_000, "")).await;
    let page = page_text(&program).await;
    for part in [
        "button(\"compact\"",
        "auto_compact",
        "auto_follow",
        "auto_on",
        "auto_off",
        "compacting",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let mut events = Events::open(&program).await;
    let mut agent = program.agent();
    agent.messages.extend(past_steps(10));
    meter.set_tokens(6_000);
    let first = agent.step().await;
    let id = first.header("session").unwrap().to_owned();
    let told = program.session(&first.answer).await;
    assert_eq!(told["prompt_tokens"], 6_000);
    assert_eq!(told["context_limit"], 20_000);
    assert_eq!(told["hard_util"], 0.3);
    for to in ["on", "off", "follow"] {
        let body = json!({"auto_compact": to}).to_string();
        let told = program.command(Method::PATCH, &id, "", &body).await;
        assert_eq!(told["auto_compact"], to);
        events
            .wait_for_session(|told| told["auto_compact"] == to)
            .await;
    }
    let told = program.command(Method::POST, &id, "/compact", "").await;
    assert_eq!(told["compact_pending"], true);
    let next = agent.step().await;
    assert!(next.has_action("compacting"), "{next:?}");
    let told = events
        .wait_for_session(|told| told["compacting"] == true)
        .await;
    assert_eq!(told["id"], id);
    meter.up.release_stalled();
    let told = wait_for_summary(&agent, &next).await;
    assert_eq!(told["compacting"], false);
    assert!(agent.step().await.has_action("compacted"));
}
