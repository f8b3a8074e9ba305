//! What the proxy reported of a session, none of which may be lost.

use serde_json::Value;

use super::run_state::RedisEpoch;
use crate::support::AgentGeneration;

/// The reported state of a session, and so the least that it must know.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedSession {
    session: String,
    course: u32,
    reminders: u32,
    /// Of the newest answer, where it is certain.
    tokens: Option<u64>,
    /// Reported generations, and requests with an unknown end.
    least_generations: u64,
    uncertain_generations: u64,
    /// When the newest of them was stored.
    epoch: RedisEpoch,
}

impl ExpectedSession {
    /// A request without a known end: it may have been counted.
    pub(crate) fn count_uncertain(&mut self) {
        self.uncertain_generations += 1;
        self.tokens = None;
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Takes the report of a good answer, and compares it with earlier ones.
    ///
    /// # Errors
    /// If the session has lost something.
    pub(crate) fn check_answer(
        before: Option<&Self>,
        answer: &AgentGeneration,
        streams: bool,
        tide: RedisEpoch,
    ) -> Result<Self, String> {
        let head = |name: &str| {
            let value = answer.answer.headers.get(format!("x-plimsoll-{name}"));
            value.and_then(|it| it.to_str().ok())
        };
        let session = head("session").ok_or("an answer without a session")?;
        let tokens = answer
            .header("prompt-tokens")
            .and_then(|it| it.parse().ok());
        let now = Self {
            session: session.to_owned(),
            course: answer.course(),
            reminders: answer.number("reminders").unwrap_or(0),
            tokens,
            least_generations: before.map_or(1, |before| before.least_generations + 1),
            uncertain_generations: before.map_or(0, |before| before.uncertain_generations),
            epoch: tide,
        };
        if !streams && answer.usage["prompt_tokens"].as_u64() != tokens {
            return Err(format!("{tokens:?} tokens, and usage {}", answer.usage));
        }
        let Some(before) = before else {
            return Ok(now);
        };
        let told = head("prompt-tokens").unwrap_or("");
        let previous = streams && head("health-from") == Some("previous");
        let lost = previous && before.tokens.is_some_and(|it| told != it.to_string());
        if lost
            || now.session != before.session
            || now.course < before.course
            || now.reminders < before.reminders
        {
            return Err(format!(
                "state was lost: {before:?}, then {now:?} with {told:?} tokens before it"
            ));
        }
        Ok(now)
    }

    pub(crate) fn is_kept_at(&self, tide: RedisEpoch) -> bool {
        self.epoch.is_kept_at(tide)
    }

    /// Compares the API's session with the known state.
    pub(crate) fn matches_report(&self, report: &Value) -> bool {
        let generations = report["generations"].as_u64().unwrap_or(0);
        report["id"] == self.session.as_str()
            && generations >= self.least_generations
            && report["course"].as_u64() >= Some(u64::from(self.course))
            && report["reminder_count"].as_u64() >= Some(u64::from(self.reminders))
    }
}
