//! Row 001.1: the estimate before any usage, as `fit` reports it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Meter, Program, say, user};
use crate::support::count::TokenCounter;

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    /// Below `most`.
    fn next(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// Lines that `write` appends, until there are so many bytes.
    fn lines(mut self, bytes: usize, write: impl Fn(&mut Self, &mut String)) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            write(&mut self, &mut text);
            text.push('\n');
        }
        text
    }
}

/// Kinds of text full of figures, each of about so many bytes.
pub(super) fn figures(bytes: usize) -> Vec<(&'static str, String)> {
    let lines = |write: fn(&mut Numbers, &mut String)| Numbers(7).lines(bytes, write);
    vec![
        (
            "a column of integers",
            lines(|n, text| {
                let _ = write!(text, "{}", n.next(1_000_000));
            }),
        ),
        (
            "sentences with numbers",
            lines(|n, text| {
                let (a, b, c) = (n.next(500), n.next(9_000), n.next(100));
                let _ = write!(
                    text,
                    "In {a} days {b} of the {c} ships left port {}.",
                    n.next(30)
                );
            }),
        ),
        (
            "log lines",
            lines(|n, text| {
                let (minute, second, id) = (n.next(60), n.next(60), n.next(1 << 31));
                let _ = write!(
                    text,
                    "2026-11-24T09:{minute:02}:{second:02}.{:03}Z INFO request id={id:08x} took {} ms",
                    n.next(1_000),
                    n.next(5_000)
                );
            }),
        ),
        (
            "CSV",
            lines(|n, text| {
                let (a, b, c) = (n.next(10_000), n.next(1_000), n.next(100));
                let _ = write!(text, "{a},{b}.{c:02},{},{}", n.next(90), n.next(100_000));
            }),
        ),
        (
            "hexadecimal",
            lines(|n, text| {
                let _ = write!(
                    text,
                    "{:08x}{:08x}{:08x}{:08x}",
                    n.next(1 << 31),
                    n.next(1 << 31),
                    n.next(1 << 31),
                    n.next(1 << 31)
                );
            }),
        ),
        (
            "JSON of floats",
            lines(|n, text| {
                let _ = write!(
                    text,
                    "[{}.{:06},{}.{:06},-{}.{:04}],",
                    n.next(180),
                    n.next(1_000_000),
                    n.next(90),
                    n.next(1_000_000),
                    n.next(10),
                    n.next(10_000)
                );
            }),
        ),
        (
            "a diff",
            lines(|n, text| {
                let (at, was, now) = (n.next(900), n.next(400), n.next(400));
                let _ = write!(
                    text,
                    "@@ -{at},7 +{at},7 @@\n-    let depth = {was};\n+    let depth = {now};"
                );
            }),
        ),
        (
            "a table",
            lines(|n, text| {
                let _ = write!(
                    text,
                    "| {} | {} | {}.{} % | {} |",
                    n.next(100),
                    n.next(10_000),
                    n.next(100),
                    n.next(10),
                    n.next(1_000_000)
                );
            }),
        ),
        (
            "base64",
            lines(|n, text| {
                const LETTERS: &[u8; 64] =
                    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
                text.extend((0..76).map(|_| char::from(LETTERS[n.next(64) as usize])));
            }),
        ),
    ]
}

/// English prose.
pub(super) const PROSE: &str = include_str!("../../../LICENSE");

/// The first article of the Universal Declaration of Human Rights.
const LANGUAGES: [(&str, &str); 5] = [
    (
        "Chinese",
        "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    ),
    (
        "Russian",
        "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и \
         совестью и должны поступать в отношении друг друга в духе братства.",
    ),
    (
        "Japanese",
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、\
         理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
    ),
    (
        "Arabic",
        "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل \
         بعضهم بعضا بروح الإخاء.",
    ),
    (
        "German",
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und \
         Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.",
    ),
];

/// The same and kinds without figures.
fn all_kinds() -> Vec<(&'static str, String)> {
    let mut kinds = figures(6_000);
    kinds.extend([
        ("English", PROSE.to_owned()),
        (
            "program text",
            include_str!("../support/count.rs").to_owned(),
        ),
        (
            "JSON",
            include_str!("../../../src/admin/api/openapi.json").to_owned(),
        ),
        ("settings", include_str!("../../../config.toml").to_owned()),
        (
            "a page of code",
            include_str!("../../../src/admin/dashboard/assets/session.js").to_owned(),
        ),
    ]);
    kinds.extend(LANGUAGES.map(|(name, text)| (name, text.repeat(20))));
    kinds
}

/// Estimated tokens of a user message with this text.
async fn estimate(program: &Program, model: &str, text: &str) -> u64 {
    let body = json!({"model": model, "messages": [user(text)]});
    let (_, report) = program.fit(&body).await;
    let tokens: &Value = &report["as_it_came"]["history"];
    tokens.as_u64().unwrap()
}

fn lines(more: &str) -> String {
    format!(
        "profile = \"openai\"\n[models.\"up/gpt-4o\"]\ncontext_length = 1000000\n\
         [models.\"up/gpt-4\"]\ncontext_length = 1000000\n{more}"
    )
}

/// 001.1: an estimate by characters for a token; 2.5, 3 and 4 are exact where they are set.
#[tokio::test]
async fn row_001_1_set_characters_per_token() {
    let meter = Meter::start(say).await;
    for (chars, tokens) in [("2.5", 4_800), ("3.0", 4_000), ("4.0", 3_000)] {
        let guard = format!("[guard]\nchars_per_token = {chars}\n");
        let program = Program::start(&meter.up, &lines(&guard)).await;
        for text in [
            "word ".repeat(2_400),
            "12,345.678 |".repeat(1_000),
            "a".repeat(12_000),
        ] {
            assert_eq!(text.len(), 12_000);
            let once = estimate(&program, "up/gpt-4o", &text).await;
            let twice = estimate(&program, "up/gpt-4o", &text.repeat(2)).await;
            assert_eq!(twice - once, tokens, "{chars}: {}", &text[..12]);
        }
    }
}

/// 001.1: unset, the estimate is never under nine tenths of the provider's count, in any kind of text.
#[tokio::test]
async fn row_001_1_unset_never_under_nine_tenths() {
    let meter = Meter::start(say).await;
    let program = Program::start(&meter.up, &lines("")).await;
    let mut low = Vec::new();
    for (model, counter) in [
        ("up/gpt-4o", TokenCounter::o200k()),
        ("up/gpt-4", TokenCounter::cl100k()),
    ] {
        let empty = estimate(&program, model, "").await;
        for (kind, text) in all_kinds() {
            let estimated = estimate(&program, model, &text).await - empty;
            let ratio = estimated as f64 / counter.text(&text) as f64;
            if ratio < 0.9 {
                low.push(format!("{model}, {kind}: {ratio:.2}"));
            }
        }
    }
    assert!(low.is_empty(), "{low:#?}");
}
