//! Limits of results that came while the window was nearly full.

use super::*;

#[test]
fn new_tool_results_stay_at_the_tighter_limit() {
    let says = "the context window is nearly full, read smaller parts";
    let mut messages = vec![message_by("user", "the task")];
    messages.extend(step("a", &json!("old ".repeat(1_500))));
    let known = messages.len();
    messages.extend(step("b", &json!("new ".repeat(1_500))));
    let mut knowledge = SessionKnowledge {
        sent_messages: known,
        ..SessionKnowledge::default()
    };
    knowledge.injections.tight_chars = Some(1_000);
    let (plan, first) = checked_plan(&messages, 200_000, "openai", &knowledge);
    assert_eq!(first[2], messages[2], "what was sent before stays");
    let cut = first[4]["content"].as_str().unwrap();
    assert!(cut.contains(says) && cut.chars().count() <= 1_000, "{cut}");
    assert_eq!(
        (plan.report.truncated.len(), plan.memory.count_tightened()),
        (1, 1)
    );
    // The limit is remembered, also once the session is healthy, and in a stored state.
    let stored = read_back(&plan.memory);
    assert_eq!(stored, plan.memory);
    messages.extend(step("c", &json!("later ".repeat(1_500))));
    let knowledge = SessionKnowledge {
        memory: stored,
        sent_messages: 5,
        ..SessionKnowledge::default()
    };
    let (_, second) = checked_plan(&messages, 200_000, "openai", &knowledge);
    assert_eq!(&second[..5], &first[..]);
    assert_eq!(second[6], messages[6]);
    // A small window allows less than the setting, but a minimum is kept.
    let mut knowledge = SessionKnowledge::default();
    knowledge.injections.tight_chars = Some(100_000);
    let (_, small) = checked_plan(&messages[..3], 4_096, "openai", &knowledge);
    let chars = small[2]["content"].as_str().unwrap().chars().count();
    assert!((400..=640).contains(&chars), "{chars}");
    knowledge.injections.tight_chars = Some(0);
    let (_, least) = checked_plan(&messages[..3], 200_000, "openai", &knowledge);
    let chars = least[2]["content"].as_str().unwrap().chars().count();
    assert!((100..=200).contains(&chars), "{chars}");
}

/// Limits are remembered by digest, and some agents restart their call ids in every turn.
#[test]
fn a_result_sent_whole_stays_whole_when_an_equal_one_follows() {
    let long = json!("same ".repeat(1_500));
    let mut messages = vec![message_by("user", "the task")];
    for (id, content) in [("a", &long), ("b", &json!("x"))] {
        messages.extend(step(id, content));
    }
    let known = messages.len();
    messages.extend(step("a", &long));
    messages.extend(step("d", &long));
    let mut knowledge = SessionKnowledge {
        sent_messages: known,
        ..SessionKnowledge::default()
    };
    knowledge.injections.tight_chars = Some(1_000);
    let (plan, first) = checked_plan(&messages, 200_000, "openai", &knowledge);
    assert_eq!((&first[2], &first[6]), (&messages[2], &messages[6]));
    assert_eq!(plan.memory.count_tightened(), 1);
    let knowledge = SessionKnowledge {
        sent_messages: messages.len(),
        memory: plan.memory,
        ..SessionKnowledge::default()
    };
    messages.extend(step("e", &json!("y")));
    let (_, second) = checked_plan(&messages, 200_000, "openai", &knowledge);
    assert_eq!(second[..first.len()], first[..]);
}
