//! What is stored of a conversation: no more than needed, and no text of an ordinary one.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use plimsoll::{config::secret::SecretKey, session::state_cipher::ADDED_BYTES, store::Store};

use crate::support::{
    Agent, AgentGeneration, Mixing, ModelSetup, NoticeManner, Process, Settings, TestClient,
    TestStore, Worker, model_with_early_levels,
};

/// A client whose messages all contain `SAID`.
fn marked_agent(proxy: impl Into<TestClient>) -> Agent {
    let mut agent = Agent::new(proxy);
    agent.messages[0]["content"] = format!("SAID by the system. {}", "keel ".repeat(6_000)).into();
    agent.messages[1]["content"] = "SAID by the user.".into();
    agent.result = |nth| format!("SAID by tool {nth}. {}", "mast ".repeat(80));
    agent.user = |nth| format!("SAID by the user again, {nth}.");
    agent
}

/// The states of a session of so many generations in this window.
async fn states(window: u32, generations: usize, key: Option<SecretKey>) -> Vec<Bytes> {
    let store = Arc::new(TestStore::default());
    let worker = Worker::new(NoticeManner::Follows, Mixing::Never);
    let up = ModelSetup::new(window)
        .start(move |heard| worker.compose_reply(heard))
        .await;
    let proxy = up.provider.proxy().set(|config| {
        config
            .models
            .insert("m".into(), model_with_early_levels(window));
        config.store.encrypt_key = key;
    });
    let proxy = proxy.store(Arc::clone(&store) as Arc<dyn Store>);
    let proxy = proxy.start().await;
    let mut agent = marked_agent(&proxy);
    let told: Vec<AgentGeneration> = agent.steps(generations).await;
    assert!(
        told.iter()
            .all(|it| it.header("session") == told[0].header("session"))
    );
    let written = store.written.lock().unwrap();
    assert_eq!(written.len(), generations);
    written.clone()
}

fn holds(state: &Bytes, text: &str) -> bool {
    state
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn no_text_of_an_ordinary_conversation_is_stored() {
    let states = states(200_000, 12, None).await;
    println!(
        "bytes of a state: {} after the first answer",
        states[0].len()
    );
    println!("bytes of a state: {} after 8", states[7].len());
    // Neither messages nor the model's texts and calls.
    for text in [
        "SAID",
        "keel",
        "mast",
        "Step",
        "deck",
        "read_file",
        "Well",
        "call_",
    ] {
        assert!(!states.iter().any(|state| holds(state, text)), "{text}");
    }
    assert!(states.iter().all(|state| state.len() < 320));
}

const NOTE: &str = "the datum is in metres";
const PROMPT: &str = "[Context notice, ";

#[tokio::test]
async fn stored_reminders_are_encrypted() {
    let plain = states(20_000, 48, None).await;
    let sealed = states(20_000, 48, Some(SecretKey::new([7; 32]))).await;
    let last = plain.last().unwrap();
    println!(
        "bytes of a state: {} after 48, with prompts and reminders",
        last.len()
    );
    // Of the texts only what is put back or carried over is stored,
    assert!(holds(last, NOTE) && holds(last, PROMPT));
    for text in ["SAID", "keel", "mast"] {
        assert!(!plain.iter().any(|state| holds(state, text)), "{text}");
    }
    // and encryption makes it unreadable.
    for text in [NOTE, PROMPT, "metres", "reminder"] {
        assert!(!sealed.iter().any(|state| holds(state, text)), "{text}");
    }
    let lengths = plain.iter().zip(&sealed);
    let lengths: Vec<_> = lengths
        .map(|(plain, sealed)| sealed.len().abs_diff(plain.len() + ADDED_BYTES))
        .collect();
    // A date may differ by a second.
    assert!(lengths.iter().all(|by| *by <= 8), "{lengths:?}");
}

/// The content of every file in a directory.
fn all_of(folder: &Path) -> Bytes {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend_from_slice(&all_of(&path))
        } else {
            all.extend_from_slice(&fs::read(path).unwrap())
        }
    }
    all.into()
}

/// The data directory of a process after a session with recovery.
async fn left_on_disk(store: &str) -> Bytes {
    let worker = Worker::new(NoticeManner::Follows, Mixing::Never);
    let model = ModelSetup::new(20_000);
    let up = model.start(move |heard| worker.compose_reply(heard)).await;
    let settings = Settings::new(&up.provider);
    settings.write(&format!(
        "profile = \"openai\"\n[models.m]\ncontext_length = 20000\noptimal_max_tokens = 6700\ncritical_max_tokens = 9000\n[store]\nurl = \"file\"\n{store}"
    ));
    let process = Process::run(|command| {
        let command = command.arg("--config").arg(&settings.file);
        command.env("STORED_KEY", "7e".repeat(32))
    });
    let process = process.await;
    let mut agent = marked_agent(process.client());
    let noted = |it: &AgentGeneration| it.number("reminders") >= Some(2);
    agent.until(60, noted).await;
    process.signal("TERM");
    let (status, log) = process.wait_for_end().await;
    assert!(status.success(), "{log}");
    assert!(!log.contains(NOTE) && !log.contains(&"7e".repeat(32)));
    all_of(&settings.folder.path().join("data"))
}

#[tokio::test]
async fn the_file_of_a_process_with_a_key_is_encrypted() {
    let plain = left_on_disk("").await;
    assert!(holds(&plain, NOTE) && holds(&plain, PROMPT));
    let sealed = left_on_disk("encrypt_key_env = \"STORED_KEY\"").await;
    assert!(sealed.len() > 4_096);
    for text in [NOTE, PROMPT, "metres", "reminder", "SAID"] {
        assert!(!holds(&sealed, text), "{text}");
    }
    assert!(!holds(&plain, "SAID"));
}
