//! Sessions as known clients shape them, of 60 to 300 requests, for one, two and eight at the same time, with cuts and
//! recovery: the user's newest words are in every request, a session stays one, what the model wrote down is held, and
//! the prefix moves with a new cut alone.

use std::fmt::Write as _;

use crate::support::client_sessions::{
    Check, SessionRecord, Wire, run_shaped,
    shapes::ClientShape::{self, ClaudeCode, Cline, Codex, Opencode, Pi},
};

/// In tokens: the smallest in which plain chats get prompts.
const WINDOW: u32 = 32_768;

/// Sessions at the same time, and the requests of each.
const RUNS: [(usize, usize); 3] = [(1, 300), (2, 120), (8, 60)];

async fn check_client(shape: ClientShape, wire: Wire) {
    let mut told = String::new();
    let mut broken = Vec::new();
    for (sessions, requests) in RUNS {
        let records = run_shaped(shape, wire, sessions, requests, WINDOW).await;
        let sum = |count: fn(&SessionRecord) -> usize| records.iter().map(count).sum::<usize>();
        let (sent, notes) = (sum(|it| it.requests), sum(|it| it.saved + it.blocks));
        let (prompts, hidden) = (sum(|it| it.prompts), sum(|it| it.hidden));
        let _ = write!(
            told,
            "\n{shape:?} {wire:?} {sessions} x {requests}: {sent} sent, {prompts} prompts, {notes} notes, \
             {hidden} without some"
        );
        for check in [
            Check::Valid,
            Check::Foreign,
            Check::Question,
            Check::Session,
            Check::Notes,
            Check::Told,
            Check::Prefix,
        ] {
            let count: usize = records.iter().map(|it| it.count(check)).sum();
            let _ = write!(told, ", {check:?} {count}");
            if count > 0 {
                let faults = records.iter().flat_map(|it| &it.faults);
                let mut faults = faults.filter(|it| it.check == check);
                broken.push(format!("{check:?}: {:?}", faults.next()));
            }
        }
        assert!(notes > 0, "nothing was written down: {told}");
    }
    eprintln!("{told}");
    assert!(broken.is_empty(), "{broken:#?}{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_codes_sessions_keep_question_session_and_reminders() {
    check_client(ClaudeCode, Wire::Messages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencodes_sessions_keep_question_session_and_reminders_in_chat() {
    check_client(Opencode, Wire::Chat).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencodes_sessions_keep_question_session_and_reminders_in_messages() {
    check_client(Opencode, Wire::Messages).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencodes_sessions_keep_question_session_and_reminders_in_responses() {
    check_client(Opencode, Wire::Responses).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clines_sessions_keep_question_session_and_reminders() {
    for wire in [Wire::Chat, Wire::Messages] {
        check_client(Cline, wire).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pis_sessions_keep_question_session_and_reminders() {
    for wire in [Wire::Chat, Wire::Responses] {
        check_client(Pi, wire).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codexs_sessions_keep_question_session_and_reminders() {
    check_client(Codex, Wire::Responses).await;
}
