//! Properties of plans for conversations that are not valid: calls and results are missing.

use std::collections::BTreeMap;

use plimsoll::{
    conversation::Format,
    guard::{self, SessionKnowledge, profile::Profile},
};
use serde_json::Value;

use super::{WireFormat, settings};
use crate::support::{
    generate::Random,
    parse,
    plans::{apply_plan, make_policy},
    strict::{self, Violation},
};

/// Entries that are taken out.
const DAMAGES: usize = 3;

impl WireFormat {
    /// What does not pair stays as it came, nothing else stops to pair, and the guard does not stand back.
    pub(crate) fn check_damaged(
        self,
        body: &[u8],
        window: u32,
        profile: &'static Profile,
        seed: u64,
    ) {
        let Some(body) = self.damage(body, seed) else {
            return;
        };
        let settings = settings();
        let before = self.index(body.clone().into());
        let policy = make_policy(profile, window, &settings);
        let plan = guard::plan(&before, &policy, &SessionKnowledge::default());
        assert_eq!(plan.report.stood_back, None);
        let after = apply_plan(&before, &plan);
        let (was, now) = (
            self.unpaired(&body, profile),
            self.unpaired(&after, profile),
        );
        let count = |found: &[Violation]| {
            let mut rules: BTreeMap<u8, usize> = BTreeMap::new();
            found
                .iter()
                .for_each(|it| *rules.entry(it.rule).or_default() += 1);
            rules
        };
        let known = count(&was);
        for (rule, count) in count(&now) {
            let known = known.get(&rule).copied().unwrap_or(0);
            assert!(count <= known, "rule {rule}: {was:?} {now:?}");
        }
        if self.format == Format::Messages {
            // Its checker names the entry behind.
            return;
        }
        let (before, after) = (self.entries(&body), self.entries(&after));
        for violation in was.iter().filter(|it| matches!(it.rule, 1 | 2)) {
            let odd = &before[violation.message];
            // A call may still get its output in Responses, and its arguments may be shortened in the newest step.
            let is_same = |it: &Value| it["call_id"] == odd["call_id"] && it["type"] == odd["type"];
            let stays = match self.format {
                Format::Responses => after.iter().any(is_same),
                _ => after.contains(odd),
            };
            assert!(stays, "{violation:?}: {odd}");
        }
    }

    fn list_name(self) -> &'static str {
        match self.format {
            Format::Responses => "input",
            _ => "messages",
        }
    }

    fn entries(self, body: &[u8]) -> Vec<Value> {
        let body = parse::parse_value(body).unwrap();
        body[self.list_name()].as_array().unwrap().clone()
    }

    /// The body without some entries that call or answer; `None` where there is no such entry.
    fn damage(self, body: &[u8], seed: u64) -> Option<Vec<u8>> {
        let mut random = Random::for_part(seed, 11);
        let mut parsed = parse::parse_value(body).ok()?;
        let entries = parsed[self.list_name()].as_array_mut()?;
        for _ in 0..DAMAGES {
            let is_part = |entry: &Value| {
                let text = entry.to_string();
                let words = [
                    "\"tool_call_id\"",
                    "\"tool_calls\"",
                    "\"call_id\"",
                    "\"tool_use",
                ];
                words.iter().any(|word| text.contains(word))
            };
            let parts: Vec<usize> = (1..entries.len())
                .filter(|&at| is_part(&entries[at]))
                .collect();
            if parts.is_empty() {
                return None;
            }
            entries.remove(parts[random.below(parts.len())]);
        }
        Some(parsed.to_string().into_bytes())
    }

    /// What does not pair.
    fn unpaired(self, body: &[u8], profile: &Profile) -> Vec<Violation> {
        let (mut found, rules) = match self.format {
            Format::Messages => (strict::messages::find_violations(body), [4, 8, 8]),
            Format::Responses => (strict::responses::find_violations(body), [1, 7, 7]),
            _ => (strict::find_violations(body, profile), [1, 2, 3]),
        };
        found.retain(|it| rules.contains(&it.rule));
        found
    }
}
