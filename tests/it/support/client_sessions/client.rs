//! The client of a session: it writes its whole list anew for each request, and reads the answer.

use serde_json::{Value, json};

use super::{
    super::{
        agent::{Agent, AgentGeneration},
        client::TestClient,
        messages_agent::MessagesAgent,
        responses_agent::ResponsesAgent,
    },
    transcript::Wire,
};

/// The header by which the provider knows a session.
pub(super) const PLACE: &str = "x-test-place";

pub(crate) enum ListClient {
    Chat(Agent),
    Messages(MessagesAgent),
    Responses(ResponsesAgent),
}

/// What a client keeps of an answer.
#[derive(Debug)]
pub(crate) struct ReadAnswer {
    pub(crate) entries: Vec<Value>,
    /// The ids of its calls.
    pub(crate) calls: Vec<Value>,
    pub(crate) text: String,
}

impl ListClient {
    pub(crate) fn new(wire: Wire, client: TestClient, place: usize) -> Self {
        let this = match wire {
            Wire::Chat => Self::Chat(Agent::bare(client)),
            Wire::Messages => Self::Messages(MessagesAgent::new(client)),
            Wire::Responses => Self::Responses(ResponsesAgent::new(client)),
        };
        this.with(PLACE, &place.to_string())
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        let headers = match &mut self {
            Self::Chat(agent) => &mut agent.headers,
            Self::Messages(agent) => &mut agent.headers,
            Self::Responses(agent) => &mut agent.headers,
        };
        headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn fields(&mut self) -> &mut Value {
        match self {
            Self::Chat(agent) => &mut agent.fields,
            Self::Messages(agent) => &mut agent.fields,
            Self::Responses(agent) => &mut agent.fields,
        }
    }

    pub(crate) fn set_entries(&mut self, entries: Vec<Value>) {
        match self {
            Self::Chat(agent) => agent.messages = entries,
            Self::Messages(agent) => agent.fields["messages"] = entries.into(),
            Self::Responses(agent) => agent.fields["input"] = entries.into(),
        }
    }

    /// The body of the next request.
    pub(crate) fn body(&self) -> Vec<u8> {
        match self {
            Self::Chat(agent) => agent.body().into_bytes(),
            Self::Messages(agent) => agent.fields.to_string().into_bytes(),
            Self::Responses(agent) => agent.fields.to_string().into_bytes(),
        }
    }

    pub(crate) async fn ask(&self) -> AgentGeneration {
        match self {
            Self::Chat(agent) => agent.ask().await,
            Self::Messages(agent) => agent.ask().await,
            Self::Responses(agent) => agent.ask().await,
        }
    }

    /// What the client keeps of an answer; Responses without the ids of items, as Codex and opencode send them.
    pub(crate) fn read(&self, generation: &AgentGeneration) -> ReadAnswer {
        let message = &generation.message;
        let ids = |calls: &Value, key: &str| -> Vec<Value> {
            let calls = calls.as_array().into_iter().flatten();
            calls.map(|call| call[key].clone()).collect()
        };
        let of_kind = |list: &Value, kind: &str| -> Value {
            let list = list.as_array().into_iter().flatten();
            list.filter(|it| it["type"] == kind).cloned().collect()
        };
        let said = |blocks: &Value| -> String {
            let blocks = blocks.as_array().into_iter().flatten();
            blocks.filter_map(|block| block["text"].as_str()).collect()
        };
        match self {
            Self::Chat(_) => ReadAnswer {
                entries: vec![message.clone()],
                calls: ids(&message["tool_calls"], "id"),
                text: message["content"].as_str().unwrap_or_default().to_owned(),
            },
            Self::Messages(_) => {
                let content = &message["content"];
                ReadAnswer {
                    entries: vec![json!({"role": "assistant", "content": content})],
                    calls: ids(&of_kind(content, "tool_use"), "id"),
                    text: said(content),
                }
            }
            Self::Responses(_) => {
                let mut items = message["output"].as_array().unwrap().clone();
                for item in &mut items {
                    item.as_object_mut().unwrap().remove("id");
                }
                let items = Value::from(items);
                let texts = of_kind(&items, "message");
                let texts = texts.as_array().into_iter().flatten();
                ReadAnswer {
                    calls: ids(&of_kind(&items, "function_call"), "call_id"),
                    text: texts.map(|item| said(&item["content"])).collect(),
                    entries: items.as_array().unwrap().clone(),
                }
            }
        }
    }
}
