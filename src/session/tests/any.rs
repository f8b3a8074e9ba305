//! Whatever is said, in whatever order.

use proptest::prelude::*;
use serde_json::Value;

use super::{continued, generate, sessions, tenant};
use crate::session::tests::fixture::{assistant, call, conversation, result, system, user};

/// One message of a made-up conversation.
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

    /// Whatever was said: the request that echoes the answer finds the state, whatever follows;
    /// a retry finds what the first try found; another tenant finds nothing.
    #[test]
    fn any_conversation_is_found_again(
        said in prop::collection::vec(message(), 1..20),
        more in prop::collection::vec(message(), 0..4),
    ) {
        block_on(async {
            let sessions = sessions();
            let heard = said.iter().any(|one| one["role"] != "system");
            prop_assume!(heard);
            let before = continued(&sessions, &said).await;
            // Unlike any message, so that nothing else in the conversation can be taken for it.
            let answer = assistant("the answer");
            let state = generate(&sessions, &said, &answer).await;
            prop_assert_eq!(continued(&sessions, &said).await, before);
            let mut next = said.clone();
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

    /// Generations count along every branch, however the branches are taken.
    #[test]
    fn every_branch_counts_its_own(picks in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8), 1..14)) {
        block_on(async {
            let sessions = sessions();
            // Requests that may be sent, with the answers on the way to them.
            let mut open = vec![(vec![user("task")], 0)];
            for (at, text) in picks {
                let (said, answers): (Vec<Value>, u32) = open[at.index(open.len())].clone();
                let answer = assistant(&format!("answer {text}"));
                let state = generate(&sessions, &said, &answer).await;
                prop_assert_eq!(state.generations, answers + 1);
                let next = [&said[..], &[answer, user("go on")]].concat();
                open.push((next, answers + 1));
            }
            Ok(())
        })?;
    }
}
