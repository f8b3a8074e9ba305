//! A hundred reloads under load: no request fails, and none sees a mix of two files.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::support::{
    COMPLETION, ClientAnswer, DONE, FINISH, Process, ProviderStep, ReceivedRequest,
    ScriptedProvider, Settings, TEXT, TestClient, USAGE, answer, within_time,
};

const CLIENTS: usize = 16;
const RELOADS: usize = 100;

/// Enough load for the test, and little enough for a busy machine.
const PACE: Duration = Duration::from_millis(20);

/// One of two files: its alias, window and provider header belong together.
#[derive(Clone, Copy)]
struct Kind {
    model: &'static str,
    window: &'static str,
    set: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        model: "m8",
        window: "8000",
        set: "one",
    },
    Kind {
        model: "m16",
        window: "16000",
        set: "two",
    },
];

impl Kind {
    fn lines(self) -> String {
        let other = KINDS.iter().find(|kind| kind.model != self.model);
        let other = other.unwrap().model;
        format!(
            "headers = {{ x-set = {:?} }}\n[aliases]\nm = \"up/{}\"\n\
             [models.\"up/{}\"]\ncontext_length = {}\n[models.\"up/{other}\"]\ncontext_length = 4000\n",
            self.set, self.model, self.model, self.window
        )
    }
}

/// Answers with the model and header of the request. Streams are sent byte by byte.
fn answers(seen: &ReceivedRequest) -> Vec<ProviderStep> {
    let asked: Value = serde_json::from_slice(&seen.body).unwrap();
    let model = asked["model"].as_str().unwrap();
    let set = seen.header("x-set").unwrap_or("none");
    let said = format!("\"{model} {set}\"");
    if asked["stream"] == true {
        let events = format!("{}{FINISH}{USAGE}{DONE}", TEXT.replace("\"hé\"", &said));
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        return vec![
            ProviderStep::Send(head.into()),
            ProviderStep::Drip(events.into()),
            ProviderStep::Close,
        ];
    }
    vec![answer("200 OK", "", COMPLETION.replace("\"hi\"", &said))]
}

/// The file under which an answer was given.
fn kind_of(answer: &ClientAnswer) -> Option<usize> {
    let text = answer.text();
    let limit = answer.headers.get("x-plimsoll-context-limit")?;
    KINDS.iter().position(|kind| {
        let said = format!("\"{} {}\"", kind.model, kind.set);
        text.contains(&said) && limit == kind.window
    })
}

async fn ask(client: &TestClient, stream: bool, number: usize) -> Result<usize, String> {
    let body = format!(
        r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"{number}"}}]}}"#
    );
    let answer = client.chat(body).await;
    let whole = answer.whole && (!stream || answer.text().ends_with(DONE));
    match kind_of(&answer) {
        Some(kind) if answer.status == 200 && whole => Ok(kind),
        _ => Err(format!("{answer:?}")),
    }
}

#[tokio::test]
async fn no_request_fails_during_reloads() {
    let up = ScriptedProvider::start_answering(answers).await;
    let settings = Settings::new(&up);
    settings.write(&KINDS[0].lines());
    let mut proxy = Process::start(&settings.file).await;
    let done = Arc::new(AtomicBool::new(false));
    // Counts of answers under each file.
    let (under, mut counted) = watch::channel([0_usize; 2]);
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = proxy.client();
        let (done, under) = (Arc::clone(&done), under.clone());
        clients.spawn(async move {
            let mut failed = Vec::new();
            let mut pace = interval(PACE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut stream = number % 2 == 0;
            while !done.load(Relaxed) {
                pace.tick().await;
                stream = !stream;
                match ask(&client, stream, number).await {
                    Ok(kind) => under.send_modify(|counts| counts[kind] += 1),
                    Err(failure) => failed.push(failure),
                }
            }
            failed
        });
    }
    let id = proxy.id();
    let files = || fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
    let mut open = 0;
    for reload in 1..=RELOADS {
        let kind = reload % 2;
        let before = under.borrow()[kind];
        // Alternates between writing in place with SIGHUP, and replacing the file.
        if reload % 2 == 0 {
            settings.write(&KINDS[kind].lines());
            proxy.signal("HUP");
        } else {
            let next = settings.folder.path().join("next");
            fs::write(&next, settings.with_lines(&KINDS[kind].lines())).unwrap();
            fs::rename(&next, &settings.file).unwrap();
        }
        proxy.wait_for_line("new settings are in force").await;
        // Requests see it before the next one is written.
        let some = before + 2 * CLIENTS;
        let seen = within_time(counted.wait_for(|counts| counts[kind] >= some)).await;
        drop(seen.unwrap());
        if reload == RELOADS / 10 {
            open = files();
        }
    }
    done.store(true, Relaxed);
    let mut failed = Vec::new();
    while let Some(of_one) = clients.join_next().await {
        failed.extend(of_one.unwrap());
    }
    let counts = *under.borrow();
    println!(
        "{RELOADS} reloads: {} requests, {} of them under the first file and {} under the second; {} failed",
        counts[0] + counts[1] + failed.len(),
        counts[0],
        counts[1],
        failed.len()
    );
    assert!(failed.is_empty(), "{}: {:?}", failed.len(), failed.first());
    // The number of open connections varies a little; a hundred leaked providers would add many.
    assert!(files() < open + 60, "{} open files, {open} before", files());
}
