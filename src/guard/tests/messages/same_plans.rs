//! The same conversation as chat completions and as Messages has the same plan: the same units are folded, the same
//! results truncated and cleared.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::any_window;
use crate::{
    guard::{self, GuardMemory, Recall, profile::find_profile, tests::toy::without_digests},
    support::{
        any_settings,
        generate::Random,
        guard_properties::{CHAT, MESSAGES},
        made::{make_course, non_system_indices},
        plans::make_policy,
    },
};

/// A conversation in both formats, as lists of entries.
struct BothFormats {
    system: String,
    chat: Vec<Value>,
    /// With the number of chat messages up to the end of each entry.
    messages: Vec<(Value, usize)>,
}

impl BothFormats {
    fn generate(seed: u64, turns: usize) -> Self {
        let mut random = Random::new(seed);
        let mut made = Self {
            system: words(&mut random, 80),
            chat: Vec::new(),
            messages: Vec::new(),
        };
        made.say("user", words(&mut random, 30));
        for call in 0..turns {
            match random.below(4) {
                0 => {
                    made.say("assistant", words(&mut random, 30));
                    made.say("user", words(&mut random, 20));
                }
                _ => made.add_step(&mut random, call),
            }
        }
        made
    }

    fn say(&mut self, role: &str, text: String) {
        let entry = json!({"role": role, "content": text});
        self.chat.push(entry.clone());
        self.messages.push((entry, self.chat.len()));
    }

    fn add_step(&mut self, random: &mut Random, call: usize) {
        let said = words(random, 10);
        let ids: Vec<_> = (0..random.between(1, 3))
            .map(|at| format!("c{call}-{at}"))
            .collect();
        let input = json!({"path": format!("src/file_{call}.rs"), "text": words(random, 60)});
        let calls = ids.iter().map(|id| {
            json!({"id": id, "type": "function", "function": {"name": "read", "arguments": input.to_string()}})
        });
        self.chat.push(
            json!({"role": "assistant", "content": said, "tool_calls": calls.collect::<Vec<_>>()}),
        );
        let uses = ids
            .iter()
            .map(|id| json!({"type": "tool_use", "id": id, "name": "read", "input": input}));
        let text = std::iter::once(json!({"type": "text", "text": said}));
        let answer = json!({"role": "assistant", "content": text.chain(uses).collect::<Vec<_>>()});
        self.messages.push((answer, self.chat.len()));
        let mut blocks = Vec::new();
        for id in &ids {
            let length = random.weighted(&[(60, 30), (30, 300), (10, 3_000)]);
            let text = words(random, length);
            self.chat
                .push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            blocks.push(json!({"type": "tool_result", "tool_use_id": id, "content": text}));
        }
        if random.chance(30) {
            let text = words(random, 20);
            self.chat.push(json!({"role": "user", "content": text}));
            blocks.push(json!({"type": "text", "text": text}));
        }
        self.messages
            .push((json!({"role": "user", "content": blocks}), self.chat.len()));
    }

    /// The bodies of the request that ends with this entry.
    fn bodies(&self, end: usize) -> [Vec<u8>; 2] {
        let count = self.messages[end - 1].1;
        let system = json!({"role": "system", "content": self.system});
        let chat: Vec<_> = std::iter::once(&system)
            .chain(&self.chat[..count])
            .collect();
        let entries: Vec<_> = self.messages[..end].iter().map(|it| &it.0).collect();
        [
            json!({"messages": chat, "max_tokens": 1_000}),
            json!({"messages": entries, "system": self.system, "max_tokens": 1_000}),
        ]
        .map(|body| body.to_string().into_bytes())
    }
}

fn words(random: &mut Random, count: usize) -> String {
    let word = |random: &mut Random| format!("word{} ", random.below(5_000));
    (0..count.max(1)).map(|_| word(random)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_plans_of_a_session_equal_those_of_chat(seed in any::<u64>(), turns in 1usize..30, window in any_window()) {
        let both = BothFormats::generate(seed, turns);
        let settings = any_settings(seed);
        let policy = make_policy(find_profile("anthropic").unwrap(), window, &settings);
        // Where roles alternate in chat, a preface stands elsewhere.
        let memory = GuardMemory { alternates: Some(false), ..GuardMemory::default() };
        let mut recalls = [0; 2].map(|_| Recall { memory: memory.clone(), ..Recall::default() });
        for end in (1..=both.messages.len()).filter(|&end| both.messages[end - 1].0["role"] == "user") {
            let [chat, messages] = both.bodies(end);
            let (chat, messages) = (CHAT.read(&chat), MESSAGES.read(&messages));
            let plans = [guard::plan(&chat, &policy, &recalls[0]), guard::plan(&messages, &policy, &recalls[1])];
            prop_assert_eq!(format!("{:?}", plans[1].report), format!("{:?}", plans[0].report));
            prop_assert_eq!(without_digests(&plans[1].memory), without_digests(&plans[0].memory));
            let count = non_system_indices(&chat).len();
            prop_assert_eq!(non_system_indices(&messages).len(), count);
            let boundaries = [&chat, &messages].map(|it| guard::find_course_boundary(it, &policy));
            prop_assert_eq!(boundaries[0], boundaries[1]);
            for (recall, plan) in recalls.iter_mut().zip(plans) {
                recall.memory = plan.memory;
                recall.messages = count;
                if end == 9 {
                    recall.injections.course = boundaries[0].map(make_course);
                }
            }
        }
    }
}
