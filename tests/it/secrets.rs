//! No key and no prompt in any output of the proxy: its log at the lowest level, errors, commands,
//! files, metrics, traces.

mod commands;
mod requests;

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use self::requests::requests;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use http::{Method, Request};
use plimsoll::config::{Environment, Flags, load_config};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::unbounded_channel,
    task::JoinSet,
};

use crate::support::{
    COMPLETION, DONE, FINISH, NO_CATALOGUE, ProviderStep, ReceivedRequest, ScriptedProvider, TEXT,
    TestClient, TestCollector, TestUpload, USAGE, answer, full_body, send_bytes, stream_head,
    stream_of, within_time,
};

/// Secrets by name; none may be found.
struct Markers {
    provider_key: String,
    client_key: String,
    wrong_key: String,
    admin_key: String,
    collector_key: String,
    prompt: String,
}

impl Markers {
    fn new() -> Self {
        let marker = |name: &str| {
            let mut random = [0; 16];
            getrandom::fill(&mut random).unwrap();
            format!("{name}{}", hex::encode(random))
        };
        Self {
            provider_key: marker("pk"),
            client_key: marker("ck"),
            wrong_key: marker("wk"),
            admin_key: marker("ak"),
            collector_key: marker("ok"),
            prompt: marker("prompt"),
        }
    }

    fn all(&self) -> [&str; 6] {
        [
            &self.provider_key,
            &self.client_key,
            &self.wrong_key,
            &self.admin_key,
            &self.collector_key,
            &self.prompt,
        ]
    }

    /// Asserts that a text contains none of them, plain or inside base64.
    fn are_absent(&self, place: &str, text: &str) {
        for marker in self.all() {
            assert!(!text.contains(marker), "{marker} in {place}: {text}");
            for before in 0..3usize {
                let coded = STANDARD_NO_PAD
                    .encode(["x".repeat(before).as_bytes(), marker.as_bytes()].concat());
                // The ends of its base64 depend on the bytes around it.
                let middle = &coded[before.div_ceil(3) * 4..coded.len() - 4];
                assert!(!text.contains(middle), "{marker} in base64 in {place}");
            }
        }
    }
}

/// The provider's behaviour, chosen by a header of the request.
fn answers(seen: &ReceivedRequest) -> Vec<ProviderStep> {
    let error = |status: &str, code: &str, message: &str| {
        let body = format!(r#"{{"error":{{"message":"{message}","type":"x","code":"{code}"}}}}"#);
        vec![answer(status, "", body)]
    };
    match seen.header("x-want").unwrap_or_default() {
        "stream" => [TEXT, FINISH, USAGE, DONE]
            .into_iter()
            .fold(vec![stream_head()], |mut steps, event| {
                steps.push(send_bytes(event));
                steps
            })
            .into_iter()
            .chain([ProviderStep::Close])
            .collect(),
        "cut" => stream_of([TEXT]),
        "401" => error("401 Unauthorized", "invalid_api_key", "wrong key"),
        "404" => error("404 Not Found", "model_not_found", "no such model"),
        "429" => error("429 Too Many Requests", "rate_limit_exceeded", "slower"),
        "400" => error(
            "400 Bad Request",
            "context_length_exceeded",
            "This model's maximum context length is 9000 tokens. However, your messages resulted in 10000 tokens.",
        ),
        "500" => error("500 Internal Server Error", "x", "sorry"),
        "garbage" => vec![send_bytes("no http\r\n\r\n"), ProviderStep::Close],
        "none" => vec![ProviderStep::Close],
        _ => vec![answer("200 OK", "", COMPLETION)],
    }
}

struct Running {
    child: Child,
    log: Arc<Mutex<String>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn plimsoll(folder: &Path, markers: &Markers) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .arg("--config")
        .arg(folder.join("config.toml"))
        .current_dir(folder)
        .envs(NO_CATALOGUE)
        .env("PLIMSOLL_LOG", "trace")
        .env("RUST_LOG", "trace")
        .env("UP_KEY", &markers.provider_key);
    command
}

/// A server that does not speak TLS.
async fn no_tls(tasks: &mut JoinSet<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1_000]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    port
}

fn write_config(folder: &Path, markers: &Markers, up: &ScriptedProvider, (gone, tls): (u16, u16)) {
    let hash = |key: &str| hex::encode(Sha256::digest(key));
    let up = up.address;
    let config = format!(
        "default_provider = \"up\"\n\
         [server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {data:?}\nmax_body_bytes = 200000\n\
         [admin]\nkey_sha256 = \"{admin}\"\n\
         [clients.alice]\nkey_sha256 = \"{alice}\"\n\
         paths = [\"chat/*\", \"embeddings\", \"models*\", \"audio/*\", \"realtime\", \"files\"]\n\
         [providers.up]\nbase_url = \"http://{up}/v1\"\napi_key_env = \"UP_KEY\"\nask_models = false\n\
         query = \"code={key}\"\n\
         [providers.tls]\nbase_url = \"https://127.0.0.1:{tls}/v1\"\napi_key_env = \"UP_KEY\"\nask_models = false\n\
         [providers.gone]\nbase_url = \"http://127.0.0.1:{gone}/v1\"\napi_key_env = \"UP_KEY\"\nask_models = false\n\
         [models.\"up/small\"]\ncontext_length = 4000\n",
        data = folder.join("data"),
        key = markers.provider_key,
        admin = hash(&markers.admin_key),
        alice = hash(&markers.client_key),
    );
    std::fs::write(folder.join("config.toml"), config).unwrap();
}

/// Starts the proxy and waits until it listens.
async fn start(
    folder: &Path,
    markers: &Markers,
    collector: &TestCollector,
) -> (Running, std::net::SocketAddr) {
    let mut child = plimsoll(folder, markers)
        .env("PLIMSOLL_TRACES__ENDPOINT", collector.endpoint())
        .env("PLIMSOLL_TRACES__HEADERS_ENV", "OTLP_HEADERS")
        .env("OTLP_HEADERS", format!("x-key={}", markers.collector_key))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = Arc::new(Mutex::new(String::new()));
    let (told, mut lines) = unbounded_channel();
    let keep = |output: Box<dyn std::io::Read + Send>| {
        let (log, told) = (Arc::clone(&log), told.clone());
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let line = line.unwrap();
                writeln!(log.lock().unwrap(), "{line}").unwrap();
                let _ = told.send(line);
            }
        })
    };
    let readers = vec![
        keep(Box::new(child.stdout.take().unwrap())),
        keep(Box::new(child.stderr.take().unwrap())),
    ];
    let address = loop {
        let line = within_time(lines.recv()).await.expect("it listens");
        if line.contains("listening on") {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            break line["listen"].as_str().unwrap().parse().unwrap();
        }
    };
    let running = Running {
        child,
        log,
        readers,
    };
    (running, address)
}

#[tokio::test]
async fn no_log_header_or_error_holds_a_key_or_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let markers = Markers::new();
    let up = ScriptedProvider::start_answering(answers).await;
    // The port of a closed listener.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr();
    let gone = gone.unwrap().port();
    let mut tasks = JoinSet::new();
    let tls = no_tls(&mut tasks).await;
    write_config(folder.path(), &markers, &up, (gone, tls));
    let collector = TestCollector::start().await;
    let (mut proxy, address) = start(folder.path(), &markers, &collector).await;

    let mut answered = 0;
    for client in [TestClient::http1(address), TestClient::http2(address)] {
        for request in requests(&client, &markers) {
            let what = format!("{} {}", request.method(), request.uri().path());
            let got = client.send(request).await;
            let said = format!("{:?} {:?}", got.headers, got.trailers);
            markers.are_absent(&what, &said);
            markers.are_absent(&what, &String::from_utf8_lossy(&got.body));
            answered += 1;
        }
    }
    assert!(answered > 80);
    // What no client library would send.
    let offered = format!("realtime, openai-insecure-api-key.{}", markers.client_key);
    let upgrade = format!(
        "GET /v1/realtime?model=up/m HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-protocol: {offered}\r\n\r\n"
    );
    let lines = [
        upgrade.replace("up/m", "gone/m"),
        upgrade.replace("up/m", "tls/m"),
        upgrade.replace(&markers.client_key, &markers.wrong_key),
        upgrade,
        format!("{} {}\r\n\r\n", markers.prompt, markers.client_key),
        format!(
            "GET / HTTP/1.1\r\n{} : {}\r\n\r\n",
            markers.prompt, markers.client_key
        ),
    ];
    for line in lines {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let line = line.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        stream.write_all(line.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut got = Vec::new();
        let _ = within_time(stream.read_to_end(&mut got)).await;
        markers.are_absent(&line, &String::from_utf8_lossy(&got));
    }

    let pid = proxy.child.id().to_string();
    let stopped = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(stopped.success() && proxy.child.wait().unwrap().success());
    for reader in proxy.readers.drain(..) {
        reader.join().unwrap();
    }
    let log = proxy.log.lock().unwrap().clone();
    markers.are_absent("the log", &log);
    // The log is at its lowest level, for the proxy's modules only.
    for word in ["request answered", "\"DEBUG\"", "gave no answer", "stopped"] {
        assert!(log.contains(word), "{word} in {log}");
    }
    assert!(!log.contains("panicked"), "{log}");
    for line in log
        .lines()
        .filter(|line| line.contains("\"TRACE\"") || line.contains("\"DEBUG\""))
    {
        assert!(line.contains("\"target\":\"plimsoll::"), "{line}");
    }
    assert!(log.contains("\"client\":\"alice\"") && log.contains("\"trace_id\""));
    let spans = collector.received_spans().await;
    assert!(spans.len() > 200, "{}", spans.len());
    for seen in collector.server.requests(1).await {
        markers.are_absent("spans", &String::from_utf8_lossy(&seen.body));
        assert_eq!(seen.header("x-key"), Some(markers.collector_key.as_str()));
    }
    let mut files = 0;
    for entry in std::fs::read_dir(folder.path().join("data")).unwrap() {
        let held = std::fs::read(entry.unwrap().path()).unwrap();
        markers.are_absent("the data", &String::from_utf8_lossy(&held));
        files += 1;
    }
    assert!(files > 0);
    // All secrets were in use: the provider got those meant for it, and no others.
    let got = format!(
        "{:?}",
        up.requests(1)
            .await
            .iter()
            .map(|seen| &seen.headers)
            .collect::<Vec<_>>()
    );
    assert!(got.contains(&markers.provider_key));
    let bodies: Vec<_> = up
        .requests(1)
        .await
        .into_iter()
        .flat_map(|seen| seen.body)
        .collect();
    assert!(String::from_utf8_lossy(&bodies).contains(&markers.prompt));
    for key in [&markers.client_key, &markers.wrong_key, &markers.admin_key] {
        assert!(
            !got.contains(key.as_str())
                && up
                    .requests(1)
                    .await
                    .iter()
                    .all(|seen| !seen.line.contains(key.as_str()))
        );
    }
}
