//! The client of a session: an agent of its API, with results of any length, questions in the midst of a turn, and
//! system entries.

use serde_json::{Value, json};

use super::{
    super::{
        agent::{Agent, AgentGeneration, words},
        bound::BoundApi,
        client::TestClient,
        generate::Random,
        messages_agent::MessagesAgent,
        responses_agent::{ResponsesAgent, user_entry},
    },
    draw::DrawnSession,
};

/// What each request must still have: what the user said last, and the newest results.
#[derive(Debug, Default)]
pub(super) struct NewestParts {
    pub(super) said: Option<String>,
    pub(super) call_ids: Vec<String>,
}

pub(super) enum SessionClient {
    Messages(MessagesAgent),
    Responses(ResponsesAgent),
    Chat(Agent),
}

impl SessionClient {
    pub(super) fn new(session: &DrawnSession, client: TestClient) -> Self {
        let name = format!("up/{}", session.model.name);
        let mut this = match session.api {
            BoundApi::Messages => Self::Messages(MessagesAgent::new(client)),
            BoundApi::Responses => Self::Responses(ResponsesAgent::new(client)),
            _ => Self::Chat(Agent::new(client)),
        };
        let fields = this.fields();
        fields["model"] = name.into();
        fields["stream"] = session.streams.into();
        let cap = match session.api {
            BoundApi::Responses => "max_output_tokens",
            _ => "max_tokens",
        };
        if let Some(tokens) = session.max_tokens {
            fields[cap] = tokens.into();
        }
        if session.model.thinks_first {
            fields["max_tokens"] = 2_048.into();
            fields["thinking"] = json!({"type": "enabled", "budget_tokens": 1_024});
        } else if session.api == BoundApi::Messages && session.model.checks {
            fields["thinking"] = json!({"type": "adaptive"});
        }
        if session.annotates {
            this.annotate_start();
        }
        if session.leads_with_system {
            let fields = this.fields();
            let mut entry = user_entry(fields["instructions"].as_str().unwrap());
            entry["role"] = "developer".into();
            fields.as_object_mut().unwrap().remove("instructions");
            fields["input"].as_array_mut().unwrap().insert(0, entry);
        }
        this
    }

    pub(super) fn connect_to(&mut self, client: TestClient) {
        match self {
            Self::Messages(agent) => agent.client = client,
            Self::Responses(agent) => agent.client = client,
            Self::Chat(agent) => agent.client = client,
        }
    }

    fn fields(&mut self) -> &mut Value {
        match self {
            Self::Messages(agent) => &mut agent.fields,
            Self::Responses(agent) => &mut agent.fields,
            Self::Chat(agent) => &mut agent.fields,
        }
    }

    fn annotate_start(&mut self) {
        let note = json!({"name": "notes", "priority": "low"});
        let text = "The harbour was built of oak. ".repeat(12);
        match self {
            Self::Messages(agent) => {
                let system = agent.fields["system"].as_array_mut().unwrap();
                system.push(json!({"type": "text", "text": text, "plimsoll": note}));
            }
            Self::Chat(agent) => {
                let system = agent.messages[0]["content"].clone();
                agent.messages[0]["content"] = json!([{"type": "text", "text": system},
                    {"type": "text", "text": text, "plimsoll": note}]);
            }
            Self::Responses(agent) => {
                let content = &mut agent.fields["input"][0]["content"];
                let part = json!({"type": "input_text", "text": text, "plimsoll": note});
                content.as_array_mut().unwrap().push(part);
            }
        }
    }

    pub(super) async fn ask(&self) -> AgentGeneration {
        match self {
            Self::Messages(agent) => agent.ask().await,
            Self::Responses(agent) => agent.ask().await,
            Self::Chat(agent) => agent.ask().await,
        }
    }

    /// Sends the last request again, with the least answer, which only warms the provider's cache.
    pub(super) async fn repeat(&mut self, api: BoundApi, says: bool) -> AgentGeneration {
        let before = self.fields().clone();
        let fields = self.fields();
        match api {
            BoundApi::Messages => fields["max_tokens"] = usize::from(!says).into(),
            _ if says => fields["prompt_cache_options"] = json!({"prewarm": true}),
            BoundApi::Responses => fields["max_output_tokens"] = 16.into(),
            _ => fields["max_tokens"] = 1.into(),
        }
        let answer = self.ask().await;
        *self.fields() = before;
        answer
    }

    /// Asks the provider to clear all results but those of the newest calls; of one request to the next, more calls.
    pub(super) fn clear_results(&mut self, calls: usize) {
        let count = |value: usize| json!({"type": "tool_uses", "value": value});
        self.fields()["context_management"] = json!({"edits": [
            {"type": "clear_thinking_20251015", "keep": "all"},
            {"type": "clear_tool_uses_20250919", "trigger": count(2 + calls), "keep": count(1 + calls),
                "clear_at_least": {"type": "input_tokens", "value": 1}, "exclude_tools": []},
        ]});
    }

    /// Appends an answer, the results of its calls, and what the user says.
    pub(super) fn go_on(
        &mut self,
        session: &DrawnSession,
        answer: &AgentGeneration,
        nth: usize,
        newest: &mut NewestParts,
    ) {
        let mut random = Random::for_part(session.seed, 10_000 + nth as u64);
        let mut result = |at: usize| {
            let tokens = session.result * random.between(20, 180) / 100;
            let tokens = if random.chance(4) {
                session.window as usize / 6
            } else {
                tokens
            };
            words(tokens.max(2), 10 * nth + at)
        };
        let (message, mut calls) = (&answer.message, 0);
        newest.call_ids.clear();
        let mut next = |id: &Value| {
            calls += 1;
            newest.call_ids.extend(id.as_str().map(str::to_owned));
            (id.clone(), result(calls))
        };
        match self {
            Self::Messages(agent) => {
                let content = message["content"].as_array().unwrap();
                let ids = content.iter().filter(|block| block["type"] == "tool_use");
                let results: Vec<Value> = ids
                    .map(|block| next(&block["id"]))
                    .map(|(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
                    .collect();
                agent.push("assistant", content.clone());
                if !results.is_empty() {
                    agent.push("user", results);
                }
            }
            Self::Chat(agent) => {
                agent.messages.push(message.clone());
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let (id, text) = next(&call["id"]);
                    let result = json!({"role": "tool", "tool_call_id": id, "content": text});
                    agent.messages.push(result);
                }
            }
            Self::Responses(agent) => {
                let mut items = message["output"].as_array().unwrap().clone();
                let ids = items.iter().filter(|item| item["call_id"].is_string());
                let outputs: Vec<Value> = ids
                    .map(|item| next(&item["call_id"]))
                    .map(|(id, text)| json!({"type": "function_call_output", "call_id": id, "output": text}))
                    .collect();
                if !session.keeps_ids {
                    for item in &mut items {
                        item.as_object_mut().unwrap().remove("id");
                    }
                }
                agent.push(items.into_iter().chain(outputs));
            }
        }
        let mut random = Random::for_part(session.seed, 20_000 + nth as u64);
        let speaks_openly = !matches!(session.api, BoundApi::ReasoningDetails);
        if calls == 0 || speaks_openly && random.chance(8) {
            let annotated = session.annotates && random.chance(40);
            let said = format!("Well done. Now part {nth}.");
            self.say(&said, annotated);
            newest.said = Some(said);
            // What the results led to is the user's turn now.
            newest.call_ids.clear();
        }
        if session.model.takes_system && random.chance(6) {
            self.say_as_system(&format!("Reminder {nth}: the sea is rough today."));
        }
    }

    /// The user says something; where results came just now, beside them.
    fn say(&mut self, text: &str, annotated: bool) {
        let note = json!({"name": "docs", "priority": "medium"});
        let more = "The mast was made in the north. ".repeat(10);
        let mut texts = vec![json!({"type": "text", "text": text})];
        if annotated {
            texts.push(json!({"type": "text", "text": more, "plimsoll": note}));
        }
        match self {
            Self::Messages(agent) => {
                let entries = agent.fields["messages"].as_array_mut().unwrap();
                match entries.last_mut().filter(|it| it["role"] == "user") {
                    Some(last) => last["content"].as_array_mut().unwrap().extend(texts),
                    None => agent.push("user", texts),
                }
            }
            Self::Chat(agent) => agent
                .messages
                .push(json!({"role": "user", "content": texts})),
            Self::Responses(agent) => {
                let mut entry = user_entry(text);
                if annotated {
                    let part = json!({"type": "input_text", "text": more, "plimsoll": note});
                    entry["content"].as_array_mut().unwrap().push(part);
                }
                agent.push([entry]);
            }
        }
    }

    fn say_as_system(&mut self, text: &str) {
        match self {
            Self::Messages(agent) => agent.push("system", text),
            Self::Chat(agent) => agent
                .messages
                .push(json!({"role": "system", "content": text})),
            Self::Responses(agent) => {
                let mut entry = user_entry(text);
                entry["role"] = "developer".into();
                agent.push([entry]);
            }
        }
    }
}
