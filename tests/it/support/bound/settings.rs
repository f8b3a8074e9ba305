//! Which models check, and what a request may say about it.

use serde_json::Value;

use super::{Account, BoundModel, Host};

pub(super) const BETA: &str = "thinking-binding-controls-2026-08-01";

/// What is done with stale thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    Error,
    DropBlock,
    /// It is read.
    Allow,
}

/// Family and version in a model's name. A date is no minor version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelVersion {
    pub(super) family: &'static str,
    pub(super) version: (u32, u32),
}

impl ModelVersion {
    pub(super) fn read(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let families = ["opus", "sonnet", "haiku", "fable", "mythos", "saga", "gpt"];
        let family = families.into_iter().find(|family| name.contains(family))?;
        let behind = name.split_once(family)?.1.strip_prefix('-')?;
        let is_digit = |it: char| it.is_ascii_digit();
        let mut parts = behind.split(['-', '.']);
        let mut number = || {
            let part = parts.next()?;
            let digits: String = part.chars().take_while(|it| is_digit(*it)).collect();
            digits.parse().ok().filter(|_| digits.len() < 3)
        };
        let version = (number()?, number().unwrap_or(0));
        Some(Self { family, version })
    }

    /// Mythos 5.1 is bound and does not check.
    pub(super) fn checks(&self) -> bool {
        match self.family {
            "fable" => self.version >= (5, 1),
            "mythos" => self.version >= (5, 2),
            "gpt" => self.version >= (6, 2),
            // A family of a later day.
            "saga" => true,
            _ => self.version >= (5, 5),
        }
    }

    /// Its thinking belongs to the organization that asked for it.
    pub(super) fn binds_organization(&self) -> bool {
        matches!(self.family, "sonnet" | "haiku") && self.version >= (5, 5)
    }

    pub(super) fn to_name(&self) -> String {
        format!("{}-{}-{}", self.family, self.version.0, self.version.1)
    }
}

impl BoundModel {
    pub(super) fn has_beta(&self, body: &Value, betas: &str) -> bool {
        let in_body = body["anthropic_beta"].as_array().into_iter().flatten();
        let is_bedrock = self.host == Host::Bedrock;
        betas.split(',').any(|it| it.trim() == BETA)
            || is_bedrock && in_body.into_iter().any(|it| it == BETA)
    }

    pub(super) fn field(&self) -> &'static str {
        match self.host {
            Host::Anthropic => "prefix_mismatch_behavior",
            Host::Bedrock => "mismatch_behavior",
        }
    }

    /// What becomes of stale thinking.
    ///
    /// # Errors
    /// The settings are refused.
    pub(super) fn read_behavior(
        &self,
        model: Option<&ModelVersion>,
        body: &Value,
        betas: &str,
    ) -> Result<Behavior, String> {
        let thinking = &body["thinking"];
        let kind = thinking["type"].as_str().unwrap_or("adaptive");
        let checks = model.is_some_and(ModelVersion::checks);
        if let Some(model) = model.filter(|_| checks) {
            let is_taken = matches!(
                (kind, model.family),
                ("adaptive", _) | ("between_tools", "sonnet") | ("disabled", "haiku")
            );
            if !is_taken {
                return Err(format!(
                    "thinking.type: `{kind}` is not supported by this model"
                ));
            }
        }
        let binding = &thinking["block_binding"];
        let has_beta = self.has_beta(body, betas);
        if binding.is_null() {
            return Ok(match (checks, self.host, self.account) {
                (true, Host::Bedrock, _) if has_beta => Behavior::DropBlock,
                (true, _, Account::New) => Behavior::Error,
                _ => Behavior::Allow,
            });
        }
        let extra = |at: &str| {
            Err(format!(
                "thinking.{kind}.block_binding{at}: Extra inputs are not permitted"
            ))
        };
        if !has_beta || !matches!(kind, "adaptive" | "enabled") {
            return extra("");
        }
        let known = [
            self.field(),
            "bind_to_end_user",
            "bind_to_additional_organizations",
        ];
        let is_known =
            |key: &str| known[..if self.host == Host::Bedrock { 3 } else { 1 }].contains(&key);
        if let Some((key, _)) = binding
            .as_object()
            .into_iter()
            .flatten()
            .find(|(key, _)| !is_known(key))
        {
            return extra(&format!(".{key}"));
        }
        match binding[self.field()].as_str() {
            _ if !checks => Ok(Behavior::Allow),
            Some("error") => Ok(Behavior::Error),
            Some("drop_block") => Ok(Behavior::DropBlock),
            None if self.host == Host::Bedrock => Ok(Behavior::DropBlock),
            _ => Err(format!(
                "thinking.{kind}.block_binding.{}: Input should be 'error' or 'drop_block'",
                self.field()
            )),
        }
    }
}
