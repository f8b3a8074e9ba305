//! A provider on a socket whose models bind their reasoning: it judges every request strictly, refuses what is too
//! long, and answers as a model that thinks, calls several tools, and uses the tools of the proxy.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{
    bound::{BoundApi, BoundModel, Verdict, offered_names, to_events},
    generate::Random,
    parse::parse_value,
    provider::{ProviderStep, ReceivedRequest, ScriptedProvider, answer, stream_head},
    server_edits, strict,
};

/// What the provider saw of a session.
#[derive(Debug, Default)]
pub(crate) struct BoundLog {
    pub(crate) requests: usize,
    pub(crate) too_long: usize,
    /// Tokens that the server's own edits cleared, over all requests.
    pub(crate) cleared: usize,
    /// The words of refusals for stale reasoning.
    pub(crate) refused: Vec<String>,
    /// Stale reasoning that was sent, whether or not it was refused.
    pub(crate) stale: usize,
    /// Entries of reasoning that the model of the newest request forgot by its rule.
    pub(crate) forgotten: usize,
    /// Rules that a request broke, strictly.
    pub(crate) broken: Vec<String>,
    /// Answered requests whose open round came with its thinking, and those without.
    pub(crate) open_with: usize,
    pub(crate) open_without: usize,
    /// Of the thinking of the ten newest answers before each request, how many blocks were there, of how many.
    pub(crate) recent_kept: usize,
    pub(crate) recent: usize,
    /// Every answer's number of thinking blocks.
    pub(crate) answers: Vec<usize>,
    /// Each request, and the blocks of its answer: none where it was refused.
    pub(crate) exchanges: Vec<(Value, Vec<Value>)>,
}

/// The provider's list of models, in the form of Anthropic's. No rule knows the names of the newest two.
const MODELS: &str = include_str!("../../data/models/anthropic.json");

/// What the API's summaries say.
const SUMMARY: &str = "The hull has leaks; the bow is mended, the deck is next.";

/// How a provider behaves.
#[derive(Clone, Debug)]
pub(crate) struct BoundSettings {
    pub(crate) seed: u64,
    pub(crate) api: BoundApi,
    pub(crate) model: BoundModel,
    /// In tokens of three bytes.
    pub(crate) window: usize,
    /// Percent of the answers that call a tool of the proxy, where there is one.
    pub(crate) proxy_calls: u32,
}

pub(crate) async fn start_bound_provider(
    settings: BoundSettings,
) -> (ScriptedProvider, Arc<Mutex<BoundLog>>) {
    let generating = settings.clone();
    start_scripted_bound_provider(settings, move |body, nth| {
        let mut random = Random::for_part(generating.seed, 100 + nth as u64);
        generating.write_blocks(body, &mut random)
    })
    .await
}

/// The same, whose answers are the blocks that `script` makes of a request and its number, from 1.
pub(crate) async fn start_scripted_bound_provider(
    settings: BoundSettings,
    script: impl Fn(&Value, usize) -> Vec<Value> + Send + Sync + 'static,
) -> (ScriptedProvider, Arc<Mutex<BoundLog>>) {
    let log = Arc::new(Mutex::new(BoundLog::default()));
    let kept = Arc::clone(&log);
    let provider = ScriptedProvider::start_forgetful(move |request| {
        settings.reply(request, &script, &mut kept.lock().unwrap())
    });
    (provider.await, log)
}

impl BoundSettings {
    fn reply(
        &self,
        request: &ReceivedRequest,
        script: impl Fn(&Value, usize) -> Vec<Value>,
        log: &mut BoundLog,
    ) -> Vec<ProviderStep> {
        if request.line.starts_with("GET /v1/models?limit=1000 ") {
            let has_version = request.header("anthropic-version").is_some();
            let status = if has_version {
                "200 OK"
            } else {
                "400 Bad Request"
            };
            return vec![answer(status, "", MODELS)];
        }
        log.requests += 1;
        let body = parse_value(&request.body).unwrap();
        log.exchanges.push((body.clone(), Vec::new()));
        let betas = request.header("anthropic-beta").unwrap_or_default();
        let broken = match self.api {
            BoundApi::Messages => strict::messages::find_violations(&request.body),
            BoundApi::Responses => strict::responses::find_violations(&request.body),
            _ => Vec::new(),
        };
        log.broken.extend(broken.iter().map(|it| format!("{it:?}")));
        let verdict = self.model.judge(self.api, &request.body, betas);
        log.stale += verdict.failing.len().max(verdict.transformations.len());
        if let Some(refusal) = &verdict.refusal {
            log.refused.push(verdict.message().to_owned());
            return vec![answer("400 Bad Request", "", refusal.to_string())];
        }
        if let Some(message) = server_edits::find_bad_edit(&body) {
            log.refused.push(message);
            return vec![answer("400 Bad Request", "", "{}")];
        }
        let mut read = body.clone();
        let applied = server_edits::clear_by_calls(&mut read, |bytes| bytes / 3);
        let cleared = applied.iter().map(|it| it["cleared_input_tokens"].as_u64());
        let cleared: u64 = cleared.map(Option::unwrap_or_default).sum();
        log.cleared += cleared as usize;
        let forgotten = verdict.list_forgotten().map(|it| it.to_string().len());
        let read = request.body.len() - forgotten.sum::<usize>();
        let tokens = (read / 3).saturating_sub(cleared as usize);
        log.forgotten = verdict.list_forgotten().count();
        if tokens > self.window {
            log.too_long += 1;
            return vec![self.refuse_length(tokens)];
        }
        if !body["compaction"].is_null() {
            let summary = self.model.summarize(&verdict, SUMMARY);
            return vec![answer("200 OK", "", summary.to_string())];
        }
        self.note_thinking(&body, log);
        let blocks = script(&body, log.requests);
        let thinking = |block: &&Value| {
            let kind = block["type"].as_str().unwrap_or_default();
            kind.ends_with("thinking")
        };
        log.answers.push(blocks.iter().filter(thinking).count());
        let mut message = self.write_answer(&verdict, &blocks, tokens);
        if !applied.is_empty() {
            message["context_management"] = json!({"applied_edits": applied});
        }
        if let Some(exchange) = log.exchanges.last_mut() {
            exchange.1 = blocks;
        }
        if body["stream"] == true {
            let events = to_events(self.api, &message);
            return vec![
                stream_head(),
                ProviderStep::Send(events.into_bytes()),
                ProviderStep::Close,
            ];
        }
        vec![answer("200 OK", "", message.to_string())]
    }

    pub(super) fn refuse_length(&self, tokens: usize) -> ProviderStep {
        let window = self.window;
        let message = format!("prompt is too long: {tokens} tokens > {window} maximum");
        let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
        answer("400 Bad Request", "", body.to_string())
    }

    pub(super) fn write_answer(&self, verdict: &Verdict, blocks: &[Value], tokens: usize) -> Value {
        let mut message = self.model.answer(self.api, verdict, blocks);
        let answered = serde_json::to_vec(&message).unwrap().len() / 3;
        message["usage"] = match self.api {
            BoundApi::Messages => json!({"input_tokens": tokens, "output_tokens": answered}),
            BoundApi::Responses => json!({"input_tokens": tokens, "output_tokens": answered,
                "total_tokens": tokens + answered}),
            _ => json!({"prompt_tokens": tokens, "completion_tokens": answered,
                "total_tokens": tokens + answered}),
        };
        message
    }

    /// How much of its newest thinking the model reads.
    fn note_thinking(&self, body: &Value, log: &mut BoundLog) {
        if self.api != BoundApi::Messages {
            return;
        }
        let entries = body["messages"].as_array().unwrap();
        let count = |entry: &Value| {
            let blocks = entry["content"].as_array().into_iter().flatten();
            let kinds = blocks.filter_map(|block| block["type"].as_str());
            kinds.filter(|kind| kind.ends_with("thinking")).count()
        };
        let total: usize = log.answers.iter().rev().take(10).sum();
        let there: usize = entries.iter().map(count).sum();
        log.recent += total;
        log.recent_kept += there.min(total);
        let is_result = |entry: &Value| entry["content"][0]["type"] == "tool_result";
        if entries.last().is_some_and(is_result) {
            let answers = entries
                .iter()
                .rev()
                .find(|entry| entry["role"] == "assistant");
            let made = log.answers.last().copied().unwrap_or(0);
            match answers.map_or(0, count) {
                0 if made > 0 => log.open_without += 1,
                _ => log.open_with += 1,
            }
        }
    }

    /// An answer: thinking, texts, calls of the client's tools and the proxy's.
    pub(crate) fn write_blocks(&self, body: &Value, random: &mut Random) -> Vec<Value> {
        let names = tool_names(body);
        let mut blocks = Vec::new();
        let think = |random: &mut Random, blocks: &mut Vec<Value>| {
            let words = random.between(2, 60);
            let text = if random.chance(10) {
                String::new()
            } else {
                format!("{} ", "ponder ".repeat(words))
            };
            blocks.push(if random.chance(10) {
                json!({"type": "redacted_thinking"})
            } else {
                json!({"type": "thinking", "thinking": text})
            });
        };
        if random.chance(92) {
            think(random, &mut blocks);
        }
        let proxy: Vec<&String> = names.iter().filter(|it| is_of_proxy(it)).collect();
        let mut id = 0;
        let mut call = |name: &str, input: Value, blocks: &mut Vec<Value>| {
            id += 1;
            blocks.push(
                json!({"type": "tool_use", "id": format!("c{id}"), "name": name, "input": input}),
            );
        };
        let mut thinks_again = false;
        let uses_proxy = !proxy.is_empty() && random.chance(self.proxy_calls);
        if uses_proxy {
            let name = proxy[random.between(0, proxy.len() - 1)];
            call(name, proxy_input(name), &mut blocks);
            if random.chance(50) {
                return blocks;
            }
            // Something is led to by it.
            thinks_again = random.chance(30);
            if thinks_again {
                think(random, &mut blocks);
            }
        }
        if random.chance(30) {
            blocks.push(
                json!({"type": "text", "text": "I look further.".repeat(random.between(1, 6))}),
            );
        }
        if let Some(client) = names.iter().find(|it| !is_of_proxy(it))
            && (thinks_again || random.chance(85))
        {
            for at in 0..random.between(1, 4) {
                if at > 0 && random.chance(20) {
                    think(random, &mut blocks);
                }
                let path = format!("src/file{}.rs", random.between(1, 400));
                call(client, json!({"path": path}), &mut blocks);
            }
        } else if !uses_proxy {
            blocks.push(json!({"type": "text", "text": "That is done."}));
        }
        blocks
    }
}

pub(crate) fn tool_names(body: &Value) -> Vec<String> {
    let mut names = offered_names(body);
    let functions = body["tools"].as_array().into_iter().flatten();
    let functions = functions.map(|tool| &tool["function"]);
    let items = body["input"].as_array().into_iter().flatten();
    let added = items.filter(|item| item["type"] == "additional_tools");
    let added = added.flat_map(|item| item["tools"].as_array().into_iter().flatten());
    let more = functions.chain(added);
    names.extend(more.filter_map(|tool| tool["name"].as_str().map(str::to_owned)));
    names
}

fn is_of_proxy(name: &str) -> bool {
    name == "recall" || super::model::PROXY_TOOLS.contains(&name)
}

fn proxy_input(name: &str) -> Value {
    match name {
        "add_reminder" => {
            json!({"text": "Remember the port 8443 and the file src/main.rs.", "title": "port"})
        }
        "recall" => json!({"id": "1"}),
        "update_reminder" => json!({"id": "1", "text": "The port is 9443."}),
        "delete_reminder" => json!({"id": "1"}),
        _ => json!({}),
    }
}
