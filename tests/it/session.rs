//! Sessions over recorded conversations: the next request finds every answer.

use std::{sync::Arc, time::Duration};

use crate::support::data;
use bytes::Bytes;
use http::HeaderMap;
use plimsoll::{
    config::StoreConfig,
    conversation::Conversation,
    format::chat,
    session::{ClientIdentity, Sessions, Tenants, installation_secret::InstallationSecret},
    store::memory::MemoryStore,
};
use serde_json::{Value, json};

/// Answers played of each conversation; later ones add nothing.
const MAX_MESSAGES: usize = 60;

fn index(messages: &[Value]) -> Conversation {
    let body = json!({ "messages": messages }).to_string();
    chat::index_body(Bytes::from(body)).unwrap()
}

/// Plays a conversation; each answer must count one more than the previous one.
async fn check(name: &str, messages: &[Value]) {
    let config = StoreConfig {
        max_sessions: 100,
        max_bytes: 1 << 20,
        max_age: Duration::from_secs(3_600),
        ..StoreConfig::default()
    };
    let store = Arc::new(MemoryStore::new(&config));
    let tenants = Tenants::new(InstallationSecret::random().unwrap());
    let tenant = tenants.derive_tenant(ClientIdentity::Anonymous, &HeaderMap::new(), None);
    let sessions = Sessions::new(store, tenants, &config, Arc::default()).unwrap();
    let whole = index(messages);
    let mut answers = 0;
    for at in 1..messages.len().min(MAX_MESSAGES) {
        let role = |at: usize| messages[at]["role"].as_str().unwrap();
        let heard = messages[..at].iter().any(|one| one["role"] != "system");
        if role(at) != "assistant" || role(at - 1) == "assistant" || !heard {
            continue;
        }
        answers += 1;
        let request = index(&messages[..at]);
        let inherited = sessions.inherit_session(&request, &tenant, None).await;
        let state = inherited.begin_generation();
        assert_eq!(state.generations, answers, "{name}: message {at}");
        let answer = whole.items[at].short_digest;
        let within = Duration::from_secs(5);
        assert!(
            sessions
                .save_state(&inherited.lineage, answer, None, &state, within)
                .await
        );
    }
}

#[tokio::test]
async fn recorded_conversations_count_every_answer() {
    for file in data::requests() {
        let body: Value = serde_json::from_slice(&file.body).unwrap();
        check(&file.name, body["messages"].as_array().unwrap()).await;
    }
}

#[tokio::test]
async fn a_long_generated_conversation_counts_every_answer() {
    let mut messages = vec![json!({ "role": "system", "content": "s" })];
    for turn in 0..40 {
        messages.push(json!({ "role": "user", "content": "go on" }));
        for step in 0..turn % 3 {
            // Ids are reused, as by some clients.
            let function = json!({ "name": "f", "arguments": "{}" });
            let calls = json!([{ "id": "c", "type": "function", "function": function }]);
            messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
            messages
                .push(json!({ "role": "tool", "tool_call_id": "c", "content": step.to_string() }));
        }
        messages.push(json!({ "role": "assistant", "content": "ok" }));
    }
    check("made up", &messages).await;
}
