//! A provider of models whose thinking is bound to what stood before it, as the APIs document it.
//!
//! Anthropic refuses thinking whose conversation was changed ("Preserved thinking"), OpenAI leaves such reasoning out
//! ("Preserved reasoning"), gateways pass Anthropic's on in chat completions. [`BoundModel::judge`] reads a request and
//! says which reasoning is stale and what the API answers; [`BoundModel::answer`] writes an answer whose reasoning is
//! signed for this request. Nothing is kept between the two: all that is compared later stands in the signature.
//! It shares no code with the proxy.

mod anthropic;
mod chat;
mod older_rule;
mod openai;
mod prefix;
mod settings;
mod signature;
mod summary;
#[cfg(test)]
mod tests;
mod tool_changes;
mod write;

use serde_json::{Value, json};

use super::parse;
use prefix::Digests;
use signature::Signature;

pub(super) use tool_changes::offered_names;
pub(crate) use write::{to_events, to_history};

/// The API that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundApi {
    Messages,
    Responses,
    /// Chat completions at OpenRouter: `reasoning_details`.
    ReasoningDetails,
    /// Chat completions at LiteLLM: `thinking_blocks`.
    ThinkingBlocks,
}

/// Whether stale thinking is refused where the request says nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Made since 31 August 2026: it is.
    New,
    Old,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Anthropic,
    /// Another name of the field, betas in the body, and the end user is bound too.
    Bedrock,
}

#[derive(Clone, Debug)]
pub(crate) struct BoundModel {
    pub(crate) account: Account,
    pub(crate) host: Host,
    /// Sonnet and Haiku from 5.5 on bind to it.
    pub(crate) organization: u64,
    /// In place of the requested name, for a deployment whose name says nothing.
    pub(crate) serves: Option<String>,
    /// A text as a string and as the only block of a list are the same to the check. Not documented, so not assumed.
    pub(crate) equates_strings: bool,
    /// Why each request for a summary on demand is refused.
    pub(crate) order_fault: Option<&'static str>,
    /// Why each request with such a summary is refused.
    pub(crate) block_fault: Option<&'static str>,
}

impl Default for BoundModel {
    fn default() -> Self {
        Self {
            account: Account::New,
            host: Host::Anthropic,
            organization: 1,
            serves: None,
            equates_strings: false,
            order_fault: None,
            block_fault: None,
        }
    }
}

/// Reasoning that does not stand behind what it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Where it stands in the request; in chat, in the request that the gateway makes of it.
    pub(crate) path: String,
    /// The words of the refusal, whether or not it is refused.
    pub(crate) message: String,
}

/// What the API makes of a request.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// All stale reasoning, in order, also where it is accepted.
    pub(crate) failing: Vec<Failure>,
    /// The body of the 400; `None` where the request is answered.
    pub(crate) refusal: Option<Value>,
    /// The entries of `input_transformations`, whether or not the answer tells them.
    pub(crate) transformations: Vec<Value>,
    /// Reasoning that the model reads, in order, by its path.
    pub(crate) read: Vec<String>,
    /// Entries of `input` with reasoning of earlier turns, which the model forgets by its rule (Responses).
    forgotten: Vec<usize>,
    /// Whether the answer tells its transformations.
    tells: bool,
    /// The request, in chat what the gateway makes of it.
    body: Value,
    /// The name of the model that answers.
    model: String,
    /// The ids of what the model reads.
    ids: Vec<u64>,
    /// What stands before an answer, in Messages.
    digests: Digests,
}

impl Verdict {
    fn new(body: Value, model: String) -> Self {
        Self {
            failing: Vec::new(),
            refusal: None,
            transformations: Vec::new(),
            read: Vec::new(),
            forgotten: Vec::new(),
            tells: false,
            body,
            model,
            ids: Vec::new(),
            digests: Digests::default(),
        }
    }

    /// The message of the refusal.
    pub(crate) fn message(&self) -> &str {
        let message = self.refusal.as_ref().map(|it| &it["error"]["message"]);
        message.and_then(Value::as_str).unwrap_or_default()
    }

    /// What the model forgets: it is no part of the prompt.
    pub(crate) fn list_forgotten(&self) -> impl Iterator<Item = &Value> {
        self.forgotten.iter().map(|at| &self.body["input"][*at])
    }

    fn refuse(&mut self, message: impl Into<String>) {
        self.refusal.get_or_insert_with(|| {
            json!({"type": "error", "request_id": "req_1",
                "error": {"type": "invalid_request_error", "message": message.into()}})
        });
    }

    fn fail(&mut self, path: &str, message: String) {
        let path = path.to_owned();
        self.failing.push(Failure { path, message });
    }

    fn drop_block(&mut self, kind: &str, path: &str, reason: &str) {
        self.transformations
            .push(json!({"type": kind, "path": path, "reason": reason}));
    }

    fn keep(&mut self, path: &str, signature: &Signature) {
        self.read.push(path.to_owned());
        self.ids.push(signature.id());
    }
}

impl BoundModel {
    /// An account made before 31 August 2026.
    pub(crate) fn old() -> Self {
        let account = Account::Old;
        Self {
            account,
            ..Self::default()
        }
    }

    /// What the API makes of a request, for an answer and for a count of tokens alike. `betas` is the value of
    /// `anthropic-beta`.
    pub(crate) fn judge(&self, api: BoundApi, body: &[u8], betas: &str) -> Verdict {
        let body = parse::parse_value(body).unwrap_or_default();
        let model = self.serves.as_deref().or(body["model"].as_str());
        let model = model.unwrap_or_default().to_owned();
        match api {
            BoundApi::Messages => self.judge_messages(body, model, betas),
            BoundApi::Responses => Self::judge_responses(body, model),
            BoundApi::ReasoningDetails | BoundApi::ThinkingBlocks => {
                let mut verdict = self.judge_messages(chat::to_messages(&body), model, betas);
                verdict.refusal = verdict.refusal.map(|it| chat::wrap_refusal(&it));
                verdict
            }
        }
    }

    /// A whole answer to a judged request. `blocks` are blocks of a Messages answer without signatures: `thinking`,
    /// `redacted_thinking`, `text`, `tool_use`. An id of a call is given a mark by which a later request is judged.
    pub(crate) fn answer(&self, api: BoundApi, verdict: &Verdict, blocks: &[Value]) -> Value {
        let mut blocks = blocks.to_vec();
        if api == BoundApi::Responses {
            return self.answer_responses(verdict, &blocks);
        }
        if api != BoundApi::Messages {
            chat::order_blocks(&mut blocks);
        }
        let message = self.answer_messages(verdict, blocks);
        match api {
            BoundApi::Messages => message,
            _ => chat::to_completion(&message, api),
        }
    }
}
