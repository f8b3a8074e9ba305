//! The usual reply rules: an agent's model that uses the client's tools, and follows the proxy's
//! notices, ignores them, or follows every second one.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::{ModelCall, ModelReply, ModelRequest, PROXY_TOOLS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeManner {
    /// Writes a reminder at every notice, and calls `clear_mind` at the last.
    Follows,
    /// Ignores every notice.
    Ignores,
    /// Writes at every second notice, and never calls `clear_mind`.
    HalfFollows,
}

/// How calls of proxy tools are mixed with calls of client tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixing {
    Never,
    /// Proxy calls come first.
    Before,
    /// Client calls come first.
    After,
}

/// A worker: usually one call, now and then two, and an answer in text at the end of every turn;
/// the same replies in every run.
pub(crate) struct Worker {
    pub(crate) manner: NoticeManner,
    pub(crate) mixing: Mixing,
    /// Steps of one turn; the last is text.
    pub(crate) turn: u32,
    /// The beginning of what it writes down.
    pub(crate) note: &'static str,
    done: AtomicU32,
    notices: AtomicU32,
    ids: AtomicU32,
}

impl Worker {
    pub(crate) fn new(manner: NoticeManner, mixing: Mixing) -> Self {
        Self {
            manner,
            mixing,
            turn: 8,
            note: "first:",
            done: AtomicU32::new(0),
            notices: AtomicU32::new(0),
            ids: AtomicU32::new(0),
        }
    }

    pub(crate) fn compose_reply(&self, heard: &ModelRequest<'_>) -> ModelReply {
        let own = self.compose_proxy_calls(heard);
        let block = heard.notice.as_ref().is_some_and(|it| it.block) && self.obeys_notice();
        if !own.is_empty() && self.mixing == Mixing::Never {
            return ModelReply::calls(own);
        }
        let (mut text, calls) = self.compose_work(heard);
        if block {
            let nth = self.ids.fetch_add(1, Ordering::SeqCst);
            text.push_str(&format!(
                "\n\n<continuation_package>\n{} step {nth}\nverify: run the tests\n\
                 </continuation_package>",
                self.note
            ));
        }
        ModelReply::Says(
            text,
            match self.mixing {
                Mixing::After => [calls, own].concat(),
                _ => [own, calls].concat(),
            },
        )
    }

    /// Counts a notice, and returns whether the model follows it.
    fn obeys_notice(&self) -> bool {
        let nth = self.notices.fetch_add(1, Ordering::SeqCst);
        match self.manner {
            NoticeManner::Follows => true,
            NoticeManner::Ignores => false,
            NoticeManner::HalfFollows => nth % 2 == 1,
        }
    }

    fn compose_proxy_calls(&self, heard: &ModelRequest<'_>) -> Vec<ModelCall> {
        let Some(notice) = heard.notice.as_ref().filter(|it| it.notes) else {
            return Vec::new();
        };
        if !heard.offers_tool("add_reminder") || !self.obeys_notice() {
            return Vec::new();
        }
        let nth = self.done.load(Ordering::SeqCst);
        if self.manner == NoticeManner::Follows
            && notice.left == Some(1)
            && heard.offers_tool("clear_mind")
        {
            let last = json!({"reminder_content": format!("last: go on after step {nth}")});
            return vec![self.make_call("clear_mind", &last)];
        }
        let content = format!(
            "{} go on after step {nth}; pointers: src/hull.rs; verify: cargo test; detail: the \
             datum is in metres",
            self.note
        );
        vec![self.make_call("add_reminder", &json!({ "content": content }))]
    }

    /// The next step of the work.
    fn compose_work(&self, heard: &ModelRequest<'_>) -> (String, Vec<ModelCall>) {
        let nth = self.done.fetch_add(1, Ordering::SeqCst);
        let offered = heard.offered_tools();
        let tool = offered.iter().find(|name| !PROXY_TOOLS.contains(name));
        let choice = &heard.body["tool_choice"];
        let tool = tool.filter(|_| choice != "none" && nth % self.turn != self.turn - 1);
        let Some(tool) = tool else {
            return (format!("Step {nth} is done; the plan holds."), Vec::new());
        };
        let both = nth % 5 == 3 && heard.body["parallel_tool_calls"] != false;
        let count = if both { 2 } else { 1 };
        let calls = (0..count).map(|part| {
            let path = format!("src/deck_{nth}_{part}.rs");
            self.make_call(tool, &json!({ "path": path }))
        });
        (String::new(), calls.collect())
    }

    fn make_call(&self, name: &str, arguments: &serde_json::Value) -> ModelCall {
        let id = self.ids.fetch_add(1, Ordering::SeqCst);
        ModelCall::new(&format!("call_{id}"), name, arguments)
    }
}
