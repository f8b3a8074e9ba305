//! The check of OpenAI's Responses: stale reasoning is left out with 200, and reasoning without its follower is refused.
//! Models before GPT-6.2 read the reasoning of the running turn only, unless a request asks for all, and say so of each older
//! entry in each answer.

use serde_json::{Value, json};

use super::{BoundModel, Verdict, prefix::digest, settings::ModelVersion, signature::Signature};

/// Digests of what stands before each reasoning item.
struct InputPrefix {
    tools: u64,
    folded: u64,
}

impl InputPrefix {
    /// Top-level `instructions` are none of it: from GPT-6.2 on they stand behind the input.
    fn new(body: &Value) -> Self {
        let tools = digest([&body["tools"], &body["text"]["format"]]);
        Self { tools, folded: 0 }
    }

    /// Reasoning is none of it. After a compaction of the API what stands before that does not count.
    fn add(&mut self, item: &Value) {
        match kind(item) {
            "reasoning" => {}
            "compaction" => self.folded = digest([&bare(item)]),
            _ => self.folded = digest([&self.folded.into(), &bare(item)]),
        }
    }
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or("message")
}

/// Without what a client may leave out of an item that it sends back.
fn bare(item: &Value) -> Value {
    let mut item = item.clone();
    item["type"] = kind(&item).into();
    let members = item.as_object_mut().unwrap();
    members.retain(|key, _| !matches!(key.as_str(), "id" | "status"));
    for part in item["content"].as_array_mut().into_iter().flatten() {
        if let Some(members) = part.as_object_mut() {
            members.retain(|key, _| !matches!(key.as_str(), "annotations" | "logprobs"));
        }
    }
    item
}

/// The items of a request; a string is one message of the user.
fn read_items(body: &Value) -> Vec<Value> {
    match &body["input"] {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        Value::Array(items) => items.clone(),
        _ => Vec::new(),
    }
}

/// What tells an item that follows reasoning from others.
fn name_follower(item: &Value) -> String {
    let role = item["role"].as_str().unwrap_or_default();
    let call = item["call_id"].as_str();
    call.map_or_else(|| format!("{} {role}", kind(item)), str::to_owned)
}

impl BoundModel {
    pub(super) fn judge_responses(body: Value, model: String) -> Verdict {
        let version = ModelVersion::read(&model);
        let checks = version.as_ref().is_some_and(ModelVersion::checks);
        let name = version
            .as_ref()
            .map(ModelVersion::to_name)
            .unwrap_or_default();
        let mut verdict = Verdict::new(body, model);
        verdict.tells = checks;
        let items = read_items(&verdict.body);
        let context = verdict.body["reasoning"]["context"].as_str();
        let forgets = match context {
            Some("current_turn") => true,
            Some("all_turns") => false,
            _ => version.is_some() && !checks,
        };
        let turn = items.iter().rposition(|item| item["role"] == "user");
        let turn = turn.filter(|_| forgets).unwrap_or(0);
        let mut prefix = InputPrefix::new(&verdict.body);
        for (at, item) in items.iter().enumerate() {
            prefix.add(item);
            if let Some(message) = find_missing_reasoning(&items[..at], item) {
                refuse(&mut verdict, "", message);
            }
            let Some(sealed) = item["encrypted_content"]
                .as_str()
                .filter(|_| kind(item) == "reasoning")
            else {
                continue;
            };
            let path = format!("input.{at}");
            let Some(signature) =
                Signature::read(sealed).filter(|it| it.content == digest([&item["summary"]]))
            else {
                let id = item["id"].as_str().unwrap_or_default();
                let message = format!("The encrypted content for item {id} could not be verified.");
                refuse(&mut verdict, "invalid_encrypted_content", message);
                continue;
            };
            let id = signature.item.clone().unwrap_or_default();
            let follower = items.get(at + 1).map(name_follower);
            if signature.follower.is_some() && signature.follower != follower {
                let message = format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                );
                refuse(&mut verdict, "", message);
            }
            if at < turn {
                verdict.forgotten.push(at);
                continue;
            }
            let is_same = signature.tools == prefix.tools && signature.older == prefix.folded;
            if !checks || is_same && signature.model == name {
                verdict.keep(&path, &signature);
                continue;
            }
            let reason = if is_same {
                "model_mismatch"
            } else {
                "prefix_mismatch"
            };
            verdict.fail(&path, reason.to_owned());
            verdict.transformations.push(to_removal(&id, reason));
        }
        verdict
    }

    pub(super) fn answer_responses(&self, verdict: &Verdict, blocks: &[Value]) -> Value {
        let body = &verdict.body;
        let mut prefix = InputPrefix::new(body);
        read_items(body).iter().for_each(|item| prefix.add(item));
        let nonce = digest([body]);
        let version = ModelVersion::read(&verdict.model);
        let mut output: Vec<Value> = Vec::new();
        let mut signatures = Vec::new();
        let mut thought = None;
        for (at, block) in blocks.iter().enumerate() {
            let mut item = to_item(body, block);
            let key = format!("{nonce:016x}{at}");
            if kind(&item) == "reasoning" {
                item["id"] = format!("rs_{key}").into();
                let signature = Signature {
                    model: version
                        .as_ref()
                        .map(ModelVersion::to_name)
                        .unwrap_or_default(),
                    content: digest([&item["summary"]]),
                    tools: prefix.tools,
                    older: prefix.folded,
                    item: item["id"].as_str().map(str::to_owned),
                    ..Signature::default()
                };
                signatures.push((output.len(), signature));
                thought = Some(key.clone());
            } else {
                let start = match kind(&item) {
                    "message" => "msg",
                    "custom_tool_call" => "ctc",
                    _ => "fc",
                };
                let mark = thought
                    .as_ref()
                    .map_or(String::new(), |it| format!("{AFTER}{it}"));
                item["id"] = format!("{start}_{key}{mark}").into();
            }
            prefix.add(&item);
            output.push(item);
        }
        for (at, mut signature) in signatures {
            signature.follower = output.get(at + 1).map(name_follower);
            output[at]["encrypted_content"] = signature.write().into();
        }
        let mut response = json!({"id": format!("resp_{nonce:016x}"), "object": "response", "status": "completed",
            "error": null, "incomplete_details": null, "model": body["model"], "output": output,
            "usage": {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}});
        let mut removals = verdict.transformations.clone();
        removals.extend(verdict.list_forgotten().map(|item| {
            let sealed = item["encrypted_content"].as_str();
            let id = sealed.and_then(Signature::read).and_then(|it| it.item);
            to_removal(&id.unwrap_or_default(), "turn_boundary")
        }));
        if verdict.tells || !removals.is_empty() {
            response["input_transformations"] = removals.into();
        }
        response
    }
}

/// An entry of `input_transformations`.
fn to_removal(id: &str, reason: &str) -> Value {
    json!({"type": "reasoning", "action": "removed", "reason": reason, "id": id})
}

/// Stands in the id of an item before the id of the reasoning that it needs.
const AFTER: &str = "_after_";

/// An item whose id is sent needs the reasoning that it was made after.
fn find_missing_reasoning(before: &[Value], item: &Value) -> Option<String> {
    let id = item["id"].as_str()?;
    let needed = format!("rs_{}", id.split_once(AFTER)?.1);
    let is_it = |item: &Value| {
        let sealed = item["encrypted_content"].as_str().and_then(Signature::read);
        item["id"] == *needed || sealed.is_some_and(|it| it.item.as_ref() == Some(&needed))
    };
    let kind = kind(item);
    (!before.iter().any(is_it)).then(|| {
        format!("Item '{id}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'.")
    })
}

fn to_item(body: &Value, block: &Value) -> Value {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    match text("type") {
        "thinking" => {
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text("thinking")}]})
        }
        "redacted_thinking" => json!({"type": "reasoning", "summary": []}),
        "tool_use" => {
            let tools = body["tools"].as_array().into_iter().flatten();
            let is_custom =
                |tool: &Value| tool["type"] == "custom" && tool["name"] == block["name"];
            let (kind, key) = if tools.into_iter().any(is_custom) {
                ("custom_tool_call", "input")
            } else {
                ("function_call", "arguments")
            };
            let mut item = json!({"type": kind, "status": "completed", "call_id": block["id"], "name": block["name"]});
            item[key] = block["input"].to_string().into();
            item
        }
        _ => json!({"type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text("text"), "annotations": []}]}),
    }
}

fn refuse(verdict: &mut Verdict, code: &str, message: String) {
    let code = if code.is_empty() {
        Value::Null
    } else {
        code.into()
    };
    verdict.refusal.get_or_insert_with(|| {
        json!({"error": {"type": "invalid_request_error", "message": message, "param": "input", "code": code}})
    });
}
