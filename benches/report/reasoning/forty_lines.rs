//! A guard of a few lines, beside which the proxy's is measured.

use bytes::Bytes;
use plimsoll::{config::profile::PastReasoning, conversation::Format};
use serde_json::Value;

use super::Setting;
use crate::support::block_cache::BlockCache;

/// The guard of a few lines, which counts as the provider does.
#[derive(Default)]
pub(super) struct FortyLines {
    /// Entries left out behind the task.
    cut: usize,
    /// The first entry made since.
    epoch: usize,
}

impl FortyLines {
    pub(super) fn fit(
        &mut self,
        body: &Bytes,
        setting: &Setting<'_>,
        cache: &mut BlockCache<'_>,
        made: &[u64],
    ) -> Bytes {
        let body: Value = serde_json::from_slice(body).expect("a body is JSON");
        let list = find_list(setting);
        let window = u64::from(setting.window);
        let mut sent = self.apply(&body, list, setting.past);
        if cache.count(&setting.read(&sent, made)) > window * 9 / 10 {
            self.cut(&body, setting, cache, made);
            sent = self.apply(&body, list, setting.past);
        }
        sent
    }

    /// The first cut that is deep enough.
    pub(super) fn cut(
        &mut self,
        body: &Value,
        setting: &Setting<'_>,
        cache: &mut BlockCache<'_>,
        made: &[u64],
    ) {
        let list = find_list(setting);
        let window = u64::from(setting.window);
        self.epoch = body[list].as_array().map_or(0, Vec::len);
        let (mut shallow, mut deep) = (self.cut, self.epoch.saturating_sub(2));
        while deep > shallow + 1 {
            self.cut = usize::midpoint(shallow, deep);
            let sent = self.apply(body, list, setting.past);
            if cache.count(&setting.read(&sent, made)) > window / 2 {
                shallow = self.cut
            } else {
                deep = self.cut
            }
        }
        self.cut = deep;
    }

    pub(super) fn apply(&self, body: &Value, list: &str, past: PastReasoning) -> Bytes {
        let mut body = body.clone();
        let entries = body[list].as_array_mut().expect("a list");
        let stale = self.epoch.min(entries.len());
        if past == PastReasoning::Refused {
            for entry in &mut entries[..stale] {
                if let Some(blocks) = entry["content"].as_array_mut() {
                    blocks.retain(|block| block["type"] != "thinking");
                }
            }
        }
        // Whole steps: what follows begins with an answer or the user's own words.
        let begins = |entry: &Value| {
            entry["type"] == "reasoning"
                || entry["role"] == "assistant"
                || entry["role"] == "user" && entry["content"][0]["type"] != "tool_result"
        };
        let mut end = 1 + self.cut;
        while end < entries.len() && !begins(&entries[end]) {
            end += 1;
        }
        entries.drain(1..end);
        Bytes::from(body.to_string())
    }
}

fn find_list(setting: &Setting<'_>) -> &'static str {
    match setting.format {
        Format::Messages => "messages",
        _ => "input",
    }
}
