//! A proxy that is killed at work loses nothing that it answered.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
};

use crate::support::{
    DONE, FINISH, NO_CATALOGUE, ProviderStep, ReceivedRequest, ScriptedProvider, answer,
    send_bytes, stream_head, within_time,
};

const SESSIONS: usize = 200;
const ROUNDS: usize = 50;
/// Answers of a round before the proxy may be killed: from one for some clients to several for all.
const ANSWERS: std::ops::Range<usize> = 50..500;
/// A longer conversation is replaced by a new one.
const LONG: u32 = 40;

type Http = legacy::Client<HttpConnector, Full<Bytes>>;

/// A conversation as its client knows it.
struct Talk {
    number: usize,
    messages: Vec<Value>,
    /// Health and session of the last whole answer.
    told: Option<Told>,
    stream: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Told {
    session: String,
    generations: u32,
    health: String,
    countdown: Option<u32>,
}

impl Talk {
    fn new(number: usize, again: usize) -> Self {
        let task = json!({"role": "user", "content": format!("Task {number}, part {again}.")});
        Self {
            number,
            messages: vec![task],
            told: None,
            stream: number % 2 == 1,
        }
    }

    /// Runs one generation; `false` where the proxy is gone.
    async fn step(&mut self, http: &Http, address: SocketAddr) -> bool {
        let body = json!({"model": "m", "stream": self.stream, "messages": self.messages});
        let request = Request::post(format!("http://{address}/v1/chat/completions"))
            .header("content-type", "application/json")
            .header("x-plimsoll-stream-health", "comment")
            .body(Full::from(body.to_string()));
        let Ok(answer) = within_time(http.request(request.unwrap())).await else {
            return false;
        };
        let (head, body) = answer.into_parts();
        let Ok(body) = within_time(body.collect()).await else {
            return false;
        };
        let body = body.to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        assert_eq!(head.status, 200, "{text}");
        let header = |name: &str| {
            let value = head.headers.get(format!("x-plimsoll-{name}"));
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let comment = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.strip_prefix(": plimsoll "))?;
            let mut words = line.split(' ').filter_map(|word| word.split_once('='));
            words
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_owned())
        };
        let told = |name: &str| {
            if self.stream {
                comment(name)
            } else {
                header(name)
            }
        };
        assert!(!self.stream || text.ends_with(DONE), "{text}");
        let session = header("session").unwrap();
        let before = self.told.as_ref();
        assert!(
            before.is_none_or(|before| before.session == session),
            "another session"
        );
        self.told = Some(Told {
            session,
            generations: before.map_or(0, |before| before.generations) + 1,
            health: told("health").unwrap(),
            countdown: told("countdown").map(|left| left.parse().unwrap()),
        });
        let said = answer_text(self.messages.len());
        self.messages
            .push(json!({"role": "assistant", "content": said}));
        self.messages
            .push(json!({"role": "user", "content": "Go on."}));
        true
    }
}

fn answer_text(messages: usize) -> String {
    format!("answer to {messages} messages")
}

/// Equal answers to equal requests, with usage that grows with the request.
fn reply(seen: &ReceivedRequest) -> Vec<ProviderStep> {
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let own = |message: &&Value| message["role"] == "assistant" || message["content"] == "Go on.";
    let said = answer_text(1 + messages.iter().filter(own).count());
    let tokens = 1_000 + 400 * messages.len();
    let usage =
        json!({"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5});
    if body["stream"] == true {
        let chunk = |chunk: Value| send_bytes(format!("data: {chunk}\n\n"));
        return vec![
            stream_head(),
            chunk(
                json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": said}}]}),
            ),
            send_bytes(FINISH),
            chunk(json!({"choices": [], "usage": usage})),
            send_bytes(DONE),
            ProviderStep::Close,
        ];
    }
    let message = json!({"role": "assistant", "content": said});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let body = json!({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage});
    vec![answer("200 OK", "", body.to_string())]
}

/// The real binary, on a data directory that earlier processes used.
struct Proxy {
    child: Child,
    address: SocketAddr,
    log: Option<JoinHandle<Vec<String>>>,
}

impl Proxy {
    async fn start(folder: &Path, up: &ScriptedProvider) -> Self {
        let settings = folder.join("config.toml");
        let written = format!(
            "default_provider = \"up\"\n\
             [server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {data:?}\n\
             [store]\nurl = \"file\"\ntimeout_ms = 20000\n\
             [providers.up]\nbase_url = \"http://{up}/v1\"\nauth = \"none\"\nask_models = false\n\
             [models.m]\nprovider = \"up\"\ncontext_length = 60000\noptimal_max_tokens = 4000\n\
             critical_max_tokens = 9000\n",
            data = folder.join("data"),
            up = up.address,
        );
        std::fs::write(&settings, written).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("--config")
            .arg(&settings)
            .envs(NO_CATALOGUE)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (listening, listens) = oneshot::channel();
        let log = thread::spawn(move || {
            let (mut listening, mut log) = (Some(listening), Vec::new());
            for line in lines {
                let line = line.unwrap();
                if line.contains("listening on")
                    && let Some(listening) = listening.take()
                {
                    let _ = listening.send(line.clone());
                }
                if line.contains("was not stored") || line.contains("\"ERROR\"") {
                    log.push(line);
                }
            }
            log
        });
        let line = within_time(listens).await.expect("it listens");
        let line: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            address: line["listen"].as_str().unwrap().parse().unwrap(),
            log: Some(log),
        }
    }

    /// Kills it with SIGKILL; returns the warnings in its log.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The session from the API; `None` where there is none.
async fn read_session(http: &Http, address: SocketAddr, session: &str) -> Option<Told> {
    let path = format!("http://{address}/plimsoll/api/sessions/{session}");
    let answer = within_time(http.request(Request::get(path).body(Full::default()).unwrap())).await;
    let body = within_time(answer.unwrap().into_body().collect())
        .await
        .unwrap();
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
    Some(Told {
        session: body["id"].as_str()?.to_owned(),
        generations: u32::try_from(body["generations"].as_u64()?).unwrap(),
        health: body["health"].as_str()?.to_owned(),
        countdown: body["countdown"]
            .as_u64()
            .map(|left| u32::try_from(left).unwrap()),
    })
}

/// Runs all clients until `answers` were answered, then kills the proxy. Returns the conversations.
async fn run_until_kill(
    talks: Vec<Talk>,
    proxy: Proxy,
    answers: usize,
) -> (Vec<Talk>, Vec<String>) {
    let (count, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut running = JoinSet::new();
    let http: Http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let address = proxy.address;
    for mut talk in talks {
        let (http, count, enough) = (http.clone(), Arc::clone(&count), Arc::clone(&enough));
        running.spawn(async move {
            while talk.step(&http, address).await {
                if count.fetch_add(1, Ordering::SeqCst) + 1 == answers {
                    enough.notify_one();
                }
            }
            talk
        });
    }
    within_time(enough.notified()).await;
    let log = proxy.kill();
    let mut talks = running.join_all().await;
    talks.sort_by_key(|talk| talk.number);
    (talks, log)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answered_request_is_lost_by_repeated_kills() {
    let folder = tempfile::tempdir().unwrap();
    let mut talks: Vec<_> = (0..SESSIONS).map(|number| Talk::new(number, 0)).collect();
    let (mut checked, mut ahead) = (0_u64, 0);
    let mut seen = HashSet::new();
    for round in 0..=ROUNDS {
        let up = ScriptedProvider::start_answering(reply).await;
        let proxy = Proxy::start(folder.path(), &up).await;
        let http: Http = legacy::Client::builder(TokioExecutor::new()).build_http();
        for talk in &mut talks {
            let Some(told) = talk.told.clone() else {
                continue;
            };
            let found = read_session(&http, proxy.address, &told.session).await;
            let found = found.unwrap_or_else(|| panic!("round {round}: {told:?} is gone"));
            checked += u64::from(told.generations);
            seen.insert((told.health.clone(), told.countdown));
            // There may be one more: killed between storing and the end of the answer.
            match found.generations.checked_sub(told.generations) {
                Some(0) => assert_eq!(found, told),
                Some(1) => ahead += 1,
                _ => panic!("round {round}: {found:?} in the place of {told:?}"),
            }
            if told.generations >= LONG {
                *talk = Talk::new(talk.number, round + 1);
            }
        }
        if round == ROUNDS {
            proxy.kill();
            break;
        }
        let answers = ANSWERS.start + round * 7_919 % ANSWERS.len();
        let (back, log) = run_until_kill(talks, proxy, answers).await;
        talks = back;
        assert!(log.is_empty(), "{log:?}");
        let names = std::fs::read_dir(folder.path().join("data")).unwrap();
        let names: Vec<_> = names.map(|file| file.unwrap().file_name()).collect();
        let damaged = |name: &std::ffi::OsString| name.to_string_lossy().contains("damaged");
        assert!(!names.iter().any(damaged), "{names:?}");
    }
    println!(
        "{ROUNDS} rounds, {checked} generations of {SESSIONS} sessions looked for, 0 lost; {ahead} were \
         stored and not yet answered"
    );
    for health in ["healthy", "caution", "critical"] {
        assert!(
            seen.iter().any(|(seen, _)| seen == health),
            "{health} was never met"
        );
    }
    assert!(seen.iter().any(|(_, countdown)| countdown.is_some()));
}

/// Two processes, one directory: the second exits with the reason and the remedy.
#[tokio::test]
async fn a_second_process_on_one_data_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let up = ScriptedProvider::start_answering(reply).await;
    let first = Proxy::start(folder.path(), &up).await;
    let second = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("--config")
        .arg(folder.path().join("config.toml"))
        .envs(NO_CATALOGUE)
        .output()
        .unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(!second.status.success());
    assert!(
        said.contains("sessions.db is in use by another process"),
        "{said}"
    );
    // The first is unaffected; after its end the directory is free.
    let http: Http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let mut talk = Talk::new(0, 0);
    assert!(talk.step(&http, first.address).await);
    first.kill();
    let next = Proxy::start(folder.path(), &up).await;
    let told = talk.told.unwrap();
    assert_eq!(
        read_session(&http, next.address, &told.session).await,
        Some(told)
    );
}
