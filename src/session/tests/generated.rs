//! Generated conversations.

use proptest::prelude::*;
use serde_json::Value;

use super::{continued, generate, sessions, tenant};
use crate::session::tests::fixture::{assistant, call, conversation, result, system, user};

/// One message of a generated conversation.
fn message() -> impl Strategy<Value = Value> {
    let text = "[a-c]{0,2}";
    prop_oneof![
        text.prop_map(|text| user(&text)),
        text.prop_map(|text| user(&text)),
        text.prop_map(|text| assistant(&text)),
        text.prop_map(|text| system(&text)),
        ("[xy]", text).prop_map(|(id, text)| call(&id, &text)),
        ("[xy]", text).prop_map(|(id, text)| result(&id, &text)),
    ]
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A request that echoes the answer finds the state, whatever follows. A retry finds what the
    /// first try found. Another tenant finds nothing.
    #[test]
    fn any_conversation_is_found_again(
        messages in prop::collection::vec(message(), 1..20),
        more in prop::collection::vec(message(), 0..4),
    ) {
        block_on(async {
            let sessions = sessions();
            prop_assume!(messages.iter().any(|message| message["role"] != "system"));
            let before = continued(&sessions, &messages).await;
            // Unlike any generated message.
            let answer = assistant("the answer");
            let state = generate(&sessions, &messages, &answer).await;
            prop_assert_eq!(continued(&sessions, &messages).await, before);
            let mut next = messages.clone();
            next.push(answer);
            prop_assert_eq!(continued(&sessions, &next).await, Some(state.clone()));
            next.extend(more);
            prop_assert_eq!(continued(&sessions, &next).await, Some(state.clone()));
            let other = tenant(&sessions, "b");
            let foreign = sessions.inherit_session(&conversation(&next), &other, None).await;
            prop_assert!(foreign.state.is_none());
            Ok(())
        })?;
    }

    /// Generations are counted along each branch, in any order of the branches.
    #[test]
    fn each_branch_counts_its_generations(picks in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8), 1..14)) {
        block_on(async {
            let sessions = sessions();
            // Requests that may be sent, with the answers on the way to them.
            let mut open = vec![(vec![user("task")], 0)];
            for (at, text) in picks {
                let (messages, answers): (Vec<Value>, u32) = open[at.index(open.len())].clone();
                let answer = assistant(&format!("answer {text}"));
                let state = generate(&sessions, &messages, &answer).await;
                prop_assert_eq!(state.generations, answers + 1);
                let next = [&messages[..], &[answer, user("go on")]].concat();
                open.push((next, answers + 1));
            }
            Ok(())
        })?;
    }
}
