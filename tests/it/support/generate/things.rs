//! Parts of a conversation other than texts: tools, calls, images, unusual fields.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    prose::{Tongue, text},
    random::Random,
    write::{Json, compact},
};

const TOOLS: &[&str] = &[
    "bash",
    "read_file",
    "write_file",
    "search",
    "fetch_page",
    "run_tests",
];
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

pub(super) fn tool_name(random: &mut Random) -> &'static str {
    TOOLS[random.below(TOOLS.len())]
}

/// Prefixes of the call ids of different providers.
pub(super) fn call_id(random: &mut Random) -> String {
    match random.below(10) {
        0..=5 => format!("call_{}", random.letters(24, LETTERS)),
        6 | 7 => format!("toolu_01{}", random.letters(22, LETTERS)),
        8 => random.letters(9, LETTERS),
        _ => format!("call_{}", random.below(4)),
    }
}

/// Arguments: about that many characters of JSON.
pub(super) fn arguments(random: &mut Random, tongue: Tongue, chars: usize) -> String {
    if random.chance(3) {
        return "{}".to_owned();
    }
    let path = format!(
        "src/{}.rs",
        random.pick(&["main", "lib", "wire/scan", "guard/fold"])
    );
    let key = *random.pick(&[&"content", &"command", &"query"]);
    compact(&Json::Object(vec![
        ("path", Json::text(path)),
        (
            key,
            Json::text(text(random, tongue, chars.saturating_sub(34))),
        ),
    ]))
}

/// `tools`, or the legacy `functions`, of about that many characters.
pub(super) fn tools(random: &mut Random, tongue: Tongue, chars: usize, legacy: bool) -> Json {
    let each = (chars / TOOLS.len()).max(160);
    let count = (chars / each).clamp(1, TOOLS.len());
    let list = TOOLS[..count].iter().map(|name| {
        let function = Json::Object(vec![
            ("name", Json::text(*name)),
            (
                "description",
                Json::text(text(random, tongue, each.saturating_sub(140))),
            ),
            ("parameters", schema()),
        ]);
        if legacy {
            function
        } else {
            Json::Object(vec![
                ("type", Json::word("function")),
                ("function", function),
            ])
        }
    });
    Json::List(list.collect())
}

fn schema() -> Json {
    let text = || Json::Object(vec![("type", Json::text("string"))]);
    Json::Object(vec![
        ("type", Json::text("object")),
        (
            "properties",
            Json::Object(vec![("path", text()), ("content", text())]),
        ),
        ("required", Json::List(vec![Json::text("path")])),
    ])
}

/// An image, audio, video or file part.
pub(super) fn media(random: &mut Random) -> Json {
    match random.below(10) {
        0..=4 => image(random, true),
        5 | 6 => image(random, false),
        7 => part(
            "input_audio",
            vec![("data", filler(random, 900)), ("format", Json::text("wav"))],
        ),
        8 => part(
            "video_url",
            vec![("url", Json::text("https://example.com/clip.mp4"))],
        ),
        _ => part(
            "file",
            vec![
                ("filename", Json::text("report.pdf")),
                ("file_data", filler(random, 600)),
            ],
        ),
    }
}

fn part(kind: &'static str, members: Vec<(&'static str, Json)>) -> Json {
    Json::Object(vec![
        ("type", Json::word(kind)),
        (kind, Json::Object(members)),
    ])
}

fn image(random: &mut Random, data: bool) -> Json {
    let url = if data {
        let side = |random: &mut Random| random.weighted(&[(1, 1), (3, 512), (3, 1280), (1, 4000)]);
        let (width, height) = (side(random), side(random));
        let extra = random.below(3000);
        format!("data:image/png;base64,{}", png(width, height, extra))
    } else {
        format!(
            "https://example.com/picture-{}.jpg?size=2&full=1",
            random.below(100)
        )
    };
    let mut members = vec![("url", Json::text(url))];
    if random.chance(50) {
        let detail = random.weighted(&[(2, "low"), (1, "high"), (1, "auto")]);
        members.push(("detail", Json::word(detail)));
    }
    part("image_url", members)
}

/// The first bytes of a PNG, which contain its size, and `extra` bytes in place of pixels.
fn png(width: u32, height: u32, extra: usize) -> String {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend_from_slice(&width.to_be_bytes());
    bytes.extend_from_slice(&height.to_be_bytes());
    bytes.extend_from_slice(&[8, 6, 0, 0, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + extra, 0x5a);
    STANDARD.encode(bytes)
}

fn filler(random: &mut Random, bytes: usize) -> Json {
    let length = random.between(1, bytes);
    Json::text(STANDARD.encode(vec![0x37; length]))
}

/// A number in a spelling that only a byte-exact copy keeps.
pub(super) fn number(random: &mut Random) -> Json {
    Json::plain(random.weighted(&[
        (3, "1"),
        (2, "0.2"),
        (1, "1.0"),
        (1, "1e0"),
        (1, "1E+2"),
        (1, "-0.0"),
        (1, "0.10000000000000000555"),
        (1, "123456789012345678901234567890"),
    ]))
}

/// A body field that the proxy does not know.
pub(super) fn unknown(random: &mut Random) -> (&'static str, Json) {
    match random.below(7) {
        0 => ("seed", number(random)),
        1 => (
            "x_trace",
            Json::List(vec![
                number(random),
                Json::plain("null"),
                Json::List(vec![]),
            ]),
        ),
        2 => (
            "metadata",
            Json::Object(vec![("messages", Json::text("[{\"role\":\"user\"}]"))]),
        ),
        3 => (
            "logit_bias",
            Json::Object(vec![("50256", Json::plain("-100"))]),
        ),
        4 => ("user", Json::text(text(random, Tongue::Cyrillic, 12))),
        5 => (
            "provider",
            Json::Object(vec![("order", Json::List(vec![Json::text("a")]))]),
        ),
        _ => ("service_tier", Json::plain("null")),
    }
}

/// A message field that the proxy does not know.
pub(super) fn remark(random: &mut Random) -> (&'static str, Json) {
    match random.below(5) {
        0 => ("weight", number(random)),
        1 => ("annotations", Json::List(vec![])),
        2 => (
            "metadata",
            Json::Object(vec![
                ("content", Json::text("not this")),
                ("role", Json::plain("1e0")),
            ]),
        ),
        3 => ("timestamp", Json::plain("1741569952.5")),
        _ => ("cache_control", cache_control()),
    }
}

pub(super) fn cache_control() -> Json {
    Json::Object(vec![("type", Json::text("ephemeral"))])
}
