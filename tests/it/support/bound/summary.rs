//! The API's summary on demand (beta `compact-2026-09-04`): what is refused, and what its block stands for in the check of
//! thinking. The block is signed with what was summarised, so that thinking behind it is compared as if that stood there.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    BoundModel, Host, Verdict,
    prefix::{Digests, RECENT, digest_without},
    settings::ModelVersion,
};

const BETA: &str = "compact-2026-09-04";
/// Members that cannot be combined with the request for a summary.
const REFUSED_BESIDE: [&str; 2] = ["context_management", "stop_sequences"];

/// What the signature of a block holds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Summary {
    /// Digest of the block without its signature.
    content: u64,
    system: u64,
    tools: u64,
    /// The role of the last summarised entry.
    pub(super) role: String,
    /// Own digests and folded ones of the newest units.
    pub(super) units: Vec<(u64, u64)>,
    /// The model that made it binds its thinking.
    binds: bool,
}

impl Summary {
    fn read(block: &Value) -> Option<Self> {
        let bytes = STANDARD.decode(block["signature"].as_str()?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The summary of a block behind which earlier thinking may stay: system and tools are as they were.
    pub(super) fn read_valid(block: &Value, digests: &Digests) -> Option<Self> {
        let (system, tools) = (digests.system, digests.tools);
        Self::read(block).filter(|it| it.binds && (it.system, it.tools) == (system, tools))
    }
}

fn is_summary(block: &Value) -> bool {
    block["type"] == "compaction" && block["signature"].is_string()
}

/// Why the API refuses a request for a summary.
fn find_bad_order(model: &BoundModel, body: &Value, has_beta: bool) -> Option<String> {
    if !has_beta || model.host == Host::Bedrock {
        return Some("compaction: Extra inputs are not permitted".to_owned());
    }
    let beside = REFUSED_BESIDE.iter().find(|name| !body[**name].is_null());
    if let Some(name) = beside {
        return Some(format!("compaction: cannot be combined with `{name}`"));
    }
    let entries = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let blocks = |entry: &Value| entry["content"].as_array().cloned().unwrap_or_default();
    let is_new = |entry: &&Value| !blocks(entry).iter().all(is_summary);
    let last = entries.iter().rfind(is_new);
    let has_call = |entry: &Value| blocks(entry).iter().any(|it| it["type"] == "tool_use");
    let fault = match last {
        None => "compaction_nothing_to_summarize",
        Some(last) if last["role"] == "assistant" && has_call(last) => "compaction_incomplete_turn",
        Some(_) => model.order_fault?,
    };
    Some(fault.to_owned())
}

/// Why the API refuses a request for a summary, or with one.
pub(super) fn find_bad_summary(model: &BoundModel, body: &Value, betas: &str) -> Option<String> {
    let has_beta = betas.split(',').any(|it| it.trim() == BETA);
    if !body["compaction"].is_null()
        && let Some(fault) = find_bad_order(model, body, has_beta)
    {
        return Some(fault);
    }
    let entries = body["messages"].as_array().into_iter().flatten();
    let places = entries.enumerate().flat_map(|(entry, message)| {
        let blocks = message["content"].as_array().into_iter().flatten();
        blocks
            .enumerate()
            .map(move |(place, it)| (entry, place, it))
    });
    let mut found = places.filter(|(_, _, block)| is_summary(block));
    let (entry, place, block) = found.next()?;
    let fault = match Summary::read(block) {
        _ if !has_beta || model.host == Host::Bedrock => {
            return Some(format!(
                "messages.{entry}.content.{place}: 'compaction' is not one of the expected content block types"
            ));
        }
        _ if found.next().is_some() => "compaction_block_ambiguous",
        _ if (entry, place) != (0, 0) => "compaction_block_misplaced",
        None => "compaction_signature_invalid",
        Some(it) if it.content != digest_without(block, "signature") => {
            "compaction_content_mismatch"
        }
        Some(_) => model.block_fault?,
    };
    Some(fault.to_owned())
}

impl BoundModel {
    /// The answer to a judged request for a summary.
    pub(crate) fn summarize(&self, verdict: &Verdict, text: &str) -> Value {
        let (body, digests) = (&verdict.body, &verdict.digests);
        let entries = body["messages"].as_array().into_iter().flatten();
        let role = entries.last().map_or(&Value::Null, |it| &it["role"]);
        let mut block = json!({"type": "compaction", "content": text,
            "encrypted_content": STANDARD.encode(text), "tool_changes": []});
        let newest = digests.units.len().saturating_sub(RECENT + 1);
        let newest = digests.units[newest..].iter();
        let summary = Summary {
            content: digest_without(&block, "signature"),
            system: digests.system,
            tools: digests.tools,
            role: role.as_str().unwrap_or_default().to_owned(),
            units: newest.map(|unit| (unit.digest, unit.folded)).collect(),
            binds: ModelVersion::read(&verdict.model).is_some_and(|it| it.checks()),
        };
        block["signature"] = STANDARD
            .encode(serde_json::to_string(&summary).unwrap())
            .into();
        let spent = json!({"type": "compaction", "input_tokens": 90, "output_tokens": 30});
        json!({"id": "msg_summary", "type": "message", "role": "assistant", "model": body["model"],
            "content": [block], "stop_reason": "compaction", "stop_sequence": null,
            "usage": {"input_tokens": 0, "output_tokens": 0, "iterations": [spent]}})
    }
}
