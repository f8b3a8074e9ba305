use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{
    Listed, ModelListError, ModelLists,
    kept_list::{FRESH_FOR, MAX_TRIES, PAUSE, SHORT_PAUSE},
    parse_model_list,
};
use crate::{
    config::{Config, profile::find_profile},
    provider::{Bounds, Provider},
};

fn check(model: &str, context: u32, input: u32) {
    let some = |tokens: u32| (tokens > 0).then_some(tokens);
    let expected = Bounds {
        window: some(context),
        input: some(input),
        named_input: None,
    };
    let body = format!(r#"{{"object":"list","data":[{{"id":"m",{model}}}]}}"#);
    let found = parse_model_list(body.as_bytes()).unwrap().models;
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
    let window =
        |body: &str| parse_model_list(body.as_bytes()).map(|list| list.models["m"].bounds.window);
    let model = r#"{"id":"m","context_length":8192}"#;
    assert_eq!(window(&format!("[{model}]")), Some(Some(8_192)));
    let models = format!(r#"{{"models":[{model}]}}"#);
    assert_eq!(window(&models), Some(Some(8_192)));
    let both = format!(r#"{{"models":[{{"name":"m"}}],"data":[{model}]}}"#);
    assert_eq!(window(&both), Some(Some(8_192)));
    let named = r#"{"models":[{"name":"m","context_length":8192}]}"#;
    assert_eq!(window(named), Some(Some(8_192)));
    let mixed = format!(r#"{{"data":[1,null,{{}},{{"id":""}},{{"id":"a\nb"}},{model}]}}"#);
    assert_eq!(parse_model_list(mixed.as_bytes()).unwrap().models.len(), 1);
    for none in ["", "<html>", "{}", r#"{"data":{}}"#, "null", "7"] {
        assert!(parse_model_list(none.as_bytes()).is_none(), "{none}");
    }
}

#[test]
fn anthropic_names_the_whole_window_by_the_largest_prompt() {
    let body =
        br#"{"data":[{"type":"model","id":"m","max_input_tokens":400000,"max_tokens":64000}]}"#;
    let bounds = parse_model_list(body).unwrap().models["m"].bounds;
    assert_eq!((bounds.window, bounds.input), (Some(400_000), None));
}

#[test]
fn a_model_always_thinks_only_where_its_list_says_so() {
    let says = |thinking: &str| {
        let body = format!(r#"[{{"id":"m","capabilities":{{"thinking":{thinking}}}}}]"#);
        parse_model_list(body.as_bytes()).unwrap().models["m"].always_thinks
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
        let models = parse_model_list(list.as_bytes()).unwrap().models;
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

fn provider(profile: &str, base_url: &str) -> Provider {
    let config = Config::default();
    let mut provider = config.providers["simulated"].clone();
    provider.base_url = Some(base_url.to_owned());
    provider.profile = find_profile(profile).unwrap();
    Provider::new("p", &provider, &config.server.outgoing).unwrap()
}

/// Whether a question is due after this time, and not before.
fn is_due_after(listed: &ModelLists, provider: &Provider, named: Option<&str>, wait: Duration) {
    let asked = listed.lists.lock()[&provider.endpoint].asked.unwrap();
    let moment = Duration::from_millis(1);
    assert!(
        !listed.begin_if_due(provider, named, asked + wait - moment),
        "too soon"
    );
    assert!(
        listed.begin_if_due(provider, named, asked + wait),
        "too late"
    );
    assert!(
        !listed.begin_if_due(provider, named, asked + wait),
        "it is being asked"
    );
}

fn answer(listed: &ModelLists, provider: &Provider, answer: Result<&str, ModelListError>) {
    let answer = answer.map(|body| parse_model_list(body.as_bytes()).unwrap_or_default());
    let mut lists = listed.lists.lock();
    let list = lists.get_mut(&provider.endpoint).unwrap();
    let _ = list.record_answer(answer, Instant::now());
}

#[test]
fn a_provider_is_asked_once_an_hour_and_a_minute_after_a_failure() {
    let (listed, cloud) = (ModelLists::default(), provider("template", "http://far/v1"));
    assert!(!listed.is_awaited(&cloud.endpoint));
    assert!(listed.begin_if_due(&cloud, Some("m"), Instant::now()));
    assert!(listed.is_awaited(&cloud.endpoint));
    answer(&listed, &cloud, Ok(r#"[{"id":"m"}]"#));
    // It is no engine: nothing makes it be asked sooner.
    listed.mark_stale(&cloud.endpoint);
    is_due_after(&listed, &cloud, Some("m"), FRESH_FOR);
    answer(&listed, &cloud, Err(ModelListError::TooMuch));
    is_due_after(&listed, &cloud, Some("m"), PAUSE);
}

#[test]
fn an_engine_is_asked_once_a_minute_and_sooner_where_it_may_have_changed() {
    const LIST: &str =
        r#"{"data":[{"id":"m","meta":{"n_ctx":4096}},{"id":"n","meta":{"n_ctx_train":8192}}]}"#;
    let (listed, engine) = (
        ModelLists::default(),
        provider("template", "http://127.0.0.1:9/v1"),
    );
    assert!(listed.begin_if_due(&engine, Some("m"), Instant::now()));
    let told = || answer(&listed, &engine, Ok(LIST));
    told();
    is_due_after(&listed, &engine, Some("m"), PAUSE);
    told();
    listed.mark_stale(&engine.endpoint);
    is_due_after(&listed, &engine, Some("m"), SHORT_PAUSE);
    // A model whose window is unknown: a few times only.
    for _ in 0..MAX_TRIES {
        told();
        is_due_after(&listed, &engine, Some("n"), SHORT_PAUSE);
    }
    told();
    is_due_after(&listed, &engine, Some("n"), PAUSE);
    // A name that it does not list is no reason.
    told();
    is_due_after(&listed, &engine, Some("other"), PAUSE);
    told();
    engine.unreachable_ms.store(u64::MAX, Relaxed);
    is_due_after(&listed, &engine, Some("m"), SHORT_PAUSE);
    engine.unreachable_ms.store(0, Relaxed);
    let starting = ModelListError::Status(http::StatusCode::SERVICE_UNAVAILABLE);
    answer(&listed, &engine, Err(starting));
    is_due_after(&listed, &engine, Some("m"), SHORT_PAUSE);
}

#[test]
fn a_loaded_window_holds_until_its_settings_change() {
    let (listed, engine) = (
        ModelLists::default(),
        provider("template", "http://127.0.0.1:9/v1"),
    );
    let list = |args: &str, meta: &str| {
        format!(
            r#"{{"data":[{{"id":"m","status":{{"value":"x","args":["llama-server",{args}]}}{meta}}}]}}"#
        )
    };
    let window = |body: String| {
        assert!(listed.begin_if_due(&engine, None, Instant::now() + FRESH_FOR));
        answer(&listed, &engine, Ok(&body));
        listed.find_bounds(&engine.endpoint, "m").unwrap().window
    };
    const LOADED: &str = r#","meta":{"n_ctx":8192}"#;
    assert_eq!(window(list(r#""-c","32768""#, "")), Some(32_768));
    assert_eq!(
        window(list(r#""-c","32768""#, LOADED)),
        Some(8_192),
        "capped in silence"
    );
    assert_eq!(window(list(r#""-c","32768""#, "")), Some(8_192), "unloaded");
    assert_eq!(
        window(list(r#""-c","16384""#, "")),
        Some(16_384),
        "set anew"
    );
}

#[test]
fn arguments_name_the_window_of_a_slot() {
    let window = |args: &str| {
        let list = format!(r#"{{"running":[{{"model":"m","cmd":"x/llama-server {args}"}}]}}"#);
        let mut listed = parse_model_list(br#"[{"id":"m"}]"#).unwrap();
        assert!(listed.add_loaded(list.as_bytes()));
        listed.loaded.get("m").copied()
    };
    assert_eq!(window("--ctx-size 32768 --jinja"), Some(32_768));
    assert_eq!(
        window("-c 8192 -c 16384"),
        Some(16_384),
        "the last one counts"
    );
    assert_eq!(window("--ctx-size=32768 --parallel=4"), Some(8_192));
    assert_eq!(window("-c 32768 -np 4 -kvu"), Some(32_768));
    assert_eq!(window("--max-model-len 65536"), Some(65_536));
    for none in ["", "-c", "-c 0", "-c many", "--ctx-size-draft 4096"] {
        assert_eq!(window(none), None, "{none}");
    }
}

#[test]
fn ollama_says_with_which_window_it_loads_a_model() {
    let shown = |body: &str| {
        let mut listed = parse_model_list(br#"[{"id":"m"}]"#).unwrap();
        listed.add_settings("m", body.as_bytes(), Some(4_096));
        (
            listed.models["m"].bounds.window,
            listed.models["m"].smallest_window,
        )
    };
    let set = r#"{"parameters":"stop \"<|x|>\"\nnum_ctx                        65536","model_info":{"llama.context_length":131072}}"#;
    assert_eq!(shown(set), (Some(65_536), None));
    let beyond = r#"{"parameters":"num_ctx 65536","model_info":{"llama.context_length":32768}}"#;
    assert_eq!(shown(beyond), (Some(32_768), None));
    let unset = r#"{"parameters":"","model_info":{"llama.context_length":131072}}"#;
    assert_eq!(shown(unset), (None, Some(4_096)));
    assert_eq!(shown("{}"), (None, Some(4_096)));
    let cloud = r#"{"remote_host":"https://ollama.com","model_info":{"x.context_length":262144}}"#;
    assert_eq!(shown(cloud), (Some(262_144), None));
    assert_eq!(shown("<html>"), (None, None));
}

proptest! {
    #[test]
    fn no_answer_makes_it_panic(body in ".*", model in ".*") {
        let _ = parse_model_list(body.as_bytes());
        let mut listed = Listed::default();
        let _ = listed.add_loaded(body.as_bytes());
        listed.add_settings("m", body.as_bytes(), Some(4_096));
        let _ = parse_model_list(format!(r#"{{"data":[{{"id":"m","context_length":{model}}}]}}"#).as_bytes());
    }
}
