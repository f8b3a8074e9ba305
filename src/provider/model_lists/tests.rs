use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{Bounds, FRESH_FOR, Listed, ModelListError, ModelLists, PAUSE, parse_model_list};

fn check(model: &str, context: u32, input: u32) {
    let some = |tokens: u32| (tokens > 0).then_some(tokens);
    let expected = Bounds {
        window: some(context),
        input: some(input),
        named_input: None,
    };
    let body = format!(r#"{{"object":"list","data":[{{"id":"m",{model}}}]}}"#);
    let found = parse_model_list(body.as_bytes()).unwrap();
    assert_eq!(found["m"].bounds, expected, "{model}");
}

#[test]
fn every_field_that_names_a_window_is_read() {
    check(r#""context_length":8192"#, 8_192, 0);
    check(r#""max_model_len":8192"#, 8_192, 0);
    check(r#""context_window":8192"#, 8_192, 0);
    check(r#""loaded_context_length":8192"#, 8_192, 0);
    check(r#""top_provider":{"context_length":8192}"#, 8_192, 0);
    check(r#""meta":{"n_ctx":4096,"n_ctx_train":131072}"#, 4_096, 0);
    check(r#""max_input_tokens":8000"#, 0, 8_000);
    check(r#""input_length":8000"#, 0, 8_000);
    let both = r#""max_input_tokens":8000,"context_length":9000"#;
    check(both, 9_000, 8_000);
}

#[test]
fn the_least_window_counts() {
    let router = r#""context_length":200000,"top_provider":{"context_length":128000}"#;
    check(router, 128_000, 0);
    let loaded = r#""max_context_length":131072,"loaded_context_length":4096"#;
    check(loaded, 4_096, 0);
}

#[test]
fn impossible_windows_are_not_read() {
    for model in [
        r#""context_length":0"#,
        r#""context_length":-1"#,
        r#""context_length":"8192""#,
        r#""context_length":8192.5"#,
        r#""context_length":1e300"#,
        r#""context_length":1023"#,
        r#""context_length":100000001"#,
        r#""context_length":null"#,
        r#""meta":{"n_ctx_train":131072}"#,
        r#""meta":null,"top_provider":[1]"#,
        r#""owned_by":"x""#,
    ] {
        check(model, 0, 0);
    }
    check(r#""max_input_tokens":9000,"context_length":9000"#, 9_000, 0);
}

#[test]
fn lists_come_in_several_shapes() {
    let window = |body: &str| parse_model_list(body.as_bytes()).map(|list| list["m"].bounds.window);
    let model = r#"{"id":"m","context_length":8192}"#;
    assert_eq!(window(&format!("[{model}]")), Some(Some(8_192)));
    let models = format!(r#"{{"models":[{model}]}}"#);
    assert_eq!(window(&models), Some(Some(8_192)));
    let both = format!(r#"{{"models":[{{"name":"m"}}],"data":[{model}]}}"#);
    assert_eq!(window(&both), Some(Some(8_192)));
    let named = r#"{"models":[{"name":"m","context_length":8192}]}"#;
    assert_eq!(window(named), Some(Some(8_192)));
    let mixed = format!(r#"{{"data":[1,null,{{}},{{"id":""}},{{"id":"a\nb"}},{model}]}}"#);
    assert_eq!(parse_model_list(mixed.as_bytes()).unwrap().len(), 1);
    for none in ["", "<html>", "{}", r#"{"data":{}}"#, "null", "7"] {
        assert_eq!(parse_model_list(none.as_bytes()), None, "{none}");
    }
}

#[test]
fn anthropic_names_the_whole_window_by_the_largest_prompt() {
    let body =
        br#"{"data":[{"type":"model","id":"m","max_input_tokens":400000,"max_tokens":64000}]}"#;
    let bounds = parse_model_list(body).unwrap()["m"].bounds;
    assert_eq!((bounds.window, bounds.input), (Some(400_000), None));
}

#[test]
fn a_model_always_thinks_only_where_its_list_says_so() {
    let says = |thinking: &str| {
        let body = format!(r#"[{{"id":"m","capabilities":{{"thinking":{thinking}}}}}]"#);
        parse_model_list(body.as_bytes()).unwrap()["m"].always_thinks
    };
    assert!(says(
        r#"{"supported":true,"types":{"disabled":{"supported":false}}}"#
    ));
    for thinking in [
        r#"{"supported":true,"types":{"disabled":{"supported":true}}}"#,
        r#"{"supported":false,"types":{"disabled":{"supported":false}}}"#,
        r#"{"types":{"disabled":{"supported":false}}}"#,
        r#"{"supported":true,"types":{"disabled":{"supported":"false"}}}"#,
        r#"{"supported":true,"types":{"adaptive":{"supported":true},"enabled":{"supported":false}}}"#,
        r#"{"supported":true,"types":[]}"#,
        "true",
        "null",
    ] {
        assert!(!says(thinking), "{thinking}");
    }
}

#[test]
fn a_single_model_stands_for_all() {
    let listed = ModelLists::default();
    let only = |list: &str| {
        let models = parse_model_list(list.as_bytes()).unwrap();
        listed.lists.lock().entry("p".into()).or_default().models = models;
        listed.find_only_bounds("p").map(|bounds| bounds.window)
    };
    assert_eq!(listed.find_only_bounds("p"), None);
    assert_eq!(only("[]"), None);
    let single = r#"[{"id":"m","context_length":8192}]"#;
    assert_eq!(only(single), Some(Some(8_192)));
    assert_eq!(only(r#"[{"id":"m"}]"#), Some(None));
    let several = r#"[{"id":"m","context_length":8192},{"id":"n"}]"#;
    assert_eq!(only(several), None);
}

#[test]
fn a_provider_is_asked_once_an_hour_and_a_minute_after_a_failure() {
    let listed = ModelLists::default();
    let name: Arc<str> = "p".into();
    let now = Instant::now();
    assert!(!listed.is_awaited("p"));
    assert!(listed.begin_if_due(&name, now));
    assert!(listed.is_awaited("p"));
    assert!(!listed.begin_if_due(&name, now), "it is being asked");
    let is_due_after = |answer, waited: Duration| {
        let mut lists = listed.lists.lock();
        let list = lists.get_mut(&name).unwrap();
        let _ = list.record_answer(answer, now, FRESH_FOR);
        list.is_due(now + waited)
    };
    let moment = Duration::from_millis(1);
    assert!(!is_due_after(Ok(Listed::default()), FRESH_FOR - moment));
    assert!(is_due_after(Ok(Listed::default()), FRESH_FOR));
    assert!(!is_due_after(Err(ModelListError::TooMuch), PAUSE - moment));
    assert!(is_due_after(Err(ModelListError::TooMuch), PAUSE));
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic(body in ".*", model in ".*") {
        let _ = parse_model_list(body.as_bytes());
        let _ = parse_model_list(format!(r#"{{"data":[{{"id":"m","context_length":{model}}}]}}"#).as_bytes());
    }
}
