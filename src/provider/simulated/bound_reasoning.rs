//! Reasoning that is bound to what stood before it, as Anthropic ("Preserved thinking") and OpenAI ("Preserved
//! reasoning") document it, for the models that are named like theirs.
//!
//! A signature holds digests of what stood before it, and of the thinking before it. Nothing else is kept.

use http::{HeaderMap, header};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{
    SimulatedApi, messages_request::adds_tool, model_rules, request::SimulatedRefusal,
    token_count::count_tokens,
};

const BETA: &str = "thinking-binding-controls-2026-08-01";
/// For tools that an entry of the system adds: with their definitions, or by name alone.
const INLINE_TOOLS: &str = "inline-tools-2026-09-15";
const TOOL_CHANGES: &str = "mid-conversation-tool-changes-2026-07-01";
/// The key of an account that is checked only where a request asks for it.
const OLD_ACCOUNT: &str = "old-account";
const THOUGHT: &str =
    "The next step follows from what is known so far. I take the smallest one that tells more.";
/// Shorter answers have no thought.
const LEAST_ROOM: u32 = 256;

/// What a request says about reasoning, and what the next answer is bound to.
#[derive(Debug, Default)]
pub(super) struct BoundReasoning {
    /// The model reasons.
    is_on: bool,
    prefix: u64,
    /// The id of the newest thinking that is read, and how many there are.
    previous: u64,
    run: u64,
    /// Entries of `input_transformations`; `None` where an answer does not tell them.
    pub(super) transformations: Option<Vec<Value>>,
    is_plain: bool,
}

/// Reasoning of an answer.
#[derive(Debug)]
pub(super) struct Thought {
    pub(super) text: &'static str,
    pub(super) signature: String,
    /// The client reads it, and sends it back as a text.
    pub(super) is_plain: bool,
    pub(super) tokens: u32,
}

struct Signature {
    prefix: u64,
    previous: u64,
    run: u64,
    id: u64,
}

impl Signature {
    fn new(prefix: u64, previous: u64, run: u64) -> Self {
        let numbers = [prefix, previous, run].map(u64::to_le_bytes).concat();
        let id = xxh3_64_with_seed(&numbers, xxh3_64(THOUGHT.as_bytes()));
        Self {
            prefix,
            previous,
            run,
            id,
        }
    }

    fn write(&self) -> String {
        let Self {
            prefix,
            previous,
            run,
            id,
        } = self;
        format!("{prefix:016x}{previous:016x}{run:016x}{id:016x}")
    }

    /// `None` for one of another maker, or one that was changed.
    fn read(text: &str) -> Option<Self> {
        let number = |at: usize| u64::from_str_radix(text.get(at * 16..at * 16 + 16)?, 16).ok();
        let found = Self::new(number(0)?, number(1)?, number(2)?);
        (found.write() == text).then_some(found)
    }
}

impl BoundReasoning {
    /// Reads the reasoning of a request, and leaves out of it what the model does not read.
    ///
    /// # Errors
    /// Anthropic's refusals of stale thinking, and of settings that need a beta header.
    pub(super) fn check(
        api: SimulatedApi,
        body: &mut Value,
        headers: &HeaderMap,
    ) -> Result<Self, SimulatedRefusal> {
        let model = body["model"].as_str().unwrap_or_default();
        let is_claude = model.contains("claude-");
        match api {
            SimulatedApi::Messages if is_claude => {
                let checks = model.contains("-5-5-");
                check_messages(body, headers, checks)
            }
            SimulatedApi::Responses if model.contains("gpt-") => Ok(check_responses(body)),
            _ => {
                let rules = model_rules::find_rules(body);
                let rules = rules.filter(|it| model_rules::gives_reasoning(api, it, body));
                Ok(Self {
                    is_on: rules.is_some(),
                    is_plain: rules.is_some_and(|it| !it.signs_calls),
                    ..Self::default()
                })
            }
        }
    }

    /// The reasoning of an answer with so much room.
    pub(super) fn make_thought(&self, room: u32) -> Option<Thought> {
        (self.is_on && room >= LEAST_ROOM).then(|| Thought {
            text: THOUGHT,
            signature: Signature::new(self.prefix, self.previous, self.run).write(),
            is_plain: self.is_plain,
            tokens: count_tokens(THOUGHT),
        })
    }

    fn read_thinking(&mut self, signature: &Signature) {
        self.previous = signature.id;
        self.run += 1;
    }
}

fn check_messages(
    body: &mut Value,
    headers: &HeaderMap,
    checks: bool,
) -> Result<BoundReasoning, SimulatedRefusal> {
    let values = headers.get_all("anthropic-beta").iter();
    let values: Vec<&str> = values.filter_map(|it| it.to_str().ok()).collect();
    let has = |beta| values.iter().any(|it| it.contains(beta));
    let has_beta = has(BETA);
    let behavior = read_behavior(body, headers, has_beta)?;
    let mut found = BoundReasoning {
        is_on: body["thinking"]["type"] != "disabled",
        prefix: digest(digest(0, &body["system"]), &read_tools(body)),
        transformations: has_beta.then(Vec::new),
        ..BoundReasoning::default()
    };
    let listed = body["tools"].clone();
    let listed = listed.as_array().map_or(&[][..], Vec::as_slice);
    let mut is_dropping = false;
    for (index, entry) in body["messages"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .enumerate()
    {
        found.prefix = digest(found.prefix, &entry["role"]);
        let Some(blocks) = entry["content"].as_array_mut() else {
            // A string is one block of text.
            found.prefix = digest(
                found.prefix,
                &json!({"type": "text", "text": entry["content"]}),
            );
            continue;
        };
        let mut place = 0..;
        let mut refusal = None;
        blocks.retain(|block| {
            let place = place.next().unwrap_or(0);
            if block["type"] != "thinking" {
                found.prefix = digest(found.prefix, block);
                let tool = &block["tool"];
                let by_name = tool["type"] == "tool_reference";
                if adds_tool(block) && !(has(INLINE_TOOLS) || by_name && has(TOOL_CHANGES)) {
                    refusal = Some(format!("messages.{index}.content.{place}: Input tag 'tool_addition' is not expected"));
                }
                // A deferred tool counts once it is named.
                let named = listed.iter().filter(|it| by_name && it["name"] == tool["name"]);
                found.prefix = named.fold(found.prefix, digest);
                return true;
            }
            let clause = format!("messages.{index}.content.{place}: Invalid `signature` in `thinking` block");
            let signature = block["signature"].as_str().and_then(Signature::read);
            let Some(signature) = signature.filter(|_| block["thinking"] == THOUGHT) else {
                refusal.get_or_insert(clause);
                return true;
            };
            let is_stale = checks && found.is_stale(&signature);
            is_dropping |= is_stale && behavior == "drop_block";
            if is_stale && behavior == "error" {
                refusal.get_or_insert_with(|| {
                    format!(
                        "{clause}. The block is bound to a different conversation. Remove the block, or set \
                         `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires \
                         the `{BETA}` value in the `anthropic-beta` header."
                    )
                });
            }
            if is_stale || is_dropping {
                let kind = if is_dropping { "thinking_dropped" } else { "thinking_mismatch_allowed" };
                found.transformations.iter_mut().for_each(|told| {
                    told.push(json!({"type": kind, "path": format!("messages.{index}.content.{place}"),
                        "reason": "prefix_binding_mismatch"}));
                });
            }
            if !is_dropping {
                found.read_thinking(&signature);
            }
            !is_dropping
        });
        if let Some(message) = refusal {
            return Err(SimulatedRefusal::new(message));
        }
    }
    found.prefix = digest(found.prefix, &"assistant".into());
    Ok(found)
}

impl BoundReasoning {
    /// It stands behind another prefix, or behind thinking that did not stand there when it was made.
    fn is_stale(&self, signature: &Signature) -> bool {
        let is_first = self.run == 0;
        let follows = signature.previous == self.previous && signature.run >= self.run;
        signature.prefix != self.prefix || !is_first && !follows
    }
}

/// What is done with stale thinking: `error`, `drop_block` or `allow`.
fn read_behavior(
    body: &Value,
    headers: &HeaderMap,
    has_beta: bool,
) -> Result<String, SimulatedRefusal> {
    let binding = &body["thinking"]["block_binding"];
    if binding.is_null() {
        let key = headers
            .get("x-api-key")
            .or_else(|| headers.get(header::AUTHORIZATION));
        let is_old = key.is_some_and(|key| key.as_bytes().ends_with(OLD_ACCOUNT.as_bytes()));
        return Ok(if is_old { "allow" } else { "error" }.to_owned());
    }
    match binding["prefix_mismatch_behavior"].as_str() {
        Some(behavior @ ("error" | "drop_block")) if has_beta => Ok(behavior.to_owned()),
        _ => Err(SimulatedRefusal::new(
            "thinking.block_binding: Extra inputs are not permitted",
        )),
    }
}

/// The tools that count: a deferred one does not, before an entry names it.
fn read_tools(body: &Value) -> Value {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools
        .filter(|tool| tool["defer_loading"] != true)
        .cloned()
        .collect()
}

fn check_responses(body: &mut Value) -> BoundReasoning {
    let mut found = BoundReasoning {
        is_on: true,
        prefix: digest(digest(0, &body["tools"]), &body["text"]["format"]),
        ..BoundReasoning::default()
    };
    let mut told = Vec::new();
    if body["input"].is_string() {
        body["input"] = json!([{"role": "user", "content": body["input"]}]);
    }
    if let Some(items) = body["input"].as_array_mut() {
        items.retain(|item| {
            if item["type"] != "reasoning" {
                found.prefix = digest(found.prefix, &without_ids(item));
                return true;
            }
            let signature = item["encrypted_content"].as_str().and_then(Signature::read);
            let is_stale = signature.is_some_and(|it| it.prefix != found.prefix);
            if is_stale {
                told.push(json!({"type": "reasoning", "action": "removed", "reason": "prefix_mismatch", "id": item["id"]}));
            }
            !is_stale
        });
    }
    found.transformations = Some(told);
    found
}

/// An item without what clients leave out when they send it back.
fn without_ids(item: &Value) -> Value {
    let mut item = item.clone();
    if let Some(members) = item.as_object_mut() {
        members.retain(|key, _| !["id", "status"].contains(&key.as_str()));
        if members.get("type").is_none() {
            members.insert("type".to_owned(), "message".into());
        }
    }
    for part in item["content"].as_array_mut().into_iter().flatten() {
        if let Some(members) = part.as_object_mut() {
            members.remove("annotations");
        }
    }
    item
}

/// A digest that goes on from another. Cache markers do not count, nor does the order of keys.
fn digest(seed: u64, value: &Value) -> u64 {
    match value {
        Value::Array(values) => {
            let all = values.iter().fold(seed, digest);
            xxh3_64_with_seed(b"]", all)
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members
                .iter()
                .filter(|(key, _)| *key != "cache_control")
                .collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            let all = members.into_iter().fold(seed, |seed, (key, value)| {
                digest(xxh3_64_with_seed(key.as_bytes(), seed), value)
            });
            xxh3_64_with_seed(b"}", all)
        }
        plain => xxh3_64_with_seed(plain.to_string().as_bytes(), seed),
    }
}
