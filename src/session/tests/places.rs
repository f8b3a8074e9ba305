//! Where the places of an inherited state are, in what the client sends back.

use proptest::prelude::*;
use serde_json::Value;

use super::{WITHIN, sessions, tenant};
use crate::{
    guard::injections::{Course, InjectionContent, InjectionRecord},
    session::{
        InheritedSession, Sessions,
        tests::fixture::{answer_digest, assistant, call, conversation, result, system, user},
    },
};

async fn find(sessions: &Sessions, said: &[Value]) -> InheritedSession {
    let tenant = tenant(sessions, "a");
    sessions
        .inherit_session(&conversation(said), &tenant, None)
        .await
}

/// A request and its answer, before which we said something.
async fn prompted(sessions: &Sessions, said: &[Value], answer: &Value) {
    let inherited = find(sessions, said).await;
    let mut state = inherited.next_state();
    state.recovery.records.push(InjectionRecord {
        place: state.messages,
        what: InjectionContent::Prompt("write it down".into()),
    });
    let digest = answer_digest(answer);
    assert!(
        sessions
            .save_state(&inherited.lineage, digest, &state, WITHIN)
            .await
    );
}

fn places(inherited: &InheritedSession) -> Vec<u32> {
    let records = inherited.to_recall().injections.records;
    records.iter().map(|record| record.place).collect()
}

#[tokio::test]
async fn what_was_said_before_an_answer_stays_before_it() {
    let sessions = sessions();
    let start = [system("s"), user("task"), call("c1", "{}")];
    prompted(&sessions, &start[..2], &start[2]).await;
    // The result, and a remark that is taken out later.
    let remark = [result("c1", "out"), user("hurry")];
    let sent = [&start[..], &remark].concat();
    let answer = call("c2", "{}");
    prompted(&sessions, &sent, &answer).await;
    let echoed = [answer.clone(), result("c2", "out")];
    for (between, place) in [
        (&remark[..1], 3),
        (&remark[..], 4),
        (&[remark[0].clone(), user("a"), user("b")][..], 5),
    ] {
        let next = [&start[..], between, &echoed].concat();
        let inherited = find(&sessions, &next).await;
        assert_eq!(inherited.answer_at, place);
        assert_eq!(places(&inherited), [1, place]);
        assert_eq!(inherited.to_recall().messages, place.min(4) as usize);
    }
    // Edited before that answer: what was said before it is gone with it.
    let inherited = find(&sessions, &[&start[..], &[result("c1", "other")]].concat()).await;
    assert_eq!(
        (inherited.answer_at, &places(&inherited)[..]),
        (1, &[1][..])
    );
}

#[tokio::test]
async fn without_a_state_there_is_no_place() {
    let inherited = find(&sessions(), &[user("task")]).await;
    assert_eq!(inherited.answer_at, 0);
    assert!(places(&inherited).is_empty() && !inherited.clear_requested);
}

#[tokio::test]
async fn a_course_that_began_with_a_remark_begins_with_the_answer() {
    let sessions = sessions();
    let start = [user("task"), assistant("a"), user("go on")];
    let sent = [&start[..], &[user("hurry")]].concat();
    let inherited = find(&sessions, &sent).await;
    let mut state = inherited.next_state();
    state.recovery.course = Some(Course {
        number: 2,
        boundary: 3,
        preface: "p".into(),
    });
    let digest = answer_digest(&assistant("b"));
    let lineage = &inherited.lineage;
    assert!(sessions.save_state(lineage, digest, &state, WITHIN).await);
    let boundary = async |said: &[Value]| {
        let inherited = find(&sessions, said).await;
        inherited
            .to_recall()
            .injections
            .course
            .map(|course| course.boundary)
    };
    let echoed = [assistant("b"), user("next")];
    assert_eq!(boundary(&[&sent[..], &echoed].concat()).await, Some(3));
    assert_eq!(boundary(&[&start[..], &echoed].concat()).await, Some(3));
    let bare = [&start[..2], &[user("other")], &echoed].concat();
    assert_eq!(boundary(&bare).await, Some(3));
    // Without what stood before it, the course begins with the answer itself.
    let less = [&start[..2], &[user("x")], &echoed].concat();
    assert_eq!(find(&sessions, &less).await.answer_at, 3);
}

fn remarks() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec("[a-c]{1,2}".prop_map(|text| user(&text)), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However remarks come and go from request to request: what we said before an answer stands
    /// right before that answer.
    #[test]
    fn places_are_those_of_the_answers(steps in prop::collection::vec(remarks(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let sessions = sessions();
            let mut said = vec![user("task")];
            let mut answers = Vec::new();
            for (step, remarks) in steps.iter().enumerate() {
                let inherited = find(&sessions, &said).await;
                prop_assert_eq!(&places(&inherited), &answers);
                // The first request has no answer before it that would settle it.
                let remarks = if step == 0 { &[][..] } else { &remarks[..] };
                let sent = [&said[..], remarks].concat();
                let inherited = find(&sessions, &sent).await;
                prop_assert_eq!(&places(&inherited), &answers);
                let answer = call(&format!("c{step}"), "{}");
                prompted(&sessions, &sent, &answer).await;
                answers.push(u32::try_from(said.len()).unwrap());
                said.extend([answer, result(&format!("c{step}"), "out")]);
            }
            let last = find(&sessions, &said).await;
            prop_assert_eq!(&places(&last), &answers);
            prop_assert_eq!(last.answer_at, answers.last().copied().unwrap());
            Ok(())
        })?;
    }
}
