//! A scripted provider on a real socket. It records every request, except
//! [`ScriptedProvider::start_forgetful`].

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

use super::proxy::within_time;

/// A step of the provider's answer.
#[derive(Clone, Debug)]
pub(crate) enum ProviderStep {
    Send(Vec<u8>),
    /// One byte in each write.
    Drip(Vec<u8>),
    /// Until released, or until the peer closes.
    Stall,
    Close,
    /// Closes with a reset.
    Reset,
    Pause(Duration),
}

/// A request as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct ScriptState {
    script: VecDeque<Vec<ProviderStep>>,
    seen: Vec<ReceivedRequest>,
    connections: usize,
    /// Numbers of the connections that the peer closed.
    closed: Vec<usize>,
}

pub(crate) struct ScriptedProvider {
    pub(crate) address: SocketAddr,
    shared: Arc<ProviderState>,
    _tasks: JoinSet<()>,
}

/// Answers requests without a script.
type AnswerRule = Box<dyn Fn(&ReceivedRequest) -> Vec<ProviderStep> + Send + Sync>;

struct ProviderState {
    answers: Option<AnswerRule>,
    /// Whether requests are recorded.
    keeps: bool,
    state: Mutex<ScriptState>,
    changed: watch::Sender<u64>,
    released: Semaphore,
    hang_ups: watch::Sender<()>,
}

impl ScriptedProvider {
    pub(crate) async fn start() -> Self {
        Self::listen_with(None, true).await
    }

    /// A provider that answers every request without a script by this rule.
    pub(crate) async fn start_answering(
        answers: impl Fn(&ReceivedRequest) -> Vec<ProviderStep> + Send + Sync + 'static,
    ) -> Self {
        Self::listen_with(Some(Box::new(answers)), true).await
    }

    /// The same for long runs: no request is recorded.
    pub(crate) async fn start_forgetful(
        answers: impl Fn(&ReceivedRequest) -> Vec<ProviderStep> + Send + Sync + 'static,
    ) -> Self {
        Self::listen_with(Some(Box::new(answers)), false).await
    }

    async fn listen_with(answers: Option<AnswerRule>, keeps: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ProviderState {
            answers,
            keeps,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            released: Semaphore::new(0),
            hang_ups: watch::Sender::new(()),
        });
        let mut tasks = JoinSet::new();
        let state = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        connections.spawn(serve(Arc::clone(&state), accepted.unwrap().0));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// Sets the steps for the next request without a script.
    pub(crate) fn script_next(&self, steps: impl Into<Vec<ProviderStep>>) -> &Self {
        let mut state = self.shared.state.lock().unwrap();
        state.script.push_back(steps.into());
        self
    }

    /// Releases one stalled request.
    pub(crate) fn release_stalled(&self) {
        self.shared.released.add_permits(1);
    }

    /// Closes every idle connection.
    pub(crate) fn hang_up(&self) {
        self.shared.hang_ups.send_replace(());
    }

    /// Waits for `count` requests, and returns all received ones.
    pub(crate) async fn requests(&self, count: usize) -> Vec<ReceivedRequest> {
        self.wait_until(|state| state.seen.len() >= count).await;
        self.shared.state.lock().unwrap().seen.clone()
    }

    pub(crate) async fn request(&self) -> ReceivedRequest {
        self.requests(1).await.remove(0)
    }

    /// The newest request.
    pub(crate) fn last_request(&self) -> ReceivedRequest {
        let state = self.shared.state.lock().unwrap();
        state.seen.last().unwrap().clone()
    }

    /// How many requests were received.
    pub(crate) fn count_requests(&self) -> usize {
        self.shared.state.lock().unwrap().seen.len()
    }

    /// Waits until the peer closed a connection.
    pub(crate) async fn closed(&self, connection: usize) {
        self.wait_until(|state| state.closed.contains(&connection))
            .await;
    }

    async fn wait_until(&self, reached: impl Fn(&ScriptState) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        within_time(async {
            loop {
                changes.borrow_and_update();
                if reached(&self.shared.state.lock().unwrap()) {
                    return;
                }
                changes.changed().await.unwrap();
            }
        })
        .await;
    }
}

impl ProviderState {
    fn change<T>(&self, change: impl FnOnce(&mut ScriptState) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        changed
    }

    fn closed(&self, connection: usize) {
        if self.keeps {
            self.change(|state| state.closed.push(connection));
        }
    }
}

async fn serve(shared: Arc<ProviderState>, mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let connection = shared.change(|state| {
        state.connections += 1;
        state.connections - 1
    });
    let mut buffer = Vec::new();
    let mut hang_ups = shared.hang_ups.subscribe();
    loop {
        let seen = tokio::select! {
            seen = read_request(&mut stream, &mut buffer) => seen,
            _ = hang_ups.changed() => None,
        };
        let Some(mut seen) = seen else {
            break;
        };
        seen.connection = connection;
        let answered = shared.answers.as_ref().map(|answers| answers(&seen));
        let steps = shared.change(|state| {
            if shared.keeps {
                state.seen.push(seen);
            }
            state.script.pop_front().or(answered)
        });
        for step in steps.unwrap_or_else(|| vec![ProviderStep::Close]) {
            if !run_step(&shared, &mut stream, step).await {
                shared.closed(connection);
                return;
            }
        }
    }
    shared.closed(connection);
}

/// Returns whether the connection can be used further.
async fn run_step(shared: &ProviderState, stream: &mut TcpStream, step: ProviderStep) -> bool {
    match step {
        ProviderStep::Send(bytes) => stream.write_all(&bytes).await.is_ok(),
        ProviderStep::Drip(bytes) => {
            for byte in bytes {
                if stream.write_all(&[byte]).await.is_err() {
                    return false;
                }
                tokio::task::yield_now().await;
            }
            true
        }
        ProviderStep::Stall => {
            let mut byte = [0];
            tokio::select! {
                permit = shared.released.acquire() => {
                    permit.unwrap().forget();
                    true
                }
                read = stream.read(&mut byte) => {
                    assert!(!matches!(read, Ok(1)), "nothing is sent before the answer");
                    false
                }
            }
        }
        ProviderStep::Close => {
            let _ = stream.shutdown().await;
            false
        }
        ProviderStep::Reset => {
            let _ = stream.set_zero_linger();
            false
        }
        ProviderStep::Pause(time) => {
            tokio::time::sleep(time).await;
            true
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        read_more(stream, buffer).await?;
    };
    let head: Vec<u8> = buffer.drain(..end + 4).collect();
    let head = String::from_utf8_lossy(&head);
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_owned(), value.trim().to_owned())
    });
    let mut seen = ReceivedRequest {
        line,
        headers: headers.collect(),
        ..ReceivedRequest::default()
    };
    if seen.header("transfer-encoding").is_some() {
        while !buffer.ends_with(b"0\r\n\r\n") {
            read_more(stream, buffer).await?;
        }
        seen.body = decode_chunks(&std::mem::take(buffer));
        return Some(seen);
    }
    let length = seen
        .header("content-length")
        .map_or(0, |n| n.parse().unwrap());
    while buffer.len() < length {
        read_more(stream, buffer).await?;
    }
    seen.body = buffer.drain(..length).collect();
    Some(seen)
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let read = stream.read_buf(buffer).await.ok()?;
    (read > 0).then_some(())
}

fn decode_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n").unwrap();
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
}

/// An answer with a content length.
pub(crate) fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> ProviderStep {
    let body = body.as_ref();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n"
    );
    ProviderStep::Send([head.as_bytes(), body].concat())
}

/// The head of a stream that ends when the connection closes.
pub(crate) fn stream_head() -> ProviderStep {
    ProviderStep::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec(),
    )
}

/// A stream of these pieces that ends when the connection closes.
pub(crate) fn stream_of<P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>) -> Vec<ProviderStep> {
    let mut steps = vec![stream_head()];
    steps.extend(pieces.into_iter().map(send_bytes));
    steps.push(ProviderStep::Close);
    steps
}

/// A stream that stalls after [`TEXT`], and completes once released.
pub(crate) fn stalled_stream() -> [ProviderStep; 6] {
    [
        stream_head(),
        send_bytes(TEXT),
        ProviderStep::Stall,
        send_bytes(FINISH),
        send_bytes(DONE),
        ProviderStep::Close,
    ]
}

/// A stream that stalls after [`TEXT`] and never completes.
pub(crate) fn endless_stream() -> [ProviderStep; 3] {
    [stream_head(), send_bytes(TEXT), ProviderStep::Stall]
}

pub(crate) fn send_bytes(bytes: impl AsRef<[u8]>) -> ProviderStep {
    ProviderStep::Send(bytes.as_ref().to_vec())
}

/// A chat completion.
pub(crate) const COMPLETION: &str = r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}}"#;
pub(crate) const TEXT: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hé\"}}]}\n\n";
pub(crate) const FINISH: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub(crate) const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n";
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// A timeout for tests that wait for it.
pub(crate) const SOON: Duration = Duration::from_millis(200);
