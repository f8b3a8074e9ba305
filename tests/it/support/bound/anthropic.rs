//! The check of Anthropic's Messages, and the signatures of its answers.

use serde_json::{Value, json};

use super::{
    BoundModel, Host, Verdict, older_rule,
    prefix::{Prefix, Thought, digest, digest_thinking, signature_key},
    settings::{BETA, Behavior, ModelVersion},
    signature::Signature,
    summary::find_bad_summary,
};

const PREFIX: &str = "prefix_binding_mismatch";
const MISSING: &str = " The `thinking` block that preceded this one when it was created is missing from this request.";

/// Why a block is stale.
struct Mismatch {
    reason: &'static str,
    /// The last sentence of the refusal, with a space before it, or empty.
    tail: String,
}

impl BoundModel {
    pub(super) fn judge_messages(&self, body: Value, model: String, betas: &str) -> Verdict {
        let mut verdict = Verdict::new(Value::Null, model);
        self.judge_thinking(&body, betas, &mut verdict);
        verdict.body = body;
        verdict
    }

    fn judge_thinking(&self, body: &Value, betas: &str, verdict: &mut Verdict) {
        let version = ModelVersion::read(&verdict.model);
        verdict.tells = self.has_beta(body, betas);
        let behavior = match self.read_behavior(version.as_ref(), body, betas) {
            Ok(behavior) => behavior,
            Err(message) => {
                verdict.refuse(message);
                return;
            }
        };
        let checks = version.as_ref().is_some_and(ModelVersion::checks);
        if let Some(message) = older_rule::find_broken_turn(body).filter(|_| !checks) {
            verdict.refuse(message);
        }
        let bad_change = self.find_bad_tool_change(version.as_ref(), body, betas);
        for message in bad_change
            .into_iter()
            .chain(find_bad_summary(self, body, betas))
        {
            verdict.refuse(message);
        }
        let prefix = Prefix::read(body, self.equates_strings);
        let mut is_behind_failure = false;
        let mut previous: Option<u64> = None;
        for thought in &prefix.thoughts {
            let (path, block) = (&thought.path(), thought.block);
            let kind = block["type"].as_str().unwrap_or_default();
            let clause = format!(
                "{path}: Invalid `{}` in `{kind}` block",
                signature_key(block)
            );
            let signature = block[signature_key(block)]
                .as_str()
                .and_then(Signature::read);
            let signature = signature.filter(|it| it.content == digest_thinking(block));
            let Some(signature) = signature else {
                verdict.fail(path, clause.clone());
                verdict.refuse(clause);
                continue;
            };
            if let Some(reason) = self.find_foreign(&signature, version.as_ref()) {
                verdict.drop_block("thinking_dropped", path, reason);
                continue;
            }
            let fault = if checks {
                self.find_mismatch(&prefix, thought, &signature, previous, verdict.ids.len())
            } else {
                None
            };
            previous = Some(signature.id());
            let reason = fault.as_ref().map_or(PREFIX, |it| it.reason);
            if let Some(Mismatch { tail, .. }) = &fault {
                let field = self.field();
                let message = format!(
                    "{clause}. The block is bound to a different conversation. Remove the block, or set \
                     `thinking.block_binding.{field}` to \"drop_block\". That setting requires the `{BETA}` value in \
                     the `anthropic-beta` header.{tail}"
                );
                verdict.fail(path, message.clone());
                if behavior == Behavior::Error {
                    verdict.refuse(message);
                }
            }
            is_behind_failure |= fault.is_some();
            match behavior {
                Behavior::DropBlock if is_behind_failure => {
                    verdict.drop_block("thinking_dropped", path, reason)
                }
                Behavior::Allow if fault.is_some() => {
                    verdict.drop_block("thinking_mismatch_allowed", path, reason);
                    verdict.keep(path, &signature);
                }
                _ => verdict.keep(path, &signature),
            }
        }
        verdict.digests = prefix.digests;
    }

    /// Why the model cannot read a block of another; such a block is left out without an error.
    fn find_foreign(
        &self,
        signature: &Signature,
        model: Option<&ModelVersion>,
    ) -> Option<&'static str> {
        let name = model.map(ModelVersion::to_name).unwrap_or_default();
        let is_bound = model.is_some_and(ModelVersion::binds_organization);
        match () {
            () if signature.model != name => Some("model_binding_mismatch"),
            () if is_bound && signature.organization != self.organization => {
                Some("organization_binding_mismatch")
            }
            () => None,
        }
    }

    /// `previous` is the block before it, and `run` how many there are.
    fn find_mismatch(
        &self,
        prefix: &Prefix<'_>,
        thought: &Thought<'_>,
        signature: &Signature,
        previous: Option<u64>,
        run: usize,
    ) -> Option<Mismatch> {
        let is_changed = |tail: &str| {
            Some(Mismatch {
                reason: PREFIX,
                tail: tail.to_owned(),
            })
        };
        if signature.end_user != self.end_user(prefix) {
            return Some(Mismatch {
                reason: "end_user_binding_mismatch",
                tail: String::new(),
            });
        }
        if signature.system != prefix.digests.system {
            return is_changed(
                " The `system` prompt differs from the one this block was created with.",
            );
        }
        if signature.tools != prefix.digests.tools {
            return is_changed(" The `tools` differ from the ones this block was created with.");
        }
        let now = prefix.position(thought);
        if (now.older, &now.recent) != (signature.older, &signature.recent) {
            return is_changed(&tell_difference(prefix, thought, signature, &now.recent));
        }
        match previous {
            None => None,
            // One that was left out was put back.
            Some(_) if run > signature.run => is_changed(""),
            found if found == signature.previous => None,
            _ => is_changed(MISSING),
        }
    }

    /// The answer to a judged request, with signatures.
    pub(super) fn answer_messages(&self, verdict: &Verdict, mut content: Vec<Value>) -> Value {
        mark_calls(&mut content);
        for block in &mut content {
            if block["type"] == "redacted_thinking" {
                block["data"] = "".into();
            }
        }
        let entry = json!({"role": "assistant", "content": content});
        let digests = verdict.digests.clone();
        let mut prefix = Prefix::go_on(digests, &verdict.body, self.equates_strings);
        prefix.add(verdict.body["messages"].as_array().unwrap().len(), &entry);
        let version = ModelVersion::read(&verdict.model);
        let mut ids = verdict.ids.clone();
        for thought in &prefix.thoughts {
            let position = prefix.position(thought);
            let signature = Signature {
                model: version
                    .as_ref()
                    .map(ModelVersion::to_name)
                    .unwrap_or_default(),
                organization: self.organization,
                end_user: self.end_user(&prefix),
                content: digest_thinking(thought.block),
                system: prefix.digests.system,
                tools: prefix.digests.tools,
                older: position.older,
                recent: position.recent,
                previous: ids.last().copied(),
                run: ids.len(),
                ..Signature::default()
            };
            ids.push(signature.id());
            content[thought.place][signature_key(thought.block)] = signature.write().into();
        }
        let is_call = |block: &Value| block["type"] == "tool_use";
        let stop = if content.iter().any(is_call) {
            "tool_use"
        } else {
            "end_turn"
        };
        let mut message = json!({"id": format!("msg_{:016x}", digest([&verdict.body])), "type": "message",
            "role": "assistant", "model": verdict.body["model"], "content": content, "stop_reason": stop,
            "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 10}});
        if verdict.tells {
            message["input_transformations"] = verdict.transformations.clone().into();
        }
        message
    }

    /// Bedrock binds the end user, unless the request says no.
    fn end_user(&self, prefix: &Prefix<'_>) -> u64 {
        match self.host {
            Host::Anthropic => 0,
            Host::Bedrock => prefix.digests.end_user,
        }
    }
}

/// The id of a call tells how many thinking blocks stand before it in its answer (`older_rule`).
fn mark_calls(content: &mut [Value]) {
    let mut thoughts = 0;
    for block in content {
        match block["type"].as_str() {
            Some("tool_use") => {
                let id = block["id"].as_str().unwrap_or_default();
                block["id"] = format!("{}{thoughts}_{id}", older_rule::CALL_MARK).into();
            }
            Some("thinking" | "redacted_thinking") => thoughts += 1,
            _ => {}
        }
    }
}

fn tell_difference(
    prefix: &Prefix<'_>,
    thought: &Thought<'_>,
    signature: &Signature,
    now: &[u32],
) -> String {
    let shared = now.len().min(signature.recent.len());
    let units = &prefix.digests.units[thought.before - shared..thought.before];
    let pairs = now[now.len() - shared..]
        .iter()
        .zip(&signature.recent[signature.recent.len() - shared..]);
    let differing = pairs.zip(units).find(|((now, then), _)| now != then);
    match (differing, units.first()) {
        (Some((_, unit)), _) => format!(
            " Content before this block differs from when it was created, first at `{}`.",
            unit.path()
        ),
        (None, Some(unit)) => {
            format!(
                " A message older than `{}` differs from when this block was created.",
                unit.path()
            )
        }
        (None, None) => String::new(),
    }
}
