//! The model's replies: recognisable texts, calls of the client's tools, and sometimes what the
//! proxy's prompts ask for.

use serde_json::json;

use super::{conversation::provider_text, provider::ProviderRequest};
use crate::support::{ModelCall, PROXY_TOOLS, generate::Random};

impl ProviderRequest<'_> {
    /// Text, calls, and whether any of them is for the proxy.
    pub(crate) fn compose_answer(
        &self,
        seed: u64,
        number: u64,
        random: &mut Random,
    ) -> (String, Vec<ModelCall>, bool) {
        let block = |random: &mut Random, at: u64| {
            let length = random.weighted(&[(60, 80), (30, 600), (9, 3_000), (1, 30_000)]);
            provider_text(seed, self.marker, self.turn, number * 8 + at, length)
        };
        if let Some(key) = &self.summary {
            let text = format!(
                "<summary key=\"{key}\">\n<done>{} some leaks were mended.</done>\n<to_do>The bow.</to_do>\n\
                 <current_state>Afloat, {number}.</current_state>\n<key_context>src/hull.rs</key_context>\n\
                 <next_steps>Look at the keel.</next_steps>\n<cautions>none</cautions>\n</summary>",
                self.marker
            );
            return (text, Vec::new(), true);
        }
        let own = self.compose_proxy_calls(number, random);
        let ours = !own.is_empty();
        if ours && random.chance(50) {
            return (String::new(), own, true);
        }
        let tools = self.body["tools"].as_array().into_iter().flatten();
        let mut names = tools.filter_map(|tool| tool["function"]["name"].as_str());
        let tool = names.find(|name| !PROXY_TOOLS.contains(name));
        let mut calls = own;
        match tool.filter(|_| !self.turn.is_multiple_of(9)) {
            Some(tool) => {
                for at in 0..1 + u64::from(random.chance(20)) {
                    let path = format!("src/{}/deck_{number}.rs", self.marker);
                    let arguments = json!({"path": path, "block": block(random, at)});
                    calls.push(ModelCall::new(
                        &format!("call_{number}_{at}"),
                        tool,
                        &arguments,
                    ));
                }
                let text = random.chance(30).then(|| block(random, 4));
                (text.unwrap_or_default(), calls, ours)
            }
            None => {
                let mut text = block(random, 4);
                let asked = self.notice.as_ref().is_some_and(|notice| notice.block);
                let noted = asked && random.chance(70);
                if noted {
                    text += &format!(
                        "\n\n<continuation_package>\nfirst: {} step {number}\n</continuation_package>",
                        self.marker
                    );
                }
                (text, calls, ours || noted)
            }
        }
    }

    /// Calls of proxy tools, where they were asked for and the model complies.
    fn compose_proxy_calls(&self, number: u64, random: &mut Random) -> Vec<ModelCall> {
        let Some(notice) = self.notice.as_ref().filter(|notice| notice.notes) else {
            return Vec::new();
        };
        let names = self.body["tools"].to_string();
        if self.after_own || !names.contains("add_reminder") || !random.chance(60) {
            return Vec::new();
        }
        let (name, key) = match notice.left {
            Some(1) if random.chance(50) => ("clear_mind", "reminder_content"),
            _ => ("add_reminder", "content"),
        };
        let content = format!(
            "{} noted at step {number}: the datum is in metres",
            self.marker
        );
        let arguments = json!({ key: content });
        vec![ModelCall::new(&format!("own_{number}"), name, &arguments)]
    }
}
