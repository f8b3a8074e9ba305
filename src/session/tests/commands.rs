//! Commands of the API: which requests they reach, and how often.

use serde_json::Value;

use super::{find, generate, generate_as, hints::hint, save, sessions, tenant, turns};
use crate::session::{
    Account, ClientIdentity, SessionCommand, SessionHint, SessionId, SessionState, SessionView,
    Sessions,
    tests::fixture::{assistant, conversation, user},
};
use crate::{
    compaction::{JobOutcome, PendingJob},
    guard::injections::Summary,
};

fn account(sessions: &Sessions, name: &str) -> Account {
    sessions.tenants.derive_account(ClientIdentity::Named(name))
}

/// A clear by an account, or by the administrator; `None` if there is no such session.
async fn clear_as(
    sessions: &Sessions,
    account: Option<&Account>,
    id: SessionId,
) -> Option<SessionView> {
    let command = sessions.add_command(account, id, SessionCommand::Clear);
    command.await.unwrap()
}

/// A clear by `a`, which is pending then.
async fn clear(sessions: &Sessions, id: SessionId) {
    let account = account(sessions, "a");
    let view = clear_as(sessions, Some(&account), id).await.unwrap();
    assert!(view.clear_pending && view.state.session == id);
}

async fn pending(sessions: &Sessions, id: SessionId) -> bool {
    let view = sessions.view_session(None, id).await.unwrap();
    view.unwrap().clear_pending
}

/// A request that clears if a command asks for it; returns whether one does.
async fn carry_out(sessions: &Sessions, messages: &[Value], answer: &Value) -> bool {
    let inherited = find(sessions, messages).await;
    let mut state = inherited.begin_generation();
    if inherited.clear_requested {
        state.recovery.clears = inherited.commands.clears;
    }
    assert!(save(sessions, &inherited, &state, answer).await);
    inherited.clear_requested
}

/// Three turns of client `a`; the last state.
async fn begun(sessions: &Sessions) -> SessionState {
    let states = super::play(sessions, 3).await;
    states.last().unwrap().clone()
}

#[tokio::test]
async fn two_commands_are_one_clear_and_a_retry_repeats_it() {
    let sessions = sessions();
    let id = begun(&sessions).await.session;
    assert!(!find(&sessions, &turns(3)).await.clear_requested && !pending(&sessions, id).await);
    clear(&sessions, id).await;
    clear(&sessions, id).await;
    assert!(pending(&sessions, id).await);
    for _ in 0..2 {
        assert!(carry_out(&sessions, &turns(3), &assistant("answer 3")).await);
        assert!(!pending(&sessions, id).await);
    }
    assert!(!carry_out(&sessions, &turns(4), &assistant("answer 4")).await);
    // A further command clears again.
    clear(&sessions, id).await;
    assert!(carry_out(&sessions, &turns(5), &assistant("answer 5")).await);
    assert!(!carry_out(&sessions, &turns(6), &assistant("answer 6")).await);
}

#[tokio::test]
async fn a_clear_stays_pending_until_a_request_carries_it_out() {
    let sessions = sessions();
    let id = begun(&sessions).await.session;
    clear(&sessions, id).await;
    for turn in 3..6 {
        let answer = assistant(&format!("answer {turn}"));
        generate(&sessions, &turns(turn), &answer).await;
        assert!(pending(&sessions, id).await);
    }
    assert!(carry_out(&sessions, &turns(6), &assistant("answer 6")).await);
    assert!(!pending(&sessions, id).await);
}

#[tokio::test]
async fn a_clear_waits_for_the_request_after_the_one_under_way() {
    let sessions = sessions();
    let id = begun(&sessions).await.session;
    let under_way = find(&sessions, &turns(3)).await;
    clear(&sessions, id).await;
    let state = under_way.begin_generation();
    assert!(save(&sessions, &under_way, &state, &assistant("answer 3")).await);
    assert!(pending(&sessions, id).await);
    assert!(carry_out(&sessions, &turns(4), &assistant("answer 4")).await);
    assert!(!pending(&sessions, id).await);
}

#[tokio::test]
async fn only_the_newest_of_grouped_conversations_is_cleared() {
    let sessions = sessions();
    let chat = hint("x-session-id", "chat-1");
    let speak = async |messages: &[Value], answer: &str, hint: Option<&SessionHint>| {
        generate_as(&sessions, "a", hint, messages, &assistant(answer)).await
    };
    let child = speak(&[user("part")], "1", Some(&chat)).await;
    // Another conversation with the same first message as the parent.
    let twin = speak(&[user("task")], "other", Some(&chat)).await;
    let parent = speak(&[user("task")], "2", Some(&chat)).await;
    assert_eq!(
        (child.session, twin.session),
        (parent.session, parent.session)
    );
    clear(&sessions, parent.session).await;
    for (messages, expected) in [
        ([user("part"), assistant("1"), user("go on")], false),
        ([user("task"), assistant("other"), user("go on")], false),
        ([user("task"), assistant("2"), user("go on")], true),
    ] {
        let inherited = find(&sessions, &messages).await;
        assert!(inherited.state.is_some());
        assert_eq!(inherited.clear_requested, expected, "{messages:?}");
    }
    // A new one of the session, which continues nothing.
    let tenant = tenant(&sessions, "a");
    let new = conversation(&[user("task"), assistant("2b"), user("x")]);
    let new = sessions.inherit_session(&new, &tenant, Some(&chat)).await;
    assert!(new.session == parent.session && !new.clear_requested);
    // After a child's request, the command stays for the parent and is not shown as pending.
    let messages = [user("part"), assistant("1"), user("go on")];
    speak(&messages, "3", Some(&chat)).await;
    assert!(!pending(&sessions, parent.session).await);
    let messages = [user("task"), assistant("2"), user("go on")];
    assert!(carry_out(&sessions, &messages, &assistant("4")).await);
}

#[tokio::test]
async fn a_branch_from_before_is_not_cleared() {
    let sessions = sessions();
    let id = begun(&sessions).await.session;
    clear(&sessions, id).await;
    let mut branch = turns(1);
    for turn in 0..6 {
        *branch.last_mut().unwrap() = user(&format!("edited {turn}"));
        let answer = assistant(&format!("branched {turn}"));
        assert!(!carry_out(&sessions, &branch, &answer).await);
        branch.extend([answer, user("")]);
    }
    assert!(carry_out(&sessions, &turns(3), &assistant("answer 3")).await);
}

#[tokio::test]
async fn changed_answers_and_removed_remarks_keep_the_clear() {
    let sessions = sessions();
    let messages = [user("task"), assistant("a"), user("go on"), user("hurry")];
    generate(&sessions, &messages[..1], &assistant("a")).await;
    let id = generate(&sessions, &messages, &assistant(" b\n"))
        .await
        .session;
    clear(&sessions, id).await;
    let spelt = [&messages[..], &[assistant("b"), user("next")]].concat();
    assert!(find(&sessions, &spelt).await.clear_requested);
    let out = [&messages[..3], &[assistant(" b\n"), user("next")]].concat();
    let inherited = find(&sessions, &out).await;
    assert!(inherited.clear_requested && inherited.answer_at == 3);
}

#[tokio::test]
async fn an_account_clears_its_sessions_only() {
    let sessions = sessions();
    let id = begun(&sessions).await.session;
    // The same conversation under another key is another session.
    for turn in 0..3 {
        let answer = assistant(&format!("answer {turn}"));
        generate_as(&sessions, "b", None, &turns(turn), &answer).await;
    }
    let other = account(&sessions, "b");
    assert_eq!(clear_as(&sessions, Some(&other), id).await, None);
    let unknown = SessionId::from_bytes([7; 16]);
    assert_eq!(clear_as(&sessions, None, unknown).await, None);
    assert!(!pending(&sessions, id).await);
    // The administrator may clear it, and reaches this session only.
    assert!(clear_as(&sessions, None, id).await.is_some());
    assert!(find(&sessions, &turns(3)).await.clear_requested);
    let tenant = tenant(&sessions, "b");
    let conversation = conversation(&turns(3));
    let foreign = sessions.inherit_session(&conversation, &tenant, None).await;
    assert!(foreign.state.is_some() && !foreign.clear_requested);
}

#[tokio::test]
async fn a_summary_of_removed_messages_is_not_taken_over() {
    let sessions = sessions();
    let messages = [
        user("task"),
        assistant("a"),
        user("1"),
        user("2"),
        user("3"),
    ];
    generate(&sessions, &messages[..1], &assistant("a")).await;
    let inherited = find(&sessions, &messages).await;
    let mut state = inherited.begin_generation();
    let id = sessions.new_job_id();
    state.compaction.job = Some(PendingJob { id, since: 2 });
    assert!(save(&sessions, &inherited, &state, &assistant("b")).await);
    let outcome = JobOutcome {
        job: id,
        summary: Some(Summary {
            boundary: 4,
            text: "s".into(),
        }),
    };
    let account = account(&sessions, "a");
    let stored = sessions.store_summary_outcome(&account, state.session, outcome);
    assert!(stored.await.unwrap().is_some());
    for (kept, taken) in [(5, true), (2, false)] {
        let next = [&messages[..kept], &[assistant("b"), user("next")]].concat();
        let inherited = find(&sessions, &next).await;
        let state = inherited.state.unwrap();
        assert_eq!(state.compaction.summary.is_some(), taken, "{kept}");
        assert_eq!(inherited.compacted, taken);
        assert_eq!(state.compaction.job, None);
    }
}
