//! Places of an inherited state in the conversation that the client sends next.

use proptest::prelude::*;
use serde_json::Value;

use super::{find, save, sessions};
use crate::{
    guard::injections::{Course, InjectionContent, InjectionRecord},
    session::{
        InheritedSession, Sessions,
        tests::fixture::{assistant, call, result, system, user},
    },
};

/// A request with an injected prompt, and its answer.
async fn prompted(sessions: &Sessions, messages: &[Value], answer: &Value) {
    let inherited = find(sessions, messages).await;
    let mut state = inherited.begin_generation();
    state.recovery.records.push(InjectionRecord {
        place: state.messages,
        what: InjectionContent::Prompt("write it down".into()),
    });
    assert!(save(sessions, &inherited, &state, answer).await);
}

fn places(inherited: &InheritedSession) -> Vec<u32> {
    let records = inherited.to_knowledge().injections.records;
    records.iter().map(|record| record.place).collect()
}

#[tokio::test]
async fn a_prompt_before_an_answer_stays_before_it() {
    let sessions = sessions();
    let start = [system("s"), user("task"), call("c1", "{}")];
    prompted(&sessions, &start[..2], &start[2]).await;
    // The result, and a remark that is removed later.
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
        assert_eq!(
            inherited.to_knowledge().sent_messages,
            place.min(4) as usize
        );
    }
    // Edited before that answer: its prompt is gone as well.
    let inherited = find(&sessions, &[&start[..], &[result("c1", "other")]].concat()).await;
    assert_eq!(inherited.answer_at, 1);
    assert_eq!(places(&inherited), [1]);
}

#[tokio::test]
async fn without_a_state_there_are_no_places() {
    let inherited = find(&sessions(), &[user("task")]).await;
    assert_eq!(inherited.answer_at, 0);
    assert!(places(&inherited).is_empty() && !inherited.clear_requested);
}

#[tokio::test]
async fn a_course_that_began_with_a_removed_remark_begins_with_the_answer() {
    let sessions = sessions();
    let start = [user("task"), assistant("a"), user("go on")];
    let sent = [&start[..], &[user("hurry")]].concat();
    let inherited = find(&sessions, &sent).await;
    let mut state = inherited.begin_generation();
    state.recovery.course = Some(Course {
        number: 2,
        boundary: 3,
        preface: "p".into(),
    });
    assert!(save(&sessions, &inherited, &state, &assistant("b")).await);
    let boundary = async |messages: &[Value]| {
        let recall = find(&sessions, messages).await.to_knowledge();
        recall.injections.course.map(|course| course.boundary)
    };
    let echoed = [assistant("b"), user("next")];
    assert_eq!(boundary(&[&sent[..], &echoed].concat()).await, Some(3));
    assert_eq!(boundary(&[&start[..], &echoed].concat()).await, Some(3));
    let bare = [&start[..2], &[user("other")], &echoed].concat();
    assert_eq!(boundary(&bare).await, Some(3));
    // Without the messages before it, the course begins with the answer itself.
    let less = [&start[..2], &[user("x")], &echoed].concat();
    assert_eq!(find(&sessions, &less).await.answer_at, 3);
}

fn remarks() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec("[a-c]{1,2}".prop_map(|text| user(&text)), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However remarks come and go from request to request, a prompt stays directly before its answer.
    #[test]
    fn prompts_stay_before_their_answers(steps in prop::collection::vec(remarks(), 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let sessions = sessions();
            let mut messages = vec![user("task")];
            let mut answers = Vec::new();
            for (step, remarks) in steps.iter().enumerate() {
                let inherited = find(&sessions, &messages).await;
                prop_assert_eq!(&places(&inherited), &answers);
                // The first request has no answer, so no gap key skips its remarks.
                let remarks = if step == 0 { &[][..] } else { &remarks[..] };
                let sent = [&messages[..], remarks].concat();
                let inherited = find(&sessions, &sent).await;
                prop_assert_eq!(&places(&inherited), &answers);
                let answer = call(&format!("c{step}"), "{}");
                prompted(&sessions, &sent, &answer).await;
                answers.push(u32::try_from(messages.len()).unwrap());
                messages.extend([answer, result(&format!("c{step}"), "out")]);
            }
            let last = find(&sessions, &messages).await;
            prop_assert_eq!(&places(&last), &answers);
            prop_assert_eq!(last.answer_at, answers.last().copied().unwrap());
            Ok(())
        })?;
    }
}
