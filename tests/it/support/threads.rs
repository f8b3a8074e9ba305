//! A provider of Messages that holds threads (beta `message-threads-2026-08-12`): a request creates one with its whole
//! history, and each answer can be continued once, with the new messages only, for five minutes after the last request.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use super::{
    ProviderStep, ReceivedRequest, ScriptedProvider, answer, stream_of,
    strict::messages::find_violations,
};

pub(crate) const THREADS_BETA: &str = "message-threads-2026-08-12";
/// How long a thread lives after its last request, in seconds.
const LIFE_S: u64 = 300;
/// Members that stay as the thread was created with.
const FIXED: [&str; 3] = ["model", "system", "tools"];

#[derive(Default)]
struct ThreadState {
    answers: HashMap<String, HeldAnswer>,
    now_s: u64,
    /// What the client gets of the next answer, though the thread has it.
    lost: Option<Vec<ProviderStep>>,
    faults: Vec<String>,
}

/// An answer, with the conversation up to it.
struct HeldAnswer {
    body: Value,
    continued: bool,
    at_s: u64,
}

pub(crate) struct ThreadServer {
    pub(crate) provider: ScriptedProvider,
    state: Arc<Mutex<ThreadState>>,
}

impl ThreadServer {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(ThreadState::default()));
        let kept = Arc::clone(&state);
        let answers = move |seen: &ReceivedRequest| kept.lock().unwrap().answer_request(seen);
        Self {
            provider: ScriptedProvider::start_answering(answers).await,
            state,
        }
    }

    pub(crate) fn pass_time(&self, seconds: u64) {
        self.state.lock().unwrap().now_s += seconds;
    }

    /// The client gets this in place of the next answer.
    pub(crate) fn lose_next(&self, steps: Vec<ProviderStep>) {
        self.state.lock().unwrap().lost = Some(steps);
    }

    pub(crate) fn assert_no_faults(&self) {
        assert_eq!(self.state.lock().unwrap().faults, [""; 0]);
    }
}

impl ThreadState {
    fn answer_request(&mut self, seen: &ReceivedRequest) -> Vec<ProviderStep> {
        let Ok(body) = serde_json::from_slice::<Value>(&seen.body) else {
            return vec![refuse(400, "invalid_json", "not JSON")];
        };
        let whole = match self.join_history(seen, &body) {
            Ok(whole) => whole,
            Err(refusal) => return vec![refusal],
        };
        let violations = find_violations(whole.to_string().as_bytes());
        let found = violations.iter().map(|it| format!("{it:?}"));
        self.faults.extend(found);
        let id = format!("msg_{}", self.answers.len());
        let written = write_answer(&id, &whole, body["stream"] == true);
        let mut held = whole;
        let said = json!({"role": "assistant", "content": said(&id)});
        held["messages"].as_array_mut().unwrap().push(said);
        let held = HeldAnswer {
            body: held,
            continued: false,
            at_s: self.now_s,
        };
        self.answers.insert(id, held);
        self.lost.take().unwrap_or(written)
    }

    /// The request with the whole history.
    fn join_history(
        &mut self,
        seen: &ReceivedRequest,
        body: &Value,
    ) -> Result<Value, ProviderStep> {
        let thread = &body["thread"];
        if thread.is_null() {
            return Ok(body.clone());
        }
        if !seen
            .header("anthropic-beta")
            .is_some_and(|it| it.contains(THREADS_BETA))
        {
            return Err(refuse(400, "", "thread: Extra inputs are not permitted"));
        }
        if thread["type"] == "create" {
            return Ok(body.clone());
        }
        let (now_s, id) = (self.now_s, thread["previous_message_id"].as_str());
        let held = id.and_then(|id| self.answers.get_mut(id));
        let Some(held) = held.filter(|held| now_s - held.at_s <= LIFE_S) else {
            return Err(refuse(
                404,
                "thread_not_found",
                "No usable thread was found.",
            ));
        };
        if held.continued {
            let words = "Each response can be continued once.";
            return Err(refuse(400, "thread_already_continued", words));
        }
        let is_other = |name: &&&str| body.get(**name).is_some_and(|it| *it != held.body[**name]);
        if let Some(name) = FIXED.iter().find(is_other) {
            return Err(refuse(400, "thread_fingerprint_mismatch", name));
        }
        held.continued = true;
        let mut whole = held.body.clone();
        let messages = whole["messages"].as_array_mut().unwrap();
        messages.extend(body["messages"].as_array().unwrap().iter().cloned());
        Ok(whole)
    }
}

fn said(id: &str) -> Value {
    json!([{"type": "text", "text": format!("Noted as {id}.")}])
}

/// Four bytes are a token.
fn write_answer(id: &str, whole: &Value, streams: bool) -> Vec<ProviderStep> {
    let tokens = whole["messages"].to_string().len() / 4;
    let usage = json!({"input_tokens": tokens, "output_tokens": 9});
    let mut message = json!({"id": id, "type": "message", "role": "assistant", "model": "m",
        "content": said(id), "stop_reason": "end_turn", "stop_sequence": null, "usage": usage});
    if !streams {
        return vec![answer("200 OK", "", message.to_string())];
    }
    let text = message["content"][0]["text"].take();
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    let named = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    stream_of(events.iter().map(named))
}

/// The body of an error with a code in its details.
pub(crate) fn thread_error(status: u16, code: &str, message: &str) -> String {
    let kind = if status == 404 {
        "not_found_error"
    } else {
        "invalid_request_error"
    };
    let mut details = json!({ "error_code": code });
    if code == "thread_unsupported_request" {
        details["unsupported"] = json!(["thinking", "cache_control"]);
    }
    let error = json!({"type": kind, "message": message, "details": details});
    json!({"type": "error", "error": error, "request_id": "req_1"}).to_string()
}

fn refuse(status: u16, code: &str, message: &str) -> ProviderStep {
    answer(
        &format!("{status} No"),
        "",
        thread_error(status, code, message),
    )
}
