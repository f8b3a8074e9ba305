//! The provider's own clearing of tool results (`clear_tool_uses_20250919` in Messages), before which nothing is edited,
//! so that thinking stays valid. A guard steers it by `keep`, so that what is cleared stands still between two clearings;
//! where clearing does not free enough, whole steps go.

use bytes::Bytes;
use serde_json::Value;

use super::{Setting, forty_lines::FortyLines};
use crate::support::block_cache::BlockCache;

/// What the provider puts in place of a result.
const CLEARED: &str = "[tool result cleared to save context]";
/// Newest results that are never cleared, by the provider's default.
const KEPT: usize = 3;
/// Where clearing leaves more of the window, whole steps go.
const ENOUGH: f64 = 0.7;

/// The provider's clearing, and a guard of a few lines for the rest.
#[derive(Default)]
pub(super) struct NativeClearing {
    /// Results cleared, from the oldest of the client's.
    cleared: usize,
    steps: FortyLines,
}

impl NativeClearing {
    /// What is sent, and what is left of it before the model reads it.
    pub(super) fn fit(
        &mut self,
        body: &Bytes,
        setting: &Setting<'_>,
        cache: &mut BlockCache<'_>,
        made: &[u64],
    ) -> (Bytes, Bytes) {
        let body: Value = serde_json::from_slice(body).expect("a body is JSON");
        let window = u64::from(setting.window);
        let mut count = |steps: &FortyLines, cleared: usize| {
            let left = steps.apply(&clear_results(&body, cleared), "messages", setting.past);
            cache.count(&setting.read(&left, made))
        };
        if count(&self.steps, self.cleared) > window * 9 / 10 {
            let most = find_results(&mut body.clone()).len();
            let most = most.saturating_sub(KEPT).max(self.cleared);
            let (mut shallow, mut deep) = (self.cleared, most);
            while deep > shallow + 1 {
                let middle = usize::midpoint(shallow, deep);
                if count(&self.steps, middle) > window / 2 {
                    shallow = middle
                } else {
                    deep = middle
                }
            }
            self.cleared = deep;
            if count(&self.steps, deep) > (window as f64 * ENOUGH) as u64 {
                let left = clear_results(&body, deep);
                self.steps.cut(&left, setting, cache, made);
            }
        }
        let sent = self.steps.apply(&body, "messages", setting.past);
        let cleared = clear_results(&body, self.cleared);
        let left = self.steps.apply(&cleared, "messages", setting.past);
        (sent, left)
    }
}

fn clear_results(body: &Value, count: usize) -> Value {
    let mut body = body.clone();
    let results = find_results(&mut body);
    for result in results.into_iter().take(count) {
        result["content"] = CLEARED.into();
    }
    body
}

fn find_results(body: &mut Value) -> Vec<&mut Value> {
    let entries = body["messages"].as_array_mut().into_iter().flatten();
    let blocks = entries.filter_map(|entry| entry["content"].as_array_mut());
    let results = blocks.flatten().filter(|it| it["type"] == "tool_result");
    results.collect()
}
