//! Windows of which system text and tools take most: what the proxy adds gives way, and definitions of tools get shorter,
//! once in a session.

mod figures;
mod sessions;

use std::{fs, path::PathBuf};

use bytes::Bytes;
use jsonschema::{Draft, Validator};
use plimsoll::{
    config::{GuardConfig, ToolsMode},
    conversation::{Conversation, Format, ToolBrevity, edit::Edits},
    guard::{self, Plan, SessionKnowledge, profile::find_profile},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{
    generate::Random,
    guard_properties::settings,
    plans::{apply_plan, make_policy},
    wide_tools::{any_schema, wide_tools},
};

const FORMATS: [Format; 3] = [Format::Chat, Format::Messages, Format::Responses];

/// A request with these tools and one short question.
fn request(format: Format, tools: &Value, question: &str) -> Conversation {
    let list = match format {
        Format::Responses => "input",
        _ => "messages",
    };
    let user = json!({"role": "user", "content": question});
    let body = json!({"model": "m", "tools": tools, list: [user]});
    format.index_body(Bytes::from(body.to_string())).unwrap()
}

fn plan(conversation: &Conversation, model: &str, settings: &GuardConfig) -> Plan {
    let profile = find_profile("openai").unwrap().for_model(model);
    let policy = make_policy(profile, 4_096, settings);
    guard::plan(conversation, &policy, &SessionKnowledge::default())
}

/// The tools of a request as they are sent.
fn sent_tools(conversation: &Conversation, plan: &Plan) -> Value {
    let sent: Value = serde_json::from_slice(&apply_plan(conversation, plan)).unwrap();
    sent["tools"].clone()
}

#[test]
fn tools_stay_whole_while_the_request_fits_and_where_they_must() {
    let (settings, long) = (settings(), "a word ".repeat(4_000));
    for format in FORMATS {
        let tools = wide_tools(format, 1, 12);
        let check = |question: &str, model: &str, settings: &GuardConfig, shortens: bool| {
            let conversation = request(format, &tools, question);
            let plan = plan(&conversation, model, settings);
            let case = format!("{format:?} {model} {:?}", plan.report);
            assert_eq!(plan.report.short_tools.is_some(), shortens, "{case}");
            let words = plan.report.format_actions();
            assert_eq!(words.contains("tools-shortened="), shortens, "{words}");
            let is_whole = sent_tools(&conversation, &plan) == tools;
            assert_eq!(is_whole, !shortens, "{case}");
            plan
        };
        check("Hello", "gpt-4o", &settings, false);
        let short = check(&long, "gpt-4o", &settings, true);
        let report = short.report.short_tools.unwrap();
        assert!(report.new && report.descriptions && report.tools == 12);
        let (before, after) = (short.report.raw_before, short.report.raw_after);
        assert!(before - after >= report.tokens, "{before} {after}");
        for model in ["claude-opus-5-5", "gpt-6.2-sol"] {
            check(&long, model, &settings, false);
        }
        let whole = GuardConfig {
            tools: ToolsMode::Whole,
            ..settings.clone()
        };
        check(&long, "gpt-4o", &whole, false);
    }
}

#[test]
fn tools_that_take_little_of_the_window_stay_whole() {
    let settings = settings();
    for format in FORMATS {
        let tools = wide_tools(format, 1, 2);
        let conversation = request(format, &tools, &"a word ".repeat(4_000));
        let plan = plan(&conversation, "gpt-4o", &settings);
        assert_eq!(plan.report.short_tools, None);
        assert_eq!(sent_tools(&conversation, &plan), tools);
    }
}

/// Of a session whose client changes its tools, new ones get shorter in the same way, and none gets longer.
#[test]
fn the_rule_of_the_first_cut_holds_for_other_tools() {
    let settings = settings();
    let profile = find_profile("openai").unwrap();
    let policy = make_policy(profile, 4_096, &settings);
    for format in FORMATS {
        let tools = wide_tools(format, 1, 12);
        let long = "a word ".repeat(4_000);
        let first = guard::plan(
            &request(format, &tools, &long),
            &policy,
            &SessionKnowledge::default(),
        );
        let knowledge = SessionKnowledge {
            memory: first.memory.clone(),
            sent_messages: 1,
            ..SessionKnowledge::default()
        };
        let sent = sent_tools(&request(format, &tools, &long), &first);
        for count in [1, 6, 12] {
            let all = wide_tools(format, 1, 14);
            let fewer: Value = all.as_array().unwrap()[..count].into();
            let conversation = request(format, &fewer, "Hello");
            let plan = guard::plan(&conversation, &policy, &knowledge);
            assert!(plan.report.short_tools.is_some_and(|it| !it.new));
            let now = sent_tools(&conversation, &plan);
            assert_eq!(
                now.as_array().unwrap()[..],
                sent.as_array().unwrap()[..count]
            );
        }
        // Another window, another cut.
        let wide = make_policy(profile, 128_000, &settings);
        let plan = guard::plan(&request(format, &tools, "Hello"), &wide, &knowledge);
        assert!(plan.edits.is_empty() && plan.report.short_tools.is_none());
    }
}

fn validator(schema: &Value) -> Validator {
    let options = jsonschema::options().with_draft(Draft::Draft202012);
    options.build(schema).expect("a schema")
}

fn any_instance(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => random.below(9).into(),
        2 => random.pick(&["title", "a", "long enough to fail"]).into(),
        3 => json!({"title": "x", "description": "A b. C d."}),
        4 => json!({"$comment": "c", "title": 7}),
        5 => json!([any_instance(random, depth - 1)]),
        _ => {
            let names = [
                "title",
                "description",
                "path",
                "examples",
                "$comment",
                "other",
            ];
            let members = names.iter().take(random.between(0, names.len()));
            let members = members.map(|name| ((*name).to_owned(), any_instance(random, depth - 1)));
            Value::Object(members.collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// A schema that got shorter accepts what the whole one accepts, and nothing else.
    #[test]
    fn short_schemas_accept_the_same(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let schema = any_schema(&mut random, 3);
        let tools = json!([{"name": "f", "input_schema": schema}]);
        let conversation = request(Format::Messages, &tools, "Hello");
        let list = conversation.tool_lists()[0].span;
        let mut edits = Edits::default();
        conversation.shorten_tools(list, ToolBrevity::FirstSentences, &mut edits);
        let sent: Value = serde_json::from_slice(&edits.apply(&conversation.body).to_bytes()).unwrap();
        let (whole, short) = (validator(&schema), validator(&sent["tools"][0]["input_schema"]));
        for _ in 0..40 {
            let instance = any_instance(&mut random, 3);
            prop_assert_eq!(whole.is_valid(&instance), short.is_valid(&instance), "{} {}", schema, instance);
        }
    }
}

/// `tests/data/tools/FORMAT.json` is a request, `FORMAT.short.json` the same guarded at a window of 1,024 tokens, rewritten
/// by `UPDATE_GOLDEN=1`.
#[test]
fn golden_tools_get_shorter_as_recorded() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tools");
    let settings = GuardConfig::default();
    let policy = make_policy(find_profile("template").unwrap(), 1_024, &settings);
    for format in FORMATS {
        let body = fs::read(folder.join(format!("{}.json", format.name()))).unwrap();
        let conversation = format.index_body(body.into()).unwrap();
        let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
        let sent = apply_plan(&conversation, &plan);
        let place = folder.join(format!("{}.short.json", format.name()));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&place, &sent).unwrap();
        }
        let expected = fs::read_to_string(&place).unwrap_or_default();
        assert_eq!(
            String::from_utf8_lossy(&sent),
            expected,
            "{}",
            place.display()
        );
    }
}
