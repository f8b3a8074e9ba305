//! Compressed requests: the decompressed body is sent on, within the usual limits.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write};
use http::{Method, Request};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    COMPLETION, RunningProxy, ScriptedProvider, TestClient, TestUpload, answer, chunked_body,
    full_body, within_time,
};

const ASK: &str = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9 \\/ é 漢\"}], \"n\":1}\n";

fn pack(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let level = Compression::default();
    let mut packed = Vec::new();
    match coding {
        "gzip" | "x-gzip" => write::GzEncoder::new(&mut packed, level)
            .write_all(bytes)
            .unwrap(),
        "deflate" => write::ZlibEncoder::new(&mut packed, level)
            .write_all(bytes)
            .unwrap(),
        "raw" => write::DeflateEncoder::new(&mut packed, level)
            .write_all(bytes)
            .unwrap(),
        "br" => brotli::CompressorWriter::new(&mut packed, 4096, 5, 22)
            .write_all(bytes)
            .unwrap(),
        "zstd" => packed = zstd::encode_all(bytes, 3).unwrap(),
        _ => panic!("{coding}"),
    }
    packed
}

fn request(client: &TestClient, encodings: &[&str], body: TestUpload) -> Request<TestUpload> {
    let mut request = client.request(Method::POST, "/v1/chat/completions");
    for encoding in encodings {
        request = request.header("content-encoding", *encoding);
    }
    request.body(body).unwrap()
}

/// A chunked body in pieces.
fn pieces(bytes: &[u8], size: usize) -> TestUpload {
    chunked_body(bytes.chunks(size).map(Bytes::copy_from_slice))
}

/// The provider gets the plain body, without `content-encoding`.
async fn assert_arrives_plain(
    up: &ScriptedProvider,
    client: &TestClient,
    encodings: &[&str],
    body: TestUpload,
    count: usize,
) {
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = client.send(request(client, encodings, body)).await;
    assert_eq!(got.status, 200, "{encodings:?}: {}", got.text());
    let seen = up.requests(count).await.pop().unwrap();
    assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), ASK);
    assert_eq!(seen.header("content-encoding"), None);
    let length = ASK.len().to_string();
    assert_eq!(seen.header("content-length"), Some(length.as_str()));
}

async fn proxy_of(up: &ScriptedProvider) -> RunningProxy {
    up.proxy().start().await
}

#[tokio::test]
async fn a_compressed_request_is_sent_on_decompressed() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    let mut count = 0;
    for client in [proxy.client(), proxy.client_h2()] {
        for coding in ["gzip", "x-gzip", "deflate", "raw", "br", "zstd"] {
            let packed = pack(coding, ASK.as_bytes());
            let name = if coding == "raw" { "deflate" } else { coding };
            for body in [full_body(packed.clone()), pieces(&packed, 7)] {
                count += 1;
                assert_arrives_plain(&up, &client, &[name], body, count).await;
            }
        }
        count += 1;
        let packed = full_body(pack("gzip", ASK.as_bytes()));
        assert_arrives_plain(&up, &client, &["identity,GZip"], packed, count).await;
    }
    // An uncompressed request keeps its headers.
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let client = proxy.client();
    client
        .send(request(&client, &["identity"], full_body(ASK)))
        .await;
    let seen = up.requests(count + 1).await.pop().unwrap();
    assert_eq!(seen.header("content-encoding"), Some("identity"));
}

#[tokio::test]
async fn a_body_that_cannot_be_decompressed_is_refused_with_its_reason() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    for client in [proxy.client(), proxy.client_h2()] {
        for encodings in [&["compress"][..], &["gzip", "x"], &["gzip, br"]] {
            let got = client
                .send(request(&client, encodings, full_body("x")))
                .await;
            got.is_error(415, "unsupported_content_encoding");
            assert_eq!(got.headers["accept-encoding"], "gzip, deflate, br, zstd");
        }
        for coding in ["gzip", "deflate", "br", "zstd"] {
            let whole = pack(coding, ASK.as_bytes());
            let cut = &whole[..whole.len() - 3];
            let more = [&whole[..], b"more"].concat();
            for body in [ASK.as_bytes(), cut, &more] {
                for body in [full_body(body.to_vec()), pieces(body, 5)] {
                    let got = client.send(request(&client, &[coding], body)).await;
                    got.is_error(400, "invalid_content_encoding");
                }
            }
            // An empty body is invalid JSON.
            for empty in [Vec::new(), pack(coding, b"")] {
                let got = client
                    .send(request(&client, &[coding], full_body(empty)))
                    .await;
                got.is_error(400, "invalid_json");
            }
        }
    }
    assert_eq!(up.count_requests(), 0);
}

#[tokio::test]
async fn decompression_bombs_are_refused_and_free_their_bytes() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .set(|config| config.server.max_bytes_in_flight = 40 << 20)
        .start()
        .await;
    let client = proxy.client();
    let zeros = vec![b' '; 64 << 20];
    let bombs = [
        ("br", pack("br", &zeros)),
        ("zstd", pack("zstd", &zeros)),
        ("gzip", pack("gzip", &zeros)),
        ("deflate", pack("deflate", &zeros)),
    ];
    for (coding, bomb) in bombs {
        assert!(bomb.len() < 128 << 10, "{coding}: {}", bomb.len());
        for body in [full_body(bomb.clone()), pieces(&bomb, 100)] {
            let got = client.send(request(&client, &[coding], body)).await;
            got.is_error(413, "body_too_large");
        }
    }
    // Milder ones, within the body limit, meet the limit of bytes in flight.
    let large = pack("zstd", &[ASK.as_bytes(), &zeros[..3 << 20]].concat());
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = client
        .send(request(&client, &["zstd"], full_body(large.clone())))
        .await;
    assert_eq!(got.status, 200, "{}", got.text());
    let small = up
        .proxy()
        .set(|config| config.server.max_bytes_in_flight = 3 << 20)
        .start()
        .await;
    let client = small.client();
    for _ in 0..3 {
        let got = client
            .send(request(&client, &["zstd"], full_body(large.clone())))
            .await;
        got.is_error(503, "overloaded");
    }
    let fits = pack("zstd", &[ASK.as_bytes(), &zeros[..1 << 20]].concat());
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let got = client
        .send(request(&client, &["zstd"], full_body(fits)))
        .await;
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn compressed_bytes_are_not_counted_beside_the_decompressed() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .set(|config| config.server.max_bytes_in_flight = 5 << 19)
        .start()
        .await;
    let client = proxy.client();
    // Random letters hardly compress.
    let mut number = 1_u64;
    let noise = (0..2 << 20).map(|_| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        b'!' + (number >> 33) as u8 % 2 + (number >> 40) as u8 % 60
    });
    let noise = noise.map(|letter| {
        if matches!(letter, b'"' | b'\\') {
            b'x'
        } else {
            letter
        }
    });
    let noise = String::from_utf8(noise.collect()).unwrap();
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{noise}"}}]}}"#);
    let packed = pack("gzip", body.as_bytes());
    assert!(packed.len() + body.len() > 5 << 19, "{}", packed.len());
    for _ in 0..2 {
        up.script_next([answer("200 OK", "", COMPLETION)]);
        let got = client
            .send(request(&client, &["gzip"], full_body(packed.clone())))
            .await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
}

#[tokio::test]
async fn the_size_limit_is_of_the_decompressed_body() {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .set(|config| config.server.max_body_bytes = ASK.len())
        .start()
        .await;
    let client = proxy.client();
    let mut count = 0;
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let longer = format!("{ASK}{}", " ".repeat(100));
        let packed = pack(coding, longer.as_bytes());
        for body in [full_body(packed.clone()), pieces(&packed, 9)] {
            let got = client.send(request(&client, &[coding], body)).await;
            got.is_error(413, "body_too_large");
        }
        let packed = pack(coding, ASK.as_bytes());
        if packed.len() <= ASK.len() {
            count += 1;
            assert_arrives_plain(&up, &client, &[coding], full_body(packed), count).await;
        }
    }
    assert!(count > 0 && up.count_requests() == count);
}

#[tokio::test]
async fn expect_continue_is_answered() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    up.script_next([answer("200 OK", "", COMPLETION)]);
    let packed = pack("zstd", ASK.as_bytes());
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         CONTENT-ENCODING: ZSTD\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        packed.len()
    );
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = [0; 25];
    within_time(stream.read_exact(&mut told)).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&packed).await.unwrap();
    let mut answer = String::new();
    within_time(stream.read_to_string(&mut answer))
        .await
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(up.request().await.body, ASK.as_bytes());
}

#[tokio::test]
async fn unguarded_paths_keep_their_content_encoding() {
    let up = ScriptedProvider::start().await;
    let proxy = proxy_of(&up).await;
    up.script_next([answer("200 OK", "", "{}")]);
    let client = proxy.client();
    let packed = pack("gzip", ASK.as_bytes());
    let request = client
        .request(Method::POST, "/v1/embeddings")
        .header("content-encoding", "gzip");
    let got = client.send_with(request, packed.clone()).await;
    assert_eq!(got.status, 200);
    let seen = up.request().await;
    assert_eq!(seen.header("content-encoding"), Some("gzip"));
    assert_eq!(seen.body, packed);
}
