//! Properties of the conversation generator.

use plimsoll::guard::profile;
use proptest::prelude::*;
use serde_json::Value;

use crate::support::{
    generate::{
        self, ConversationSize, Escapes, JsonSpelling, Recipe, SHAPES, Session, Shape, Space,
        any_conversation,
    },
    parse,
    strict::find_violations,
};

fn of_messages(body: &[u8]) -> Vec<Value> {
    let body = parse::parse_value(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn generated_bodies_are_valid_for_their_profiles(case in any_conversation(40)) {
        for profile in profile::PROFILES {
            if case.recipe.strict || profile.name == "openai" {
                prop_assert_eq!(find_violations(&case.body(), profile), vec![], "{}", profile.name);
            }
        }
    }

    #[test]
    fn a_session_grows_by_appending(case in any_conversation(20)) {
        let mut before: Vec<Value> = Vec::new();
        for body in case.session.steps() {
            let now = of_messages(&body);
            prop_assert!(now.len() > before.len());
            prop_assert_eq!(&now[..before.len()], &before[..]);
            prop_assert!(matches!(now.last().unwrap()["role"].as_str(), Some("user" | "tool" | "function")));
            before = now;
        }
    }

    #[test]
    fn another_json_spelling_keeps_the_meaning(case in any_conversation(12)) {
        let plain = Recipe { spelling: JsonSpelling::PLAIN, ..case.recipe };
        let plain = Session::from_units(case.seed, plain, &case.units).whole();
        let (spelt, plain) = (parse::parse_value(&case.body()).unwrap(), parse::parse_value(&plain).unwrap());
        prop_assert_eq!(spelt, plain);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_everywhere() {
    for &shape in SHAPES {
        let body = generate::conversation(7, shape);
        assert_eq!(body, generate::conversation(7, shape));
        assert_ne!(body, generate::conversation(8, shape));
        assert_eq!(
            find_violations(&body, &profile::PROFILES[0]),
            [],
            "{shape:?}"
        );
    }
    let all: Vec<u8> = SHAPES
        .iter()
        .flat_map(|&shape| generate::conversation(7, shape))
        .collect();
    assert_eq!(
        format!("{:x}", xxhash_rust::xxh3::xxh3_64(&all)),
        "c15df568093c93e8"
    );
}

#[test]
fn generated_bodies_have_the_requested_size() {
    for bytes in [1_000, 10_000, 100_000, 1_000_000] {
        for heavy in [false, true] {
            let body = generate::body_for_measuring(bytes, heavy);
            let off = body.len().abs_diff(bytes) * 100 / bytes;
            assert!(
                off <= 12,
                "{} instead of {bytes}, heavy: {heavy}",
                body.len()
            );
            let slashes = body.iter().filter(|&&byte| byte == b'\\').count() * 1000 / body.len();
            let wanted = if heavy { 60..=110 } else { 0..=15 };
            assert!(
                bytes < 100_000 || wanted.contains(&slashes),
                "{slashes} backslashes in a thousand bytes, heavy: {heavy}"
            );
        }
    }
    let session = Session::new(
        1,
        Recipe::new(Shape::Chat),
        ConversationSize::Messages(2_000),
    );
    assert!((1_990..=2_000).contains(&of_messages(&session.whole()).len()));
}

#[test]
fn generated_sessions_have_the_figures_of_recorded_ones() {
    let (mut results, mut steps) = (Vec::new(), Vec::new());
    let (mut arguments, mut system, mut all) = (0, 0, 0);
    for seed in 0..60 {
        let session = Session::new(
            seed,
            Recipe::new(Shape::Agent),
            ConversationSize::Messages(120),
        );
        let mut turn = 0;
        for message in of_messages(&session.whole()) {
            let content = chars(&message["content"]);
            let calls = message["tool_calls"].as_array().map_or(0, |calls| {
                calls
                    .iter()
                    .map(|call| chars(&call["function"]["arguments"]))
                    .sum()
            });
            all += content + calls + chars(&message["reasoning_content"]);
            arguments += calls;
            match message["role"].as_str().unwrap() {
                "tool" => results.push(content),
                "system" | "developer" => system += content,
                "user" if turn > 0 => steps.push(std::mem::take(&mut turn)),
                "assistant" if calls > 0 => turn += 1,
                _ => {}
            }
        }
    }
    results.sort_unstable();
    steps.sort_unstable();
    let at = |list: &[usize], percent: usize| list[list.len() * percent / 100];
    let near = |value: usize, low: usize, high: usize, what: &str| {
        assert!(
            (low..=high).contains(&value),
            "{what}: {value}, not {low} to {high}"
        );
    };
    near(at(&results, 50), 120, 230, "median of results");
    near(at(&results, 90), 1_900, 3_600, "90 % of results");
    near(at(&results, 99), 16_000, 34_000, "99 % of results");
    near(*results.last().unwrap(), 40_000, 87_000, "largest result");
    near(at(&steps, 50), 2, 4, "median of steps");
    near(at(&steps, 90), 9, 18, "90 % of steps");
    near(*steps.last().unwrap(), 30, 74, "most steps");
    near(
        results.iter().sum::<usize>() * 100 / all,
        44,
        64,
        "share of results",
    );
    near(arguments * 100 / all, 14, 30, "share of arguments");
    near(system * 100 / all, 5, 17, "share of system");
}

fn chars(content: &Value) -> usize {
    match content {
        Value::String(text) => text.chars().count(),
        Value::Array(parts) => parts.iter().map(|part| chars(&part["text"])).sum(),
        _ => 0,
    }
}

#[test]
fn rare_shapes_are_generated() {
    let mut seen = String::new();
    for seed in 0..12 {
        for &shape in SHAPES {
            seen += &String::from_utf8_lossy(&generate::conversation(seed, shape));
        }
    }
    for part in [
        "function_call",
        "\"functions\"",
        "reasoning_content",
        "cache_control",
        "\\ud800",
        "thought_signature",
        "input_audio",
        "image_url",
        "data:image/png",
        "\"low\"",
        "file_data",
        "video_url",
        "developer",
        "\\/",
        "1e0",
        "\r\n",
        "ファイル",
        "파일",
        "\\u6587",
    ] {
        assert!(seen.contains(part), "{part} never occurs");
    }
    assert!(
        parse::parse_value(
            &Session::new(3, Recipe::new(Shape::Huge), ConversationSize::Messages(40)).whole()
        )
        .unwrap()["messages"]
            .as_array()
            .unwrap()
            .iter()
            .any(|message| chars(&message["content"]) > 87_000)
    );
}

#[test]
fn every_json_spelling_is_generated() {
    let mut random = generate::Random::new(1);
    let all: Vec<JsonSpelling> = (0..200).map(|_| JsonSpelling::any(&mut random)).collect();
    for space in [
        Space::Compact,
        Space::Python,
        Space::Pretty(1),
        Space::Pretty(2),
        Space::Odd,
    ] {
        assert!(all.iter().any(|spelling| spelling.space == space));
    }
    for escapes in [Escapes::Raw, Escapes::Ascii, Escapes::Odd] {
        assert!(all.iter().any(|spelling| spelling.escapes == escapes));
    }
}
