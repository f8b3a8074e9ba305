//! A login whose token is renewed keeps its session, and nobody else gets anything of it.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::Method;
use plimsoll::conversation::Format;
use serde_json::{Value, json};

use super::start_before;
use crate::support::{
    ClientAnswer, ProviderStep, ReceivedRequest, RunningProxy, ScriptedProvider, TunnelProxy,
    answer,
    answers::{client_tool, whole_answer},
    model_with_early_levels,
};

/// How the model's note ends.
const NOTE: &str = "lies at pier nine.";
/// Stands in the prompt that recovery adds.
const PROMPT: &str = "add_reminder";
/// A text that is too long for the window.
const LONG_RESULT: usize = 70_000;

/// A token of the account `account` of `user`, the `nth` of them. Its host knows it if it is `signed`.
fn make_token(account: &str, user: &str, nth: usize, signed: bool) -> String {
    let signature = if signed { "signed" } else { "forged" };
    let auth = json!({"chatgpt_account_id": account, "chatgpt_plan_type": "plus"});
    let claims = json!({"sub": user, "exp": nth, "https://api.openai.com/auth": auth});
    let claims = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("eyJhbGciOiJSUzI1NiJ9.{claims}.{signature}")
}

/// What the model writes down for a token.
fn write_note(token: &str) -> String {
    format!("The anchor of {token} {NOTE}")
}

/// Answers tokens that are signed. Asks for a reminder once it may, and says then what it read.
fn answer_login(seen: &ReceivedRequest) -> Vec<ProviderStep> {
    let token = seen.header("authorization").unwrap_or_default();
    let token = token.trim_start_matches("Bearer ");
    if !token.ends_with("signed") {
        let error = json!({"type": "authentication_error", "message": "Invalid token."});
        let error = json!({"type": "error", "error": error});
        return vec![answer("401 Unauthorized", "", error.to_string())];
    }
    let body = String::from_utf8_lossy(&seen.body);
    let note = [("add_reminder", json!({"content": write_note(token)}))];
    let parsed: Value = serde_json::from_str(&body).unwrap();
    let mut tools = parsed["tools"].as_array().into_iter().flatten();
    let asks = tools.any(|it| it["name"] == PROMPT) && !body.contains(NOTE);
    let calls = if asks { &note[..] } else { &[] };
    let text = format!("Done, {} bytes.", body.len());
    let body = whole_answer(Format::Responses, &text, calls, (9_200, 5));
    vec![answer("200 OK", "", body)]
}

async fn start() -> (ScriptedProvider, TunnelProxy, RunningProxy) {
    let up = ScriptedProvider::start_answering(answer_login).await;
    start_before(up, "", |config| {
        for model in ["chatgpt/gpt-5.5", "openai/gpt-5.5"] {
            config
                .models
                .insert(model.into(), model_with_early_levels(20_000));
        }
        config.recovery.chats = true;
    })
    .await
}

/// A conversation of one client.
#[derive(Clone)]
struct Chat {
    token: String,
    account: String,
    model: &'static str,
    entries: Vec<Value>,
}

impl Chat {
    fn new(account: &str) -> Self {
        let first = json!({"role": "user", "content": "Count the files of the harbour."});
        let call = json!({"path": "log"});
        let long = "a plank of oak; ".repeat(LONG_RESULT / 16);
        let read = [
            json!({"type": "function_call", "call_id": "c_1", "name": "read_file", "arguments": call.to_string()}),
            json!({"type": "function_call_output", "call_id": "c_1", "output": long}),
        ];
        let said = json!({"role": "assistant", "content": "There are nine."});
        Self {
            token: make_token(account, "user_1", 1, true),
            account: account.to_owned(),
            model: "gpt-5.5",
            entries: [first].into_iter().chain(read).chain([said]).collect(),
        }
    }

    /// Asks once more, with the answers before.
    async fn ask(&mut self, proxy: &RunningProxy) -> ClientAnswer {
        let question = format!("Question {}?", self.entries.len());
        self.entries
            .push(json!({"role": "user", "content": question}));
        let came = self.repeat(proxy).await;
        if came.status == 200 {
            let got = came.json();
            let text = got["output"][0]["content"][0]["text"].as_str().unwrap();
            self.entries
                .push(json!({"role": "assistant", "content": text}));
        } else {
            self.entries.pop();
        }
        came
    }

    async fn repeat(&self, proxy: &RunningProxy) -> ClientAnswer {
        let tools = [client_tool(Format::Responses)];
        let body =
            json!({"model": self.model, "store": false, "tools": tools, "input": self.entries});
        let client = proxy.client();
        let request = client
            .request(Method::POST, "/v1/responses")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .header("chatgpt-account-id", &self.account)
            .header("user-agent", "codex_cli_rs/0.171.0")
            .header("session-id", "s");
        client.send_with(request, body.to_string()).await
    }

    fn renew(&mut self, nth: usize) {
        self.token = make_token(&self.account, "user_1", nth, true);
    }
}

fn session(came: &ClientAnswer) -> String {
    assert_eq!(came.status, 200, "{}", came.text());
    came.headers["x-plimsoll-session"]
        .to_str()
        .unwrap()
        .to_owned()
}

/// The entries of the conversation that the provider got last, and all of its body.
fn last_sent(up: &ScriptedProvider) -> (Vec<Value>, String) {
    let body: Value = serde_json::from_slice(&up.last_request().body).unwrap();
    let entries = body["input"].as_array().or(body["messages"].as_array());
    (entries.unwrap().clone(), body.to_string())
}

/// A session with a reminder, after four requests.
async fn begin_session(proxy: &RunningProxy, up: &ScriptedProvider) -> Chat {
    let mut chat = Chat::new("acct_1");
    // The first request is that of a token that the host has not answered yet.
    let first = session(&chat.ask(proxy).await);
    let second = session(&chat.ask(proxy).await);
    assert_ne!(first, second);
    for _ in 0..2 {
        assert_eq!(session(&chat.ask(proxy).await), second);
    }
    let (_, sent) = last_sent(up);
    assert!(sent.contains(NOTE) && sent.contains(PROMPT), "{sent}");
    assert!(sent.len() < LONG_RESULT);
    chat
}

#[tokio::test]
async fn a_renewed_token_keeps_the_session() {
    let (up, _tunnel, proxy) = start().await;
    let mut chat = begin_session(&proxy, &up).await;
    let before = session(&chat.ask(&proxy).await);
    let (entries, _) = last_sent(&up);
    let note = write_note(&chat.token);
    for nth in 2..5 {
        chat.renew(nth);
        // Nothing that is stored enters the request before the host has answered the token.
        let came = chat.ask(&proxy).await;
        let (_, sent) = last_sent(&up);
        assert!(!sent.contains(&note));
        assert_ne!(session(&came), before);
        // Then the session goes on where it was, with what was cut and what was added in their places.
        let came = chat.ask(&proxy).await;
        assert_eq!(session(&came), before);
        let (later, sent) = last_sent(&up);
        assert!(sent.contains(NOTE) && sent.contains(PROMPT));
        assert_eq!(later[..entries.len()], entries);
    }
}

#[tokio::test]
async fn a_stranger_with_the_ids_of_a_login_gets_nothing() {
    let (up, _tunnel, proxy) = start().await;
    let mut chat = begin_session(&proxy, &up).await;
    let note = write_note(&chat.token);
    let owned = session(&chat.ask(&proxy).await);
    let forged = make_token("acct_1", "user_1", 2, false);
    let foreign = make_token("acct_2", "user_2", 1, true);
    let colleague = make_token("acct_1", "user_2", 1, true);
    for token in [forged, foreign, colleague] {
        let mut stranger = chat.clone();
        stranger.token = token;
        for _ in 0..3 {
            let came = stranger.ask(&proxy).await;
            let (_, sent) = last_sent(&up);
            assert!(!sent.contains(&note), "{}", stranger.token);
            if came.status == 200 {
                assert_ne!(session(&came), owned);
            } else {
                assert_eq!(came.status, 401, "{}", came.text());
            }
        }
    }
    // At another host, the same token is another account.
    let mut elsewhere = chat.clone();
    elsewhere.model = "openai/gpt-5.5";
    assert_ne!(session(&elsewhere.ask(&proxy).await), owned);
    assert_eq!(up.last_request().header("host"), Some("api.openai.com"));
    assert_eq!(session(&chat.ask(&proxy).await), owned);
    assert!(last_sent(&up).1.contains(&note));
}

/// Its sessions are seen by the administrator, and by nobody with the token.
#[tokio::test]
async fn a_login_opens_no_session() {
    let (up, _tunnel, proxy) = start().await;
    let mut chat = begin_session(&proxy, &up).await;
    let owned = session(&chat.ask(&proxy).await);
    let client = proxy.client();
    let token = format!("Bearer {}", chat.token);
    let paths = [
        (Method::GET, "sessions".to_owned(), 200),
        (Method::GET, format!("sessions/{owned}"), 404),
        (Method::POST, format!("sessions/{owned}/clear"), 404),
        (Method::POST, format!("sessions/{owned}/compact"), 404),
    ];
    for (method, path, status) in paths {
        let request = client
            .request(method, &format!("/plimsoll/api/{path}"))
            .header("authorization", &token)
            .header("chatgpt-account-id", &chat.account);
        let came = client.send_with(request, "").await;
        assert_eq!(came.status, status, "{path}: {}", came.text());
        assert!(!came.text().contains(NOTE), "{path}");
        let is_listed = path == "sessions" && came.text().contains(&owned);
        assert!(!is_listed, "{path}: {}", came.text());
    }
}
