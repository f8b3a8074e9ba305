//! The provider of a session: it judges each request strictly, alone and by those before it, counts more than the proxy
//! expects, and answers as a model that thinks.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{
    super::{
        bound::{BoundApi, Verdict, to_events},
        bound_provider::BoundSettings,
        generate::Random,
        model::refuse_as_openai,
        parse::parse_value,
        provider::{ProviderStep, ReceivedRequest, ScriptedProvider, answer},
        server_edits, strict,
    },
    client::NewestParts,
    draw::DrawnSession,
    sent::{SentRequest, SentSession},
};

/// What the API's summaries say.
const SUMMARY: &str = "The hull has leaks; the bow is mended, the deck is next.";

/// What a provider saw of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionLog {
    pub(crate) requests: usize,
    pub(crate) too_long: usize,
    pub(crate) summaries: usize,
    pub(crate) provider_summaries: usize,
    /// Those of them that are late.
    pub(crate) held: usize,
    /// Requests that begin with a summary of the provider's.
    pub(crate) summarised: usize,
    /// Tokens of results that the provider cleared, of all requests together.
    pub(crate) cleared: usize,
    /// The client repeats its last request.
    pub(crate) is_repeat: bool,
    /// What the provider read since the client sent its last request.
    prompts: Vec<Value>,
    /// Requests that do not begin with the one before.
    pub(crate) changes: usize,
    /// Reasoning blocks that were read, of all requests together.
    pub(crate) read: usize,
    /// Those that went although nothing before them was changed: of answers that cannot be sent as they were made.
    pub(crate) needless: usize,
    /// Reasoning that the API left out (Responses).
    pub(crate) dropped: usize,
    /// The newest requests left out reasoning that an earlier one had; reset by the client.
    pub(crate) drops_anew: bool,
    /// Refusals for stale reasoning after the state was lost.
    pub(crate) healed: usize,
    /// What must not be.
    pub(crate) faults: Vec<String>,
    /// What the client's newest request ends with.
    pub(super) newest: NewestParts,
    may_refuse: bool,
    has_lost_state: bool,
    last_dropped: usize,
    sent: SentSession,
}

impl SessionLog {
    /// The proxy loses its state.
    pub(crate) fn lose_state(&mut self) {
        (self.may_refuse, self.has_lost_state) = (true, true);
        self.sent = SentSession::default();
    }

    /// The client sends a request that repeats none.
    pub(crate) fn sends_anew(&mut self) {
        self.prompts.clear();
    }

    fn fault(&mut self, what: String) {
        self.faults
            .push(format!("request {}: {what}", self.requests));
    }
}

pub(super) async fn start_provider(
    session: &DrawnSession,
) -> (ScriptedProvider, Arc<Mutex<SessionLog>>) {
    let log = Arc::new(Mutex::new(SessionLog::default()));
    let (kept, session) = (Arc::clone(&log), session.clone());
    let settings = BoundSettings {
        seed: session.seed,
        api: session.api,
        model: session.account.clone(),
        window: session.window as usize,
        proxy_calls: session.proxy_calls,
    };
    let provider = ScriptedProvider::start_forgetful(move |request| {
        let mut log = kept.lock().unwrap_or_else(|it| it.into_inner());
        Reply {
            session: &session,
            settings: &settings,
            log: &mut log,
        }
        .answer(request)
    });
    (provider.await, log)
}

struct Reply<'a> {
    session: &'a DrawnSession,
    settings: &'a BoundSettings,
    log: &'a mut SessionLog,
}

impl Reply<'_> {
    fn answer(&mut self, request: &ReceivedRequest) -> Vec<ProviderStep> {
        let (api, session) = (self.session.api, self.session);
        self.log.requests += 1;
        let body = parse_value(&request.body).unwrap();
        if let Ok(folder) = std::env::var("REASONING_DUMP") {
            let name = format!("{folder}/{}-{:03}.json", session.seed, self.log.requests);
            std::fs::write(name, &request.body).unwrap();
        }
        let broken = match api {
            BoundApi::Messages => strict::messages::find_violations(&request.body),
            BoundApi::Responses => strict::responses::find_violations(&request.body),
            _ => strict::find_violations(&request.body, session.profile),
        };
        for violation in broken {
            self.log.fault(format!("{violation:?}"));
        }
        let betas = request.header("anthropic-beta").unwrap_or_default();
        let verdict = session.account.judge(api, &request.body, betas);
        let summarises = !body["compaction"].is_null();
        if let Some(refusal) = &verdict.refusal {
            if summarises && session.account.order_fault.is_some() {
                return vec![answer("400 Bad Request", "", refusal.to_string())];
            }
            if std::mem::take(&mut self.log.may_refuse) {
                self.log.healed += 1;
                if std::env::var_os("REASONING_DUMP").is_some() {
                    eprintln!("{}: request {}: {refusal}", session.seed, self.log.requests);
                }
            } else {
                self.log.fault(format!("refused: {refusal}"))
            }
            return vec![answer("400 Bad Request", "", refusal.to_string())];
        }
        // What was sent before a loss is not known to the proxy, so that only a refusal tells what is stale.
        if api != BoundApi::Responses && !self.log.has_lost_state {
            for failing in &verdict.failing {
                self.log.fault(format!("stale: {}", failing.message));
            }
            for dropped in &verdict.transformations {
                self.log.fault(format!("dropped: {dropped}"));
            }
        }
        if let Some(message) = server_edits::find_bad_edit(&body) {
            self.log.fault(message);
        }
        let forgotten = verdict.list_forgotten().map(count_bytes);
        let forgotten = forgotten.sum::<usize>();
        let mut read = body.clone();
        // No part of a prompt.
        read["prompt_cache_options"] = Value::Null;
        let applied = server_edits::clear_by_calls(&mut read, |bytes| bytes / 3);
        let cleared = applied.iter().map(|it| it["cleared_input_tokens"].as_u64());
        self.log.cleared += cleared.map(Option::unwrap_or_default).sum::<u64>() as usize;
        let read = count_bytes(&read) - forgotten;
        let tokens = (read as f64 / 3.0 * session.factor) as usize;
        let cap = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
        let cap = cap.iter().find_map(|name| body[*name].as_u64());
        let cap = cap.filter(|_| session.profile.checks_answer_cap());
        if tokens + cap.unwrap_or(0) as usize > session.window as usize {
            self.log.too_long += 1;
            return match api {
                BoundApi::Messages => vec![self.settings.refuse_length(tokens)],
                _ => refuse_as_openai(session.window, tokens as u64),
            };
        }
        if summarises {
            self.log.provider_summaries += 1;
            let summary = session.account.summarize(&verdict, SUMMARY);
            let summary = answer("200 OK", "", summary.to_string());
            let held = (session.summaries_late_by > 0).then_some(ProviderStep::Stall);
            self.log.held += usize::from(held.is_some());
            return held.into_iter().chain([summary]).collect();
        }
        let key = find_summary_key(&request.body);
        if key.is_none() {
            self.check_start(&body);
            self.check_newest(&body, &request.body);
            if self.log.is_repeat {
                return vec![self.answer_repeat(&verdict, &body, tokens)];
            }
            self.log.prompts.push(read_prompt(&body));
        }
        let sent = key.is_none().then(|| self.compare(&body));
        self.log.read += verdict.read.len();
        if api == BoundApi::Responses && key.is_none() {
            let dropped = verdict.transformations.len();
            self.log.dropped += dropped;
            self.log.drops_anew |= dropped > self.log.last_dropped;
            self.log.last_dropped = dropped;
        }
        let mut random = Random::for_part(session.seed, 100 + self.log.requests as u64);
        let blocks = match &key {
            Some(key) => {
                vec![json!({"type": "text", "text": write_summary(key, random.below(1_000))})]
            }
            None => self.write_blocks(&body, &request.body, &mut random),
        };
        let mut message = self.settings.write_answer(&verdict, &blocks, tokens);
        if !applied.is_empty() {
            message["context_management"] = json!({"applied_edits": applied});
        }
        match sent {
            Some(sent) => self.log.sent.keep(api, sent, &message),
            None => self.log.summaries += 1,
        }
        vec![send_answer(api, &body, &message)]
    }

    /// A repeat reads what a request since the client's last one has written into the cache.
    fn answer_repeat(&mut self, verdict: &Verdict, body: &Value, tokens: usize) -> ProviderStep {
        if !self.log.prompts.contains(&read_prompt(body)) {
            self.log.fault("a repeat of another prompt".to_owned());
        }
        let blocks = [json!({"type": "text", "text": "A"})];
        let message = self.settings.write_answer(verdict, &blocks, tokens);
        send_answer(self.session.api, body, &message)
    }

    /// The system prompt is first, wherever the client has it.
    fn check_start(&mut self, body: &Value) {
        if self.session.leads_with_system && body["input"][0]["role"] != "developer" {
            self.log.fault(format!("{} is first", body["input"][0]));
        }
    }

    /// The user's newest message and the newest results are in each request that fits, whatever is cut. What the user said may
    /// stand in the provider's summary.
    fn check_newest(&mut self, body: &Value, bytes: &[u8]) {
        let is_summarised = body["messages"][0]["content"][0]["type"] == "compaction";
        self.log.summarised += usize::from(is_summarised);
        let body = String::from_utf8_lossy(bytes);
        let newest = &self.log.newest;
        let said = newest.said.iter().filter(|_| !is_summarised);
        let parts = said.chain(&newest.call_ids);
        let missing: Vec<String> = parts.filter(|it| !body.contains(*it)).cloned().collect();
        for part in missing {
            self.log.fault(format!("{part:?} is not there"));
        }
    }

    /// Looks for reasoning that went without a change of ours, or that came back.
    fn compare(&mut self, body: &Value) -> SentRequest {
        let sent = SentRequest::read(self.session.api, body);
        let change = self.log.sent.compare(&sent);
        self.log.changes += usize::from(!change.continues);
        if change.continues {
            self.log.needless += change.missing;
        }
        // In Responses, a changed beginning makes the same stale as reasoning that came back.
        let is_cause = self.session.api != BoundApi::Responses || change.continues;
        if change.put_back > 0 && is_cause && self.session.model.checks {
            self.log
                .fault(format!("{} blocks put back", change.put_back));
        }
        sent
    }

    fn write_blocks(&self, body: &Value, bytes: &[u8], random: &mut Random) -> Vec<Value> {
        let mut blocks = self.settings.write_blocks(body, random);
        let is_thinking = |block: &Value| {
            let kind = block["type"].as_str();
            kind.is_some_and(|kind| kind.ends_with("thinking"))
        };
        if self.session.model.thinks_first && !is_thinking(&blocks[0]) {
            blocks.insert(0, json!({"type": "thinking", "thinking": "Let me see."}));
        }
        let tail = &bytes[bytes.len().saturating_sub(2_000)..];
        let asks = String::from_utf8_lossy(tail).contains("<continuation_package>");
        if asks && random.chance(60) {
            let text = "<continuation_package>\nfirst: the bow\nverify: run the tests\n</continuation_package>";
            let said = blocks.iter_mut().find(|block| block["type"] == "text");
            match said {
                Some(said) => {
                    let before = said["text"].as_str().unwrap_or_default();
                    said["text"] = format!("{before}\n\n{text}").into();
                }
                None => {
                    let at = blocks.iter().take_while(|it| is_thinking(it)).count();
                    blocks.insert(at, json!({"type": "text", "text": text}));
                }
            }
        }
        blocks
    }
}

/// What a model reads of a request.
fn read_prompt(body: &Value) -> Value {
    let parts = ["system", "instructions", "tools", "messages", "input"];
    parts.map(|name| body[name].clone()).to_vec().into()
}

/// A whole answer or a stream, after which the connection is used further.
fn send_answer(api: BoundApi, body: &Value, message: &Value) -> ProviderStep {
    if body["stream"] != true {
        return answer("200 OK", "", serde_json::to_vec(message).unwrap());
    }
    let events = to_events(api, message);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        events.len()
    );
    ProviderStep::Send([head.as_bytes(), events.as_bytes()].concat())
}

/// Bytes that a model reads. What is sealed is not counted by its length.
fn count_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|it| count_bytes(it) + 1).sum(),
        Value::Object(members) => {
            let sealed = [
                "signature",
                "data",
                "encrypted_content",
                "id",
                "cache_control",
            ];
            let read = members
                .iter()
                .filter(|(key, _)| !sealed.contains(&key.as_str()));
            read.map(|(key, value)| key.len() + 4 + count_bytes(value))
                .sum()
        }
        _ => 4,
    }
}

/// The key that a request for a summary asks for.
fn find_summary_key(body: &[u8]) -> Option<String> {
    let tail = &body[body.len().saturating_sub(4_000)..];
    let tail = String::from_utf8_lossy(tail);
    let key = tail
        .rsplit_once("<summary key=\\\"")?
        .1
        .split('\\')
        .next()?;
    tail.contains("<next_steps>").then(|| key.to_owned())
}

fn write_summary(key: &str, nth: usize) -> String {
    format!(
        "<summary key=\"{key}\">\n<done>Leaks up to {nth} were mended.</done>\n<to_do>The bow.</to_do>\n\
         <current_state>Afloat, summary {nth}.</current_state>\n<key_context>src/hull.rs, tar</key_context>\n\
         <next_steps>Look at the keel.</next_steps>\n<cautions>none</cautions>\n</summary>"
    )
}
