//! What the proxy injects into a conversation: it stays valid, and nothing of the client's changes.

use super::{WireFormat, assert_system_messages_stay};
use crate::support::{
    annotate_randomly, any_settings,
    made::{make_injected, non_system_indices},
    plans::{apply_plan, assert_untouched, make_policy},
    without_annotations,
};
use plimsoll::{
    conversation::{BlockKind, Conversation, Format, Item, edit::Edits},
    guard::{
        self, SessionKnowledge, dropped_rounds,
        injections::{InjectionContent, InjectionRecord, Injections},
        profile::Profile,
    },
};
use serde_json::{Value, json};

impl WireFormat {
    /// Injections of every kind, as this format has them.
    pub(crate) fn make_recall(self, conversation: &Conversation, seed: u64) -> SessionKnowledge {
        let mut injections = make_injected(conversation, seed);
        self.translate_injections(&mut injections);
        // An answer whose reasoning stands before the outputs above it was one with these: nothing came between.
        let said = non_system_indices(conversation);
        injections.records.retain(|record| {
            let answer = said.get(record.place as usize);
            answer.is_none_or(|answer| !conversation.items[*answer].follows_reasoning)
        });
        SessionKnowledge {
            injections,
            ..SessionKnowledge::default()
        }
    }

    /// Rewrites the items of chat completions that rounds and calls have.
    pub(crate) fn translate_injections(self, injections: &mut Injections) {
        for record in &mut injections.records {
            match &mut record.what {
                InjectionContent::Round(turn) => {
                    for message in turn {
                        message.json = self.translate_item(&message.json);
                    }
                }
                InjectionContent::Calls { calls, results, .. } => {
                    for call in calls {
                        let made: Value = serde_json::from_str(&call.json).unwrap();
                        call.json = self.translate_call(&made).to_string().into();
                    }
                    for result in results {
                        *result = self.translate_item(result);
                    }
                }
                InjectionContent::Prompt(_)
                | InjectionContent::Tools { .. }
                | InjectionContent::Text { .. }
                | InjectionContent::Spoken { .. }
                | InjectionContent::DroppedRound { .. }
                | InjectionContent::HiddenPlaces(_) => {}
            }
        }
    }

    fn translate_item(self, item: &str) -> Box<str> {
        let made: Value = serde_json::from_str(item).unwrap();
        let (text, id) = (&made["content"], &made["tool_call_id"]);
        let calls = made["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| self.translate_call(call));
        let with_calls = |text: Value| std::iter::once(text).chain(calls);
        let list = match (self.format, made["role"].as_str()) {
            (Format::Messages, Some("tool")) => {
                vec![json!({"type": "tool_result", "tool_use_id": id, "content": text})]
            }
            (Format::Messages, Some("assistant")) => {
                let blocks = with_calls(json!({"type": "text", "text": text}));
                vec![json!({"role": "assistant", "content": blocks.collect::<Vec<_>>()})]
            }
            (Format::Responses, Some("tool")) => {
                vec![json!({"type": "function_call_output", "call_id": id, "output": text})]
            }
            (Format::Responses, Some("assistant")) => {
                with_calls(json!({"role": "assistant", "content": text})).collect()
            }
            _ => return item.into(),
        };
        let list: Vec<_> = list.iter().map(Value::to_string).collect();
        list.join(",").into()
    }

    fn translate_call(self, call: &Value) -> Value {
        let (id, name) = (&call["id"], &call["function"]["name"]);
        let arguments = call["function"]["arguments"].as_str().unwrap();
        match self.format {
            Format::Messages => {
                let input: Value = serde_json::from_str(arguments).unwrap();
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
            Format::Responses => {
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
            }
            _ => call.clone(),
        }
    }

    /// All properties of one request with injections by seed. The client echoes the reasoning of dropped rounds.
    pub(crate) fn check_injected(
        self,
        body: &[u8],
        window: u32,
        profile: &'static Profile,
        seed: u64,
    ) {
        let once = self.index(annotate_randomly(&self.read(body), seed));
        let mut knowledge = self.make_recall(&once, seed);
        let course = knowledge.injections.course.as_ref();
        let begin = course.map_or(0, |course| course.boundary as usize);
        let (before, dropped) = self.repeat_reasoning(&once, begin.max(1), seed);
        let places = |record: &InjectionRecord| record.place;
        knowledge.injections.records.extend(dropped);
        knowledge.injections.records.sort_by_key(places);
        let settings = any_settings(seed);
        let policy = make_policy(profile, window, &settings);
        let plan = guard::plan(&before, &policy, &knowledge);
        assert_eq!(plan.report.stood_back, None);
        let after = apply_plan(&before, &plan);
        assert_untouched(&before, &after, &plan, "injected");
        let sent = self.index(without_annotations(&self.index(after)));
        assert_system_messages_stay(&before, &sent, &plan, "injected");
        let shown = String::from_utf8_lossy(&sent.body);
        let broken = (self.broken_rules)(&without_annotations(&once), &sent.body, profile);
        assert_eq!(broken, [], "{shown}");
        let notes = shown.matches("[Course 2, by").count();
        assert_eq!(notes, usize::from(plan.report.course.is_some()), "{shown}");
        let repeats = sent.items.iter().any(|item| begins_twice(&sent, item));
        assert!(!repeats, "a block of a dropped round is sent: {shown}");
    }

    /// The same conversation, where some answers from place `begin` on begin with the reasoning of a round that was
    /// dropped, and the records of these.
    fn repeat_reasoning(
        self,
        conversation: &Conversation,
        begin: usize,
        seed: u64,
    ) -> (Conversation, Vec<InjectionRecord>) {
        let (mut edits, mut records) = (Edits::default(), Vec::new());
        for (place, at) in non_system_indices(conversation).into_iter().enumerate() {
            let blocks = conversation.blocks_of(&conversation.items[at]);
            let reasons = |kind: &BlockKind| matches!(kind, BlockKind::Reasoning(_));
            let first = blocks.first().filter(|first| reasons(&first.kind));
            if let Some(first) = first.filter(|_| place >= begin && (seed >> (place % 64)) & 1 == 1)
            {
                let block = String::from_utf8_lossy(conversation.span_bytes(first.span));
                edits.insert(first.span.start, format!("{block},"));
                let item = match self.format {
                    Format::Messages => format!(r#"{{"role":"assistant","content":[{block}]}}"#),
                    _ => block.into_owned(),
                };
                let dropped = dropped_rounds::drop_messages(self.format, &[&item]);
                records.extend(dropped.map(|what| InjectionRecord {
                    place: place as u32,
                    what,
                }));
            }
        }
        let body = edits.apply(&conversation.body).to_bytes();
        (self.index(body), records)
    }
}

/// Whether an answer begins with the same reasoning twice.
fn begins_twice(conversation: &Conversation, item: &Item) -> bool {
    let blocks = conversation.blocks_of(item);
    let reasons = |at: usize| matches!(blocks[at].kind, BlockKind::Reasoning(_));
    let bytes = |at: usize| conversation.span_bytes(blocks[at].span);
    blocks.len() > 1 && reasons(0) && reasons(1) && bytes(0) == bytes(1)
}
