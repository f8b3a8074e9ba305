//! A clear that is asked for from outside: whom it reaches, and how often.

use serde_json::Value;

use super::{WITHIN, generate, generate_as, hints::hint, sessions, tenant, turns};
use crate::session::{
    Account, ClientIdentity, InheritedSession, SessionCommand, SessionHint, SessionId,
    SessionState, Sessions,
    tests::fixture::{answer_digest, assistant, conversation, user},
};
use crate::{
    compaction::{JobOutcome, PendingJob},
    guard::injections::Summary,
};

fn account(sessions: &Sessions, name: &str) -> Account {
    sessions
        .tenants()
        .derive_account(ClientIdentity::Named(name))
}

async fn find(sessions: &Sessions, said: &[Value]) -> InheritedSession {
    let tenant = tenant(sessions, "a");
    sessions
        .inherit_session(&conversation(said), &tenant, None)
        .await
}

/// Asks for a clear as `a`, and is told that it is to come.
async fn clear(sessions: &Sessions, id: SessionId) {
    let own = account(sessions, "a");
    let known = sessions
        .add_command(Some(&own), id, SessionCommand::Clear)
        .await
        .unwrap()
        .unwrap();
    assert!(known.clear_pending && known.state.session == id);
}

async fn pending(sessions: &Sessions, id: SessionId) -> bool {
    let known = sessions.view_session(None, id).await.unwrap();
    known.unwrap().clear_pending
}

/// A request that does as it is asked; gives back whether it was.
async fn carry_out(sessions: &Sessions, said: &[Value], answer: &Value) -> bool {
    let inherited = find(sessions, said).await;
    let mut state = inherited.next_state();
    if inherited.clear_requested {
        state.recovery.clears = inherited.commands.clears;
    }
    let digest = answer_digest(answer);
    let lineage = &inherited.lineage;
    assert!(sessions.save_state(lineage, digest, &state, WITHIN).await);
    inherited.clear_requested
}

/// Three turns of client `a`; the last state.
async fn begun(sessions: &Sessions) -> SessionState {
    let states = super::play(sessions, 3).await;
    states.last().unwrap().clone()
}

#[tokio::test]
async fn asking_twice_is_one_clear_and_a_retry_repeats_it() {
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
    // And another time.
    clear(&sessions, id).await;
    assert!(carry_out(&sessions, &turns(5), &assistant("answer 5")).await);
    assert!(!carry_out(&sessions, &turns(6), &assistant("answer 6")).await);
}

#[tokio::test]
async fn a_clear_stays_open_over_requests_that_do_not_carry_it_out() {
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
    let digest = answer_digest(&assistant("answer 3"));
    let (lineage, state) = (&under_way.lineage, under_way.next_state());
    assert!(sessions.save_state(lineage, digest, &state, WITHIN).await);
    assert!(pending(&sessions, id).await);
    assert!(carry_out(&sessions, &turns(4), &assistant("answer 4")).await);
    assert!(!pending(&sessions, id).await);
}

#[tokio::test]
async fn only_the_newest_of_grouped_conversations_is_cleared() {
    let sessions = sessions();
    let chat = hint("x-session-id", "chat-1");
    let speak = async |said: &[Value], answer: &str, hint: Option<&SessionHint>| {
        generate_as(&sessions, "a", hint, said, &assistant(answer)).await
    };
    let child = speak(&[user("part")], "1", Some(&chat)).await;
    // Begins as the parent does, and is none the less another.
    let twin = speak(&[user("task")], "other", Some(&chat)).await;
    let parent = speak(&[user("task")], "2", Some(&chat)).await;
    assert_eq!(
        (child.session, twin.session),
        (parent.session, parent.session)
    );
    clear(&sessions, parent.session).await;
    for (said, expected) in [
        ([user("part"), assistant("1"), user("go on")], false),
        ([user("task"), assistant("other"), user("go on")], false),
        ([user("task"), assistant("2"), user("go on")], true),
    ] {
        let inherited = find(&sessions, &said).await;
        assert!(inherited.state.is_some());
        assert_eq!(inherited.clear_requested, expected, "{said:?}");
    }
    // A new one of the session, which continues nothing.
    let tenant = tenant(&sessions, "a");
    let new = conversation(&[user("task"), assistant("2b"), user("x")]);
    let new = sessions.inherit_session(&new, &tenant, Some(&chat)).await;
    assert!(new.session == parent.session && !new.clear_requested);
    // While a child speaks last, the order stands for the parent and shows for nobody else.
    let said = [user("part"), assistant("1"), user("go on")];
    speak(&said, "3", Some(&chat)).await;
    assert!(!pending(&sessions, parent.session).await);
    let said = [user("task"), assistant("2"), user("go on")];
    assert!(carry_out(&sessions, &said, &assistant("4")).await);
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
async fn an_answer_spelt_otherwise_and_remarks_taken_out_do_not_lose_it() {
    let sessions = sessions();
    let said = [user("task"), assistant("a"), user("go on"), user("hurry")];
    generate(&sessions, &said[..1], &assistant("a")).await;
    let id = generate(&sessions, &said, &assistant(" b\n")).await.session;
    clear(&sessions, id).await;
    let spelt = [&said[..], &[assistant("b"), user("next")]].concat();
    assert!(find(&sessions, &spelt).await.clear_requested);
    let out = [&said[..3], &[assistant(" b\n"), user("next")]].concat();
    let inherited = find(&sessions, &out).await;
    assert!(inherited.clear_requested && inherited.answer_at == 3);
}

#[tokio::test]
async fn nobody_clears_anothers_session() {
    let sessions = sessions();
    let id = begun(&sessions).await.session;
    // The same conversation under another key is another session.
    for turn in 0..3 {
        let answer = assistant(&format!("answer {turn}"));
        generate_as(&sessions, "b", None, &turns(turn), &answer).await;
    }
    let other = account(&sessions, "b");
    assert_eq!(
        sessions
            .add_command(Some(&other), id, SessionCommand::Clear)
            .await
            .unwrap(),
        None
    );
    let nobody = SessionId::from_bytes([7; 16]);
    assert_eq!(
        sessions
            .add_command(None, nobody, SessionCommand::Clear)
            .await
            .unwrap(),
        None
    );
    assert!(!pending(&sessions, id).await);
    // The administrator may; and it reaches this session alone.
    assert!(
        sessions
            .add_command(None, id, SessionCommand::Clear)
            .await
            .unwrap()
            .is_some()
    );
    assert!(find(&sessions, &turns(3)).await.clear_requested);
    let tenant = tenant(&sessions, "b");
    let theirs = sessions
        .inherit_session(&conversation(&turns(3)), &tenant, None)
        .await;
    assert!(theirs.state.is_some() && !theirs.clear_requested);
}

#[tokio::test]
async fn a_summary_of_messages_that_were_taken_out_is_not_taken_over() {
    let sessions = sessions();
    let said = [
        user("task"),
        assistant("a"),
        user("1"),
        user("2"),
        user("3"),
    ];
    generate(&sessions, &said[..1], &assistant("a")).await;
    let inherited = find(&sessions, &said).await;
    let mut state = inherited.next_state();
    let id = sessions.new_job_id();
    state.compaction.job = Some(PendingJob { id, since: 2 });
    let digest = answer_digest(&assistant("b"));
    let lineage = &inherited.lineage;
    assert!(sessions.save_state(lineage, digest, &state, WITHIN).await);
    let outcome = JobOutcome {
        job: id,
        summary: Some(Summary {
            boundary: 4,
            text: "s".into(),
        }),
    };
    let own = account(&sessions, "a");
    let concluded = sessions.store_summary_outcome(&own, state.session, outcome);
    assert!(concluded.await.unwrap().is_some());
    for (kept, taken) in [(5, true), (2, false)] {
        let next = [&said[..kept], &[assistant("b"), user("next")]].concat();
        let inherited = find(&sessions, &next).await;
        let state = inherited.state.unwrap();
        assert_eq!(state.compaction.summary.is_some(), taken, "{kept}");
        assert_eq!(inherited.compacted, taken);
        assert_eq!(state.compaction.job, None);
    }
}
