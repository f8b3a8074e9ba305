//! Sends a request, as a well-behaved client or another.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, header::HOST};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};

use super::{
    conversation::{ClientConversation, SendOptions},
    pause,
};
use crate::support::{
    ClientAnswer, TestClient, TestUpload, full_body, generate::Random, read_answer, within_time,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientManner {
    /// Over a kept connection.
    Kept,
    Http2,
    /// Over a new connection.
    Fresh,
    /// Reads slowly, with a small socket buffer.
    Slow,
    LeavesInUpload,
    LeavesBeforeHead,
    LeavesMidway,
}

impl ClientManner {
    pub(crate) fn draw_manner(random: &mut Random, fails: bool) -> Self {
        if fails {
            random.weighted(&[
                (72, Self::Kept),
                (12, Self::Http2),
                (6, Self::Fresh),
                (4, Self::Slow),
                (2, Self::LeavesInUpload),
                (2, Self::LeavesBeforeHead),
                (2, Self::LeavesMidway),
            ])
        } else {
            random.weighted(&[(80, Self::Kept), (12, Self::Http2), (8, Self::Fresh)])
        }
    }
}

/// Kept connections to one proxy.
pub(crate) struct ProxyConnections {
    pub(crate) address: SocketAddr,
    http1: TestClient,
    http2: TestClient,
}

impl ProxyConnections {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            http1: TestClient::new(address, false),
            http2: TestClient::new(address, true),
        }
    }

    /// The API's answer to the owner of the conversation.
    pub(crate) async fn ask_api(
        &self,
        talk: &ClientConversation,
        method: Method,
        path: &str,
    ) -> ClientAnswer {
        let request = self
            .http1
            .request(method, &format!("/plimsoll/api/sessions/{path}"))
            .header("authorization", talk.authorization());
        let request = request
            .body(full_body(""))
            .expect("a request is well formed");
        self.http1.send(request).await
    }

    /// The whole answer; `None` where the client disconnected before its end.
    pub(crate) async fn send_turn(
        &self,
        talk: &ClientConversation,
        how: SendOptions,
        manner: ClientManner,
    ) -> Option<ClientAnswer> {
        let body = Bytes::from(talk.write_body(how));
        let request = |client: &TestClient| {
            let request = client.request(Method::POST, PATH);
            with_headers(request, talk, how)
                .body(full_body(body.clone()))
                .expect("a request is well formed")
        };
        match manner {
            ClientManner::Kept => {
                Some(read_answer(self.http1.begin(request(&self.http1)).await, None).await)
            }
            ClientManner::Http2 => {
                // A reset stream loses unwritten bytes, also its head: the client retries then.
                // Nothing else is allowed in place of a head.
                let begun = match self.http2.try_begin(request(&self.http2)).await {
                    Ok(begun) => begun,
                    Err(error) if format!("{error:?}").contains("Reset(") => return None,
                    Err(error) => panic!("no answer: {error:?}"),
                };
                Some(read_answer(begun, None).await)
            }
            ClientManner::LeavesInUpload => {
                self.leave_in_upload(talk, how, &body).await;
                None
            }
            _ => self.send_on_own_connection(talk, how, manner, body).await,
        }
    }

    /// Over a new connection.
    async fn send_on_own_connection(
        &self,
        talk: &ClientConversation,
        how: SendOptions,
        manner: ClientManner,
        body: Bytes,
    ) -> Option<ClientAnswer> {
        let socket = TcpSocket::new_v4().expect("there are sockets left");
        if manner == ClientManner::Slow {
            // A small buffer: the rest waits in the proxy.
            let _ = socket.set_recv_buffer_size(8 << 10);
        }
        let stream = within_time(socket.connect(self.address)).await;
        let stream = TokioIo::new(stream.expect("the proxy takes connections"));
        let (mut sender, connection) = http1::handshake::<_, TestUpload>(stream)
            .await
            .expect("nothing is said yet");
        let mut open = JoinSet::new();
        open.spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(PATH)
            .header(HOST, self.address.to_string());
        let request = with_headers(request, talk, how)
            .body(full_body(body))
            .expect("a request is well formed");
        let answer = sender.send_request(request);
        if manner == ClientManner::LeavesBeforeHead {
            let wait = Duration::from_millis(talk.turn % 7 * 10);
            let _ = tokio::time::timeout(wait, answer).await;
            return None;
        }
        let answer = within_time(answer)
            .await
            .expect("every request is answered");
        match manner {
            ClientManner::LeavesMidway => {
                let mut answer = answer.into_body();
                let _ = within_time(answer.frame()).await;
                None
            }
            ClientManner::Slow => Some(read_answer(answer, Some(SLOW)).await),
            _ => Some(read_answer(answer, None).await),
        }
    }

    /// Half a body, then a stall or a reset.
    async fn leave_in_upload(&self, talk: &ClientConversation, how: SendOptions, body: &[u8]) {
        let request = with_headers(Request::post(PATH), talk, how)
            .body(())
            .expect("a request is well formed");
        let mut head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in request.headers() {
            head += &format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
        }
        head += "\r\n";
        let mut stream = within_time(TcpStream::connect(self.address))
            .await
            .expect("the proxy takes connections");
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&body[..body.len() / 2]).await;
        pause(talk.turn % 5 * 20).await;
        if talk.turn.is_multiple_of(2) {
            let _ = stream.set_zero_linger();
        }
    }
}

/// The pause of a slow reader between two pieces.
const SLOW: Duration = Duration::from_millis(60);

const PATH: &str = "/v1/chat/completions";

fn with_headers(
    request: http::request::Builder,
    talk: &ClientConversation,
    how: SendOptions,
) -> http::request::Builder {
    let summarises = if talk.wants_summaries() { "on" } else { "off" };
    let mut request = request
        .header("content-type", "application/json")
        .header("authorization", talk.authorization())
        .header("x-soak-session", &talk.marker)
        .header("x-soak-turn", talk.turn)
        .header("x-soak-wants-usage", how.wants_usage.to_string())
        .header("x-plimsoll-auto-compact", summarises);
    if how.streams {
        request = request.header("x-plimsoll-stream-health", "comment");
    }
    request
}
