//! The same conversation as chat completions, as Messages and as Responses has the same plan: the same units are folded,
//! the same results truncated and cleared.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::any_window;
use crate::{
    config::profile::find_profile,
    guard::{
        self,
        fold::memory::{GuardMemory, SessionKnowledge},
        tests::toy::without_digests,
    },
    support::{
        any_settings,
        generate::Random,
        guard_properties::{CHAT, MESSAGES, RESPONSES},
        made::{make_course, non_system_indices},
        plans::make_policy,
    },
};

/// A conversation in all formats, as lists of entries.
struct AllFormats {
    system: String,
    chat: Vec<Value>,
    /// With the number of chat messages up to the end of each entry.
    messages: Vec<(Value, usize)>,
    /// With the number of chat messages up to the end of each answer, result or message.
    responses: Vec<(Vec<Value>, usize)>,
}

impl AllFormats {
    fn generate(seed: u64, turns: usize) -> Self {
        let mut random = Random::new(seed);
        let mut made = Self {
            system: words(&mut random, 80),
            chat: Vec::new(),
            messages: Vec::new(),
            responses: Vec::new(),
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
        self.responses.push((vec![entry.clone()], self.chat.len()));
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
        let calls = ids.iter().map(|id| {
            json!({"type": "function_call", "call_id": id, "name": "read", "arguments": input.to_string()})
        });
        let part = json!({"type": "output_text", "text": said});
        let text = json!({"type": "message", "role": "assistant", "content": [part]});
        let answer = std::iter::once(text).chain(calls).collect();
        self.responses.push((answer, self.chat.len()));
        let mut blocks = Vec::new();
        for id in &ids {
            let length = random.weighted(&[(60, 30), (30, 300), (10, 3_000)]);
            let text = words(random, length);
            self.chat
                .push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            blocks.push(json!({"type": "tool_result", "tool_use_id": id, "content": text}));
            let output = json!({"type": "function_call_output", "call_id": id, "output": text});
            self.responses.push((vec![output], self.chat.len()));
        }
        if random.chance(30) {
            let text = words(random, 20);
            let user = json!({"role": "user", "content": text});
            self.chat.push(user.clone());
            self.responses.push((vec![user], self.chat.len()));
            blocks.push(json!({"type": "text", "text": text}));
        }
        self.messages
            .push((json!({"role": "user", "content": blocks}), self.chat.len()));
    }

    /// The bodies of the request that ends with this entry.
    fn bodies(&self, end: usize) -> [Vec<u8>; 3] {
        let count = self.messages[end - 1].1;
        let system = json!({"role": "system", "content": self.system});
        let chat: Vec<_> = std::iter::once(&system)
            .chain(&self.chat[..count])
            .collect();
        let entries: Vec<_> = self.messages[..end].iter().map(|it| &it.0).collect();
        let input = self.responses.iter().take_while(|it| it.1 <= count);
        let input: Vec<_> = input.flat_map(|it| &it.0).collect();
        [
            json!({"messages": chat, "max_tokens": 1_000}),
            json!({"messages": entries, "system": self.system, "max_tokens": 1_000}),
            json!({"input": input, "instructions": self.system, "max_output_tokens": 1_000}),
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
        let all = AllFormats::generate(seed, turns);
        let settings = any_settings(seed);
        let policy = make_policy(find_profile("anthropic").unwrap(), window, &settings);
        // Where roles alternate in chat, a preface stands elsewhere.
        let memory = GuardMemory { alternates: Some(false), ..GuardMemory::default() };
        let mut recalls = [0; 3].map(|_| SessionKnowledge { memory: memory.clone(), ..SessionKnowledge::default() });
        for end in (1..=all.messages.len()).filter(|&end| all.messages[end - 1].0["role"] == "user") {
            let bodies = all.bodies(end);
            let formats = [CHAT, MESSAGES, RESPONSES];
            let read: Vec<_> = formats.iter().zip(&bodies).map(|(format, body)| format.read(body)).collect();
            let plans: Vec<_> = read.iter().zip(&recalls).map(|(it, knowledge)| guard::plan(it, &policy, knowledge)).collect();
            let boundaries: Vec<_> = read.iter().map(|it| guard::find_course_boundary(it, &policy)).collect();
            let count = non_system_indices(&read[0]).len();
            for at in 1..read.len() {
                prop_assert_eq!(format!("{:?}", plans[at].report), format!("{:?}", plans[0].report));
                prop_assert_eq!(without_digests(&plans[at].memory), without_digests(&plans[0].memory));
                prop_assert_eq!(non_system_indices(&read[at]).len(), count);
                prop_assert_eq!(boundaries[at], boundaries[0]);
            }
            for (knowledge, plan) in recalls.iter_mut().zip(plans) {
                knowledge.memory = plan.memory;
                knowledge.sent_messages = count;
                if end == 9 {
                    knowledge.injections.course = boundaries[0].map(make_course);
                }
            }
        }
    }
}
