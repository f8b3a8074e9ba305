mod tables;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    format::chat::index_body,
    recovery::{Language, RecoveryAction, RecoveryClock},
};

const USER: &str = r#"{"role":"user","content":"hi"}"#;
const TOOLS: &str = r#""tools":[{"type":"function","function":{"name":"read","parameters":{}}}]"#;
const FUNCTIONS: &str = r#""functions":[{"name":"read","parameters":{}}]"#;

fn with_clock(clock: RecoveryClock) -> RecoveryMemory {
    RecoveryMemory {
        clock,
        ..RecoveryMemory::default()
    }
}

fn due() -> RecoveryMemory {
    with_clock(RecoveryClock::Caution {
        due: true,
        since: 0,
    })
}

fn added() -> RecoveryMemory {
    RecoveryMemory {
        tools: ToolSet::Reminders,
        ..RecoveryMemory::default()
    }
}

fn settings(tools: AddTools) -> RecoveryConfig {
    RecoveryConfig {
        tools,
        ..RecoveryConfig::default()
    }
}

fn request(fields: &str, last: &str) -> Conversation {
    let comma = if fields.is_empty() { "" } else { "," };
    let body = format!(r#"{{"messages":[{USER},{last}]{comma}{fields}}}"#);
    index_body(Bytes::from(body)).unwrap()
}

fn offer(fields: &str, memory: &RecoveryMemory) -> Offer {
    let settings = settings(AddTools::WhenDue);
    decide(&request(fields, USER), &settings, memory)
}

/// Without `recall`.
fn decide(request: &Conversation, settings: &RecoveryConfig, memory: &RecoveryMemory) -> Offer {
    decide_offer(request, rules(settings, false, memory), memory)
}

fn rules<'a>(
    recovery: &'a RecoveryConfig,
    recalls: bool,
    memory: &RecoveryMemory,
) -> OfferRules<'a> {
    let due = memory.clock.due_action();
    OfferRules {
        recovery,
        recalls,
        prompt_is_due: due.is_some_and(|due| due != RecoveryAction::Course),
        may_begin: true,
        tools_are_bound: false,
        takes_entry: false,
    }
}

/// `tools`, `functions`, `text` or `-`, with a `!` if the tools cannot be called.
fn short(offer: &Offer) -> String {
    match offer {
        Offer::Tools(offer) => {
            let schemas = offer.now.as_ref().unwrap();
            format!("{}{}", schemas.field, if offer.callable { "" } else { "!" })
        }
        Offer::Text => "text".to_owned(),
        Offer::Nothing => "-".to_owned(),
    }
}

#[test]
fn tools_are_added_as_configured() {
    let [critical, over] =
        [3, 0].map(|left| with_clock(RecoveryClock::Critical { left, told: false }));
    use AddTools::{Always, Never, WhenDue};
    for (tools, memory, expected) in [
        (WhenDue, RecoveryMemory::default(), "-"),
        (WhenDue, due(), "tools"),
        (WhenDue, critical, "tools"),
        (WhenDue, over, "-"),
        (WhenDue, added(), "tools"),
        (Always, RecoveryMemory::default(), "tools"),
        (Never, added(), "-"),
        (Never, due(), "-"),
    ] {
        let found = decide(&request(TOOLS, USER), &settings(tools), &memory);
        assert_eq!(short(&found), expected, "{tools:?} {memory:?}");
    }
    let off = RecoveryConfig {
        enabled: false,
        ..settings(Always)
    };
    for (fields, settings, expected) in [
        (TOOLS, &off, Offer::Nothing),
        ("", &off, Offer::Nothing),
        ("", &settings(Never), Offer::Text),
    ] {
        let found = decide(&request(fields, USER), settings, &due());
        assert_eq!(found, expected);
    }
}

#[test]
fn the_schemas_have_the_form_of_the_clients_tools() {
    let schemas = |fields: &str, memory: &RecoveryMemory| match offer(fields, memory) {
        Offer::Tools(offer) => String::from_utf8(offer.now.unwrap().json.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    let strict = |first: &str, second: &str| {
        format!(
            r#""tools":[{{"type":"function","function":{{"name":"a"{first}}}}},{{"type":"function","function":{{"name":"b"{second}}}}}]"#
        )
    };
    let yes = r#","strict":true"#;
    assert!(schemas(&strict(yes, yes), &due()).contains(r#""strict":true"#));
    for fields in [strict(yes, ""), strict(yes, r#","strict":null"#)] {
        assert!(!schemas(&fields, &due()).contains("strict"));
    }
    assert!(!schemas(r#""tools":[{"type":"web_search"}]"#, &due()).contains("strict"));
    assert!(schemas(FUNCTIONS, &due()).starts_with(r#"{"name":"add_reminder""#));
    let chinese = RecoveryMemory {
        language: Some(Language::Chinese),
        ..due()
    };
    assert!(schemas(TOOLS, &chinese).contains("提醒项"));
}

#[test]
fn nothing_is_added_beside_client_tools_of_the_same_names() {
    for name in list_names(ToolSet::Reminders) {
        for element in [
            format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#),
            format!(r#"{{"type":"custom","custom":{{"name":"{name}"}}}}"#),
            format!(r#"{{"type":"function","name":"{name}"}}"#),
            format!(r#"{{"function":{{"name":"\u0061{}"}}}}"#, &name[1..]),
        ] {
            if element.contains("\\u0061") && !name.starts_with('a') {
                continue;
            }
            let fields = format!(r#""tools":[{{"type":"x"}},{element}]"#);
            assert_eq!(offer(&fields, &added()), Offer::Nothing, "{element}");
            let fields = format!(r#"{TOOLS},"functions":[{element}]"#);
            assert_eq!(offer(&fields, &added()), Offer::Nothing, "{element}");
        }
    }
    let both = offer(&format!("{TOOLS},{FUNCTIONS}"), &due());
    assert_eq!(short(&both), "tools");
}

/// The sets of tools in any case, and where something is cut.
fn offered_sets(settings: &RecoveryConfig, fields: &str, memory: &RecoveryMemory) -> [ToolSet; 2] {
    let rules = rules(settings, true, memory);
    match decide_offer(&request(fields, USER), rules, memory) {
        Offer::Tools(offer) => {
            let now = offer.now.map_or(ToolSet::Nothing, |tools| tools.set);
            [now, offer.when_cut.map_or(now, |tools| tools.set)]
        }
        _ => [ToolSet::Nothing; 2],
    }
}

#[test]
fn recall_and_the_reminder_tools_come_together_and_stay() {
    use ToolSet::{All, Nothing, Recall, Reminders};
    let [on, off] = [AddTools::WhenDue, AddTools::Never].map(settings);
    let had = |tools| RecoveryMemory {
        tools,
        ..RecoveryMemory::default()
    };
    let named =
        |name: &str| format!(r#""tools":[{{"type":"function","function":{{"name":"{name}"}}}}]"#);
    for (settings, fields, memory, expected) in [
        (&on, TOOLS, RecoveryMemory::default(), [Nothing, All]),
        (&on, TOOLS, due(), [All, All]),
        (&on, TOOLS, had(All), [All, All]),
        // An older release added these alone; the next cut brings the other.
        (&on, TOOLS, had(Reminders), [Reminders, All]),
        (&on, TOOLS, had(Recall), [Recall, All]),
        (&off, TOOLS, due(), [Nothing, Recall]),
        (&off, TOOLS, had(All), [Recall, Recall]),
        (&on, "", due(), [Nothing, Nothing]),
        (&on, &*named("recall"), due(), [Reminders, Reminders]),
        (&on, &*named("clear_mind"), due(), [Nothing, Recall]),
    ] {
        let found = offered_sets(settings, fields, &memory);
        assert_eq!(found, expected, "{fields} {memory:?}");
    }
}

#[test]
fn the_choice_of_tools_is_respected() {
    for (choice, before, now) in [
        (r#""tool_choice":"auto""#, "tools", "tools"),
        (r#""tool_choice":null"#, "tools", "tools"),
        (r#""tool_choice":"required""#, "tools", "tools"),
        (r#""tool_choice":"none""#, "-", "tools!"),
        (
            r#""tool_choice":{"type":"function","function":{"name":"read"}}"#,
            "-",
            "tools!",
        ),
        (
            r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#,
            "-",
            "tools!",
        ),
        (r#""n":2"#, "-", "-"),
        (r#""n":"2""#, "-", "-"),
        (r#""n":1"#, "tools", "tools"),
        (r#""n":null"#, "tools", "tools"),
        (r#""parallel_tool_calls":false"#, "tools", "tools"),
        (r#""max_tokens":8"#, "tools", "tools"),
    ] {
        let fields = format!("{TOOLS},{choice}");
        assert_eq!(short(&offer(&fields, &due())), before, "{choice}");
        assert_eq!(short(&offer(&fields, &added())), now, "{choice}");
    }
    for (choice, now) in [
        (r#""function_call":"auto""#, "functions"),
        (r#""function_call":"none""#, "functions!"),
        (r#""function_call":{"name":"read"}"#, "functions!"),
    ] {
        let fields = format!("{FUNCTIONS},{choice}");
        assert_eq!(short(&offer(&fields, &added())), now, "{choice}");
    }
    let prefilled = request(TOOLS, r#"{"role":"assistant","content":"I"}"#);
    let found = decide(&prefilled, &settings(AddTools::Always), &due());
    assert_eq!(short(&found), "tools!");
}

#[test]
fn nothing_is_added_to_unreadable_tools() {
    for fields in [
        r#""tools":{"a":1}"#,
        r#""tools":"auto""#,
        r#""tools":[1]"#,
        r#""tools":[{"function":{"name":7}}]"#,
        r#""tools":[{"name":"a","name":"b"}]"#,
        r#""functions":[[]]"#,
    ] {
        assert_eq!(offer(fields, &added()), Offer::Nothing, "{fields}");
    }
    for fields in [r#""tools":[ ]"#, r#""tools":null"#, r#""functions":[]"#] {
        assert_eq!(offer(fields, &due()), Offer::Text, "{fields}");
    }
}

#[test]
fn a_continuation_block_needs_a_plain_text_answer() {
    for fields in [
        "",
        r#""response_format":{"type":"text"}"#,
        r#""response_format":null,"stop":null,"n":1"#,
        r#""stop":[ ],"logprobs":false,"top_logprobs":0"#,
        r#""modalities":["text"],"audio":null"#,
        r#""max_tokens":4000,"temperature":0"#,
    ] {
        assert_eq!(offer(fields, &due()), Offer::Text, "{fields}");
    }
    for fields in [
        r#""response_format":{"type":"json_object"}"#,
        r#""response_format":{"type":"json_schema","json_schema":{}}"#,
        r#""response_format":"json""#,
        r#""n":2"#,
        r#""stop":"END""#,
        r#""stop":["a"]"#,
        r#""logprobs":true"#,
        r#""top_logprobs":3"#,
        r#""prediction":{"type":"content","content":"x"}"#,
        r#""modalities":["text","audio"]"#,
        r#""audio":{"voice":"a"}"#,
        r#""continue_final_message":true"#,
        r#""guided_json":{"type":"object"}"#,
        r#""max_tokens":8"#,
    ] {
        assert_eq!(offer(fields, &due()), Offer::Nothing, "{fields}");
    }
    for last in [
        r#"{"role":"assistant","content":"I"}"#,
        r#"{"role":"user","content":"I","prefix":true}"#,
    ] {
        let found = decide(&request("", last), &settings(AddTools::WhenDue), &due());
        assert_eq!(found, Offer::Nothing, "{last}");
    }
}

proptest! {
    #[test]
    fn any_field_is_read_without_a_panic(
        name in prop::sample::select(vec!["tools", "functions", "tool_choice", "n", "stop", "response_format", "modalities"]),
        value in prop_oneof![
            Just("[{\"function\":{}}]".to_owned()),
            Just("{\"type\":\"\\ud800\"}".to_owned()),
            any::<f64>().prop_filter_map("no number", |n| n.is_finite().then(|| n.to_string())),
            any::<String>().prop_map(|text| serde_json::json!(text).to_string()),
            (1usize..400).prop_map(|depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth))),
        ],
    ) {
        for memory in [due(), added(), RecoveryMemory::default()] {
            let found = offer(&format!("\"{name}\":{value}"), &memory);
            // Tools are never added to a request without a list of tools.
            let added = matches!(found, Offer::Tools(_));
            prop_assert!(!added || matches!(name, "tools" | "functions"));
        }
    }
}

#[test]
fn tools_of_bound_models_come_with_the_prompt_or_with_a_cut() {
    let messages = |tools: &str, memory: &RecoveryMemory, takes_entry| {
        let body = format!(r#"{{"tools":[{tools}],"messages":[{USER}]}}"#);
        let request = crate::format::messages::index_body(Bytes::from(body)).unwrap();
        let settings = settings(AddTools::WhenDue);
        let rules = OfferRules {
            tools_are_bound: true,
            takes_entry,
            ..rules(&settings, true, memory)
        };
        match decide_offer(&request, rules, memory) {
            Offer::Tools(offer) => [offer.now, offer.with_prompt, offer.when_cut]
                .map(|tools| tools.map_or(ToolSet::Nothing, |tools| tools.set)),
            other => panic!("{other:?}"),
        }
    };
    let (none, all) = (ToolSet::Nothing, ToolSet::All);
    let read = r#"{"name":"read"}"#;
    assert_eq!(messages(read, &due(), true), [none, all, all]);
    assert_eq!(messages(read, &due(), false), [none, none, all]);
    // Nothing is due.
    let fresh = RecoveryMemory::default();
    assert_eq!(messages(read, &fresh, true), [none, none, all]);
    // The list has some already.
    assert_eq!(
        messages(read, &added(), true),
        [ToolSet::Reminders, none, all]
    );
    // Of a list of which the model sees nothing, the first entry changes the start of the prompt.
    let deferred = r#"{"name":"read","defer_loading":true}"#;
    assert_eq!(messages(deferred, &due(), true), [none, none, all]);
    let both = format!("{read},{deferred}");
    assert_eq!(messages(&both, &due(), true), [none, all, all]);
}
