//! Clients that edit their own history, and conversations that only look like one.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{find, hints::hint, save, sessions, tenant};
use crate::{
    guard::injections::{InjectionContent, InjectionRecord},
    session::{
        InheritedSession, SessionHint, SessionId, SessionState, Sessions,
        tests::fixture::{assistant, call, conversation, result, system, user},
    },
};

const LONG: &str = "An answer that is so long that no other conversation has it by chance.";

/// One request of client `name` and its answer, with what the relay tells of its calls; `None` if no state was inherited.
async fn ask_as(
    sessions: &Sessions,
    name: &str,
    hint: Option<&SessionHint>,
    messages: &[Value],
    answer: &Value,
) -> (bool, SessionState) {
    let request = conversation(messages);
    let tenant = tenant(sessions, name);
    let inherited = sessions.inherit_session(&request, &tenant, hint).await;
    let mut state = inherited.begin_generation();
    let echo = conversation(std::slice::from_ref(answer));
    state.sketch.answer_calls = echo.digest_calls(&echo.items[0]);
    assert!(save(sessions, &inherited, &state, answer).await);
    (inherited.state.is_some(), state)
}

async fn ask(sessions: &Sessions, messages: &[Value], answer: &Value) -> (bool, SessionState) {
    ask_as(sessions, "a", None, messages, answer).await
}

async fn inherits(sessions: &Sessions, messages: &[Value]) -> Option<SessionId> {
    find(sessions, messages)
        .await
        .state
        .map(|state| state.session)
}

/// An agent's session of so many steps, with unique ids.
fn steps(count: usize) -> Vec<Value> {
    let mut messages = vec![system("s"), user("the task")];
    for step in 0..count {
        let id = format!("call_{step}_of_mine");
        messages.push(call(&id, &format!(r#"{{"path":"src/file_{step}.rs"}}"#)));
        messages.push(result(&id, &format!("the content of file {step}")));
    }
    messages
}

fn step_call(step: usize) -> Value {
    steps(step + 1)[2 + 2 * step].clone()
}

/// Plays an agent's session of `count` requests, whose history `edit` changes before each. Returns how many sessions there
/// were, and the last state.
async fn play(
    sessions: &Sessions,
    count: usize,
    edit: impl Fn(usize, &mut Vec<Value>),
) -> (usize, SessionState) {
    let mut seen = HashSet::new();
    let mut last = None;
    for step in 0..count {
        let mut messages = steps(step);
        edit(step, &mut messages);
        let (_, state) = ask(sessions, &messages, &step_call(step)).await;
        seen.insert(state.session);
        last = Some(state);
    }
    (seen.len(), last.unwrap())
}

#[tokio::test]
async fn a_client_that_clears_one_more_result_each_time_keeps_its_session() {
    let sessions = sessions();
    let (count, last) = play(&sessions, 90, |step, messages| {
        for old in 0..step.saturating_sub(6) {
            messages[3 + 2 * old]["content"] = json!("[old result cleared]");
        }
    })
    .await;
    assert_eq!((count, last.generations), (1, 90));
}

#[tokio::test]
async fn a_clock_in_the_first_message_keeps_the_session() {
    for first in ["The time is", "Task"] {
        let sessions = sessions();
        let tell_time = |step: usize, messages: &mut Vec<Value>| {
            messages[1] = user(&format!("{first} 10:{step:02}. Do it."));
        };
        // The first answer alone is too short to tell the conversation.
        let (count, last) = play(&sessions, 90, tell_time).await;
        assert_eq!((count, last.generations), (2, 89));
    }
    let sessions = sessions();
    let mut messages = vec![user("10:00 Do it.")];
    let mut all = HashSet::new();
    for turn in 0..90 {
        messages[0] = user(&format!("10:{turn:02} Do it."));
        let answer = assistant(&format!("{LONG} It is the {turn}th."));
        let (_, state) = ask(&sessions, &messages, &answer).await;
        assert_eq!(state.generations, turn + 1);
        all.insert(state.session);
        messages.extend([answer, user(&format!("and then {turn}?"))]);
    }
    assert_eq!(all.len(), 1);
}

#[tokio::test]
async fn a_reminder_at_the_running_question_keeps_the_session() {
    let sessions = sessions();
    let mut messages = vec![system("s")];
    let mut generations = 0;
    for question in 0..12 {
        let asked = format!("question {question}");
        messages.push(user(&format!(
            "{asked}\n<reminder>todo: {question}</reminder>"
        )));
        let at = messages.len() - 1;
        for step in 0..3 {
            let id = format!("call_{question}_{step}");
            let answer = call(&id, &format!(r#"{{"path":"{question}/{step}"}}"#));
            generations += 1;
            let (_, state) = ask(&sessions, &messages, &answer).await;
            assert_eq!(state.generations, generations, "{question} {step}");
            messages.extend([answer, result(&id, "out")]);
        }
        let answer = assistant(&format!("done {question}"));
        generations += 1;
        let (_, state) = ask(&sessions, &messages, &answer).await;
        assert_eq!(state.generations, generations);
        messages.push(answer);
        messages[at] = user(&asked);
    }
}

/// The messages of a session of 12 steps and two questions, played unchanged.
async fn played(sessions: &Sessions) -> (Vec<Value>, SessionId) {
    let (count, last) = play(sessions, 12, |_, _| {}).await;
    assert_eq!(count, 1);
    let mut messages = steps(12);
    let answer = assistant("All files are read.");
    ask(sessions, &messages, &answer).await;
    messages.extend([answer, user("go on")]);
    let answer = assistant("It is done.");
    let (_, state) = ask(sessions, &messages, &answer).await;
    assert_eq!((state.session, state.generations), (last.session, 14));
    messages.extend([answer, user("thanks")]);
    (messages, last.session)
}

type EditMessages = fn(&mut Vec<Value>);

/// Edits of clients, each of the played messages.
fn edits() -> Vec<(&'static str, EditMessages)> {
    vec![
        ("respelled", |it| {
            for step in 0..12 {
                it[2 + 2 * step] = call(
                    &format!("call_{step}_of_mine"),
                    &format!(r#"{{ "path" : "src/file_{step}.rs" }}"#),
                );
            }
        }),
        ("cleared", |it| {
            for step in 0..12 {
                it[3 + 2 * step]["content"] = json!("[cleared]");
            }
        }),
        ("shortened", |it| it[9]["content"] = json!("the con…")),
        ("text beside a result", |it| {
            it.insert(8, user("<environment_details>now</environment_details>"));
        }),
        ("text removed", |it| {
            it.remove(it.len() - 3);
        }),
        ("old question emptied", |it| {
            let at = it.len() - 3;
            it[at] = user("");
        }),
        ("system text in the midst", |it| {
            it.insert(6, system("be brief"))
        }),
        ("task reworded", |it| it[1] = user("another clock")),
        ("oldest step gone", |it| {
            it.drain(2..4);
        }),
    ]
}

#[tokio::test]
async fn edits_of_old_messages_keep_the_session() {
    let sessions = sessions();
    let (messages, session) = played(&sessions).await;
    for (name, edit) in edits() {
        let mut edited = messages.clone();
        edit(&mut edited);
        let inherited = find(&sessions, &edited).await;
        let state = inherited.state.as_ref().expect(name);
        assert_eq!((state.session, state.generations), (session, 14), "{name}");
        assert_eq!(
            inherited.edited.is_some(),
            !["system text in the midst", "old question emptied"].contains(&name),
            "{name}"
        );
        // A retry finds the same.
        assert_eq!(find(&sessions, &edited).await.state, inherited.state);
        // No other tenant.
        let other = tenant(&sessions, "b");
        let foreign = sessions
            .inherit_session(&conversation(&edited), &other, None)
            .await;
        assert!(foreign.state.is_none(), "{name}");
    }
    let mut all = messages;
    for name in [
        "respelled",
        "cleared",
        "old question emptied",
        "task reworded",
        "text beside a result",
    ] {
        let edit = edits().into_iter().find(|edit| edit.0 == name).unwrap();
        edit.1(&mut all);
    }
    assert_eq!(inherits(&sessions, &all).await, Some(session));
}

#[tokio::test]
async fn what_follows_an_edited_history_is_counted_once() {
    let sessions = sessions();
    let (mut messages, session) = played(&sessions).await;
    messages[3]["content"] = json!("[cleared]");
    for _ in 0..3 {
        let (_, state) = ask(&sessions, &messages, &assistant("more")).await;
        assert_eq!((state.session, state.generations), (session, 15));
    }
    messages.extend([assistant("more"), user("and")]);
    let strict = find(&sessions, &messages).await;
    assert_eq!(strict.edited, None, "from now on the chain fits again");
    assert_eq!(strict.state.unwrap().generations, 15);
}

#[tokio::test]
async fn a_rewind_in_an_edited_history_finds_its_own_generation() {
    let sessions = sessions();
    let (mut messages, session) = played(&sessions).await;
    messages[1] = user("the task, 10:30");
    for (answers, generations) in [(11, 11), (10, 10), (9, 9)] {
        let state = find(&sessions, &messages[..2 + 2 * answers])
            .await
            .state
            .unwrap();
        assert_eq!((state.session, state.generations), (session, generations));
    }
    // A regenerated answer that is not in the request counts for nothing.
    let mut branch = messages[..24].to_vec();
    branch.push(user("otherwise"));
    let state = find(&sessions, &branch).await.state.unwrap();
    assert_eq!(state.generations, 11);
}

#[tokio::test]
async fn a_compaction_by_the_client_begins_a_new_session() {
    let sessions = sessions();
    let (messages, _) = played(&sessions).await;
    let tail = &messages[messages.len() - 4..];
    let compacted = [&[user("This session continues another one: …")], tail].concat();
    assert_eq!(inherits(&sessions, &compacted).await, None);
}

#[tokio::test]
async fn another_conversation_with_the_same_answers_inherits_nothing() {
    let short = [
        [assistant("ok"), assistant("ok")],
        [call("call_0", "{}"), call("call_0", "{}")],
        [assistant("Yes."), assistant("No.")],
        [assistant(""), assistant("")],
    ];
    for answers in short {
        let sessions = sessions();
        let document = user(&"A long document. ".repeat(100));
        let talk = |one: &str, two: &str| {
            let [first, second] = answers.clone();
            vec![
                document.clone(),
                user(one),
                first,
                user(two),
                second,
                user("go on"),
            ]
        };
        let mine = talk("What is it?", "And why?");
        ask(&sessions, &mine[..2], &answers[0]).await;
        ask(&sessions, &mine[..4], &answers[1]).await;
        // One that the proxy never saw before.
        let other = talk("Who wrote it?", "And when?");
        assert_eq!(inherits(&sessions, &other).await, None, "{answers:?}");
        // Two that it saw, and whose histories are edited then.
        ask(&sessions, &other[..2], &answers[0]).await;
        ask(&sessions, &other[..4], &answers[1]).await;
        let mut clocked = other.clone();
        clocked[0] = user("10:00");
        let found = find(&sessions, &clocked).await.state;
        let own = inherits(&sessions, &other).await;
        assert!(
            found.is_none_or(|state| Some(state.session) == own),
            "{answers:?}"
        );
    }
}

#[tokio::test]
async fn examples_that_sessions_share_prove_nothing() {
    let sessions = sessions();
    let mut examples = vec![system("Classify.")];
    for example in 0..8 {
        examples.push(user(&format!("example {example}")));
        examples.push(assistant(&format!("{LONG} {example}")));
    }
    let talk = |question: &str| [&examples[..], &[user(question)]].concat();
    ask(&sessions, &talk("mine"), &assistant("Yes.")).await;
    let mut other = [talk("theirs"), vec![assistant("Yes."), user("and")]].concat();
    // Else the examples and the answer alone would lead to it.
    other[1] = user("10:00");
    assert_eq!(inherits(&sessions, &other).await, None);
}

#[tokio::test]
async fn other_arguments_are_another_answer() {
    let sessions = sessions();
    let numbered = |of: &str| {
        let mut messages = vec![user(&format!("task of {of}"))];
        for step in 0..6 {
            let arguments =
                format!(r#"{{"path":"/{of}/a/long/way/down/to/the/very/file/number/{step}"}}"#);
            messages.extend([call("call_0", &arguments), result("call_0", "out")]);
        }
        messages
    };
    let (mine, other) = (numbered("mine"), numbered("other"));
    for step in 0..6 {
        ask(&sessions, &mine[..1 + 2 * step], &mine[1 + 2 * step]).await;
    }
    assert_eq!(inherits(&sessions, &other).await, None);
    let mut clocked = mine.clone();
    clocked[0] = user("10:00");
    assert!(inherits(&sessions, &clocked).await.is_some());
    // With another format there is nothing either.
    let mut changed = mine;
    changed[11] = call("call_0", r#"{"path":"/mine"}"#);
    changed[0] = user("10:00");
    assert!(
        find(&sessions, &changed)
            .await
            .state
            .is_none_or(|state| state.generations < 6)
    );
}

#[tokio::test]
async fn of_two_sessions_that_fit_none_is_continued() {
    let sessions = sessions();
    let talk = |clock: &str| {
        let said = [assistant(LONG), user("and?"), assistant("That is all.")];
        [&[user(clock)], &said[..], &[user("go on")]].concat()
    };
    for clock in ["10:00", "10:01"] {
        let messages = talk(clock);
        // Each is begun anew, as by two agents with the same answers.
        for (until, answer) in [(1, 1), (3, 3)] {
            let request = conversation(&messages[..until]);
            let mut inherited: InheritedSession = sessions
                .inherit_session(&request, &tenant(&sessions, "a"), None)
                .await;
            if until == 1 {
                inherited.state = None;
            }
            let state = inherited.begin_generation();
            assert!(save(&sessions, &inherited, &state, &messages[answer]).await);
        }
    }
    let one = inherits(&sessions, &talk("10:00")).await.unwrap();
    let two = inherits(&sessions, &talk("10:01")).await.unwrap();
    if one != two {
        assert_eq!(inherits(&sessions, &talk("10:02")).await, None);
    }
}

#[tokio::test]
async fn trusted_ids_that_differ_forbid_it() {
    let agent = |session: &str, agent: &str| {
        let mut headers = http::HeaderMap::new();
        headers.insert("x-claude-code-session-id", session.parse().unwrap());
        if !agent.is_empty() {
            headers.insert("x-claude-code-agent-id", agent.parse().unwrap());
        }
        SessionHint::from_request(&headers, None)
    };
    let thread = |id: &str| {
        let mut headers = http::HeaderMap::new();
        headers.insert("user-agent", "codex/1".parse().unwrap());
        headers.insert("thread-id", id.parse().unwrap());
        SessionHint::from_request(&headers, None)
    };
    let own = |id: &str| Some(hint("x-plimsoll-session", id));
    let chat = |id: &str| Some(hint("x-session-id", id));
    for (made, asked, fits) in [
        (agent("s", ""), agent("s", ""), true),
        (agent("s", ""), agent("t", ""), false),
        (agent("s", ""), agent("s", "1"), false),
        (agent("s", ""), None, true),
        (None, agent("s", ""), true),
        (thread("1"), thread("1"), true),
        (thread("1"), thread("2"), false),
        (own("mine"), own("mine"), true),
        (own("mine"), own("other"), false),
        (own("mine"), None, true),
        (None, own("other"), false),
        // Headers that other clients use for something else are not trusted.
        (chat("1"), chat("2"), true),
    ] {
        let sessions = sessions();
        let mut messages = vec![user("task")];
        for turn in 0..3 {
            let answer = assistant(&format!("{LONG} {turn}"));
            ask_as(&sessions, "a", made.as_ref(), &messages, &answer).await;
            messages.extend([answer, user("go on")]);
        }
        let account = tenant(&sessions, "a");
        let request = conversation(&messages);
        let strict = sessions.inherit_session(&request, &account, asked.as_ref());
        let session = strict.await.state.unwrap().session;
        messages[0] = user("10:00");
        let edited = conversation(&messages);
        let found = sessions
            .inherit_session(&edited, &account, asked.as_ref())
            .await;
        assert_eq!(found.state.is_some(), fits, "{made:?} {asked:?}");
        // The id that the proxy gave names the session.
        let given = hint("x-plimsoll-session", &session.to_string());
        let found = sessions
            .inherit_session(&edited, &account, Some(&given))
            .await;
        assert_eq!(found.state.unwrap().session, session);
    }
}

#[tokio::test]
async fn prompts_stay_before_their_answers_in_an_edited_history() {
    let sessions = sessions();
    for step in 0..8 {
        let messages = steps(step);
        let inherited = find(&sessions, &messages).await;
        let mut state = inherited.begin_generation();
        let answer = conversation(&[step_call(step)]);
        state.sketch.answer_calls = answer.digest_calls(&answer.items[0]);
        state.recovery.records.push(InjectionRecord {
            place: state.messages,
            what: InjectionContent::Prompt(format!("{step}").into()),
        });
        assert!(save(&sessions, &inherited, &state, &step_call(step)).await);
    }
    let places = async |messages: &[Value]| -> Vec<(u32, String)> {
        let records = find(&sessions, messages)
            .await
            .to_knowledge()
            .injections
            .records;
        let prompt = |what| match what {
            InjectionContent::Prompt(text) => text.to_string(),
            _ => unreachable!(),
        };
        records
            .into_iter()
            .map(|it| (it.place, prompt(it.what)))
            .collect()
    };
    let whole: Vec<_> = (0..8)
        .map(|step| (1 + 2 * step, step.to_string()))
        .collect();
    assert_eq!(places(&steps(8)).await, whole);
    let mut beside = steps(8);
    beside.insert(8, user("beside a result"));
    let moved = whole
        .iter()
        .map(|(place, of)| (place + u32::from(*place > 6), of.clone()));
    assert_eq!(places(&beside).await, moved.collect::<Vec<_>>());
    let mut without = steps(8);
    without.drain(6..8);
    let moved = whole.iter().filter(|(place, _)| *place != 5);
    let moved = moved.map(|(place, of)| (place - 2 * u32::from(*place > 5), of.clone()));
    assert_eq!(places(&without).await, moved.collect::<Vec<_>>());
}

/// What a client may do to a message of its history.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Replace,
    Empty,
    Insert,
    Remove,
    Respell,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// However clients edit their histories, and whatever answers they have in common, no session finds another one's state,
    /// and one whose history is edited little is found again.
    #[test]
    fn no_edit_leads_to_a_foreign_state(
        turns in prop::collection::vec(
            (0..3_usize, 0..6_u8, prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8), 0..3)),
            1..40,
        ),
        shared: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let sessions = sessions();
            let document = user(if shared { "the same document" } else { "a task" });
            // Which talks have had all messages of a session, word for word.
            let mut owners: HashMap<SessionId, HashSet<usize>> = HashMap::new();
            let mut talks: Vec<Vec<Value>> =
                (0..3).map(|of| vec![document.clone(), user(&format!("of {of}"))]).collect();
            for (turn, (of, kind, edits)) in turns.into_iter().enumerate() {
                let talk = &mut talks[of];
                for (at, edit) in edits {
                    let at = at.index(talk.len());
                    let edit = [Edit::Replace, Edit::Empty, Edit::Insert, Edit::Remove, Edit::Respell][usize::from(edit)];
                    let role = talk[at]["role"].as_str().unwrap().to_owned();
                    match edit {
                        Edit::Replace if role != "assistant" => talk[at]["content"] = json!(format!("[{turn}]")),
                        Edit::Empty if role != "assistant" => talk[at]["content"] = json!(""),
                        Edit::Insert => talk.insert(at, user("<reminder>the same</reminder>")),
                        Edit::Remove if role == "user" && at > 1 => drop(talk.remove(at)),
                        Edit::Respell if talk[at].get("tool_calls").is_some() => {
                            talk[at]["tool_calls"][0]["function"]["arguments"] = json!("{ \"path\": \"a\" }");
                        }
                        _ => {}
                    }
                }
                let answer = match kind {
                    0 => assistant("ok"),
                    1 => call("call_0", r#"{"path":"a"}"#),
                    2 => assistant(&format!("{LONG} {turn}")),
                    3 => call(&format!("call_{turn}_{of}"), r#"{"path":"a"}"#),
                    4 => assistant(&format!("{turn}")),
                    _ => assistant("done"),
                };
                let inherited = find(&sessions, talk).await;
                let of_session = owners.entry(inherited.session).or_default();
                prop_assert!(inherited.edited.is_none() || of_session.contains(&of));
                of_session.insert(of);
                let mut state = inherited.begin_generation();
                let echo = conversation(std::slice::from_ref(&answer));
                state.sketch.answer_calls = echo.digest_calls(&echo.items[0]);
                prop_assert!(save(&sessions, &inherited, &state, &answer).await);
                let id = answer["tool_calls"][0]["id"].as_str().map(str::to_owned);
                talk.push(answer);
                talk.push(match id {
                    Some(id) => result(&id, "out"),
                    None => user(&format!("go on, {of} {turn}")),
                });
                // Unchanged, it is found.
                prop_assert!(find(&sessions, talk).await.state.is_some());
            }
            Ok(())
        })?;
    }
}
