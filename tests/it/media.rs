//! Media in shapes that no format of ours lists: none of them makes the proxy cut a conversation that fits.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};

use crate::support::{COMPLETION, ScriptedProvider, answer, model_with_window};

const WINDOW: u32 = 64_000;

/// An image of 1,024 pixels a side, whose base64 would be some 400,000 tokens of text.
fn image() -> String {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x04\0\x08\x06\0\0\0".to_vec();
    let mut state = 7u32;
    png.extend((0..500_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }));
    STANDARD.encode(png)
}

/// Blocks with one image each.
fn blocks(data: &str) -> Vec<Value> {
    let url = format!("data:image/png;base64,{data}");
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    vec![
        json!({"type": "document", "source": {"type": "content", "content": [image]}}),
        json!({"type": "image", "data": data, "mimeType": "image/png"}),
        json!({"type": "resource", "resource": {"uri": "file:///a.png", "blob": data}}),
        json!({"type": "image_url", "image_url": {"url": url}}),
        json!({"type": "input_image", "image_url": {"url": url}}),
        json!({"inlineData": {"mimeType": "image/png", "data": data}}),
        json!({"image": {"format": "png", "source": {"bytes": data}}}),
        json!({"type": "file", "mediaType": "image/png", "data": url}),
        json!({"type": "screenshot_of_tomorrow", "pixels": [{"shown": url}]}),
        // As a client spells it that escapes slashes and breaks lines.
        json!({"type": "unknown", "data": data.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line)).collect::<Vec<_>>().join("\n")}),
    ]
}

fn list_of(author: &str, content: Value) -> Value {
    let turns = (0..26).map(|turn| {
        let author = ["user", "assistant"][turn % 2];
        json!({"role": author, "content": format!("turn {turn}: a few words about it")})
    });
    let mut list: Vec<Value> = turns.collect();
    list.insert(4, json!({"role": author, "content": content}));
    list.insert(5, json!({"role": "assistant", "content": "I see it."}));
    list.push(json!({"role": "user", "content": "And what is on it?"}));
    list.into()
}

#[tokio::test]
async fn an_image_in_any_shape_drops_nothing() {
    let up = ScriptedProvider::start().await;
    let window = model_with_window(WINDOW);
    let proxy = up.proxy().set(move |config| {
        config.models.insert("*".to_owned(), window.clone());
    });
    let (proxy, data) = (proxy.start().await, image());
    for block in blocks(&data) {
        for (path, list) in [
            ("/v1/chat/completions", "messages"),
            ("/v1/messages", "messages"),
            ("/v1/responses", "input"),
        ] {
            // In a list, and in the place of one.
            for content in [json!([block]), block.clone()] {
                let body = json!({"model": "m", "max_tokens": 900, list: list_of("user", content)});
                let body = body.to_string().replace('/', "\\/");
                up.script_next([answer("200 OK", "", COMPLETION)]);
                let client = proxy.client();
                let request = client.request(Method::POST, path);
                let got = client.send_with(request, body.clone()).await;
                let what = &block.to_string()[..80];
                assert_eq!(got.headers["x-plimsoll-actions"], "none", "{path}: {what}");
                assert!(up.last_request().body == body.as_bytes(), "{path}: {what}");
            }
        }
    }
}
