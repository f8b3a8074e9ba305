//! Settings that are valid, and warned of.

use super::*;

#[test]
fn recovery_that_cannot_act_is_warned_of() {
    assert_eq!(
        warned("[guard]\nenabled = false", &[]),
        "recovery.enabled: recovery cannot act without the guard; set guard.enabled = true, or \
         recovery.enabled = false"
    );
    let off = "[recovery]\nenabled = false\n[guard]\nenabled = false\n";
    assert_eq!(warned(off, &[]), "");
    let model = "[models.\"simulated/plimsoll-8k\"]\nrecovery = true";
    assert_eq!(
        warned(&format!("{off}{model}"), &[]),
        "models.\"simulated/plimsoll-8k\".recovery: has no effect, since recovery.enabled is false"
    );
}

#[test]
fn compaction_that_cannot_act_is_warned_of() {
    let off = "[recovery]\nenabled = false\n[guard]\nenabled = false\n";
    assert_eq!(
        warned(&format!("{off}[compaction]\nauto = true"), &[]),
        "compaction.auto: nothing is summarised without the guard; set guard.enabled = true, or \
         compaction.auto = false"
    );
    assert_eq!(
        warned(&format!("{off}[responses]\ncompaction = \"answer\""), &[]),
        "responses.compaction: the proxy compacts nothing without the guard; set guard.enabled = true, \
         or responses.compaction = \"forward\""
    );
    let fast = "[compaction]\nmodel = \"fast/tiny\"\n[providers.fast]\n\
                base_url = \"https://fast.example/v1\"\nauth = \"client\"\n";
    assert_eq!(warned(fast, &[]), "");
    let more = format!(
        "{fast}[providers.own]\nbase_url = \"https://own.example/v1\"\n\
                        api_key_env = \"KEY\"\n"
    );
    assert_eq!(
        warned(&more, &[("KEY", "sk-x")]),
        "compaction.model: fast/tiny is asked only for conversations with its own provider, since \
         the client's own credentials go to one provider only; others are summarised by their own \
         model"
    );
}

#[test]
fn health_levels_that_cannot_occur_are_warned_of() {
    let found = warned(
        "[models.\"simulated/a\"]\ncontext_length = 8192\ncritical_max_tokens = 9000\n\
         optimal_max_tokens = 8500\n\
         [models.\"simulated/b\"]\ncontext_length = 8192\ncritical_max_tokens = 4000\n\
         optimal_max_tokens = 4000\n\
         [models.c]\n\
         [models.\"simulated/d\"]\ncontext_length = 8192\ninput_length = 9000\n\
         [models.\"simulated/zzz\"]",
        &[],
    );
    let expected = [
        "models.c.provider: no provider serves it; name one here, or set default_provider",
        "models.\"simulated/a\".critical_max_tokens: 9000 is above the window of 8192; critical \
         cannot occur",
        "models.\"simulated/a\".optimal_max_tokens: 8500 is above the window of 8192; caution \
         cannot occur",
        "models.\"simulated/b\".optimal_max_tokens: 4000 is not under critical_max_tokens, 4000; \
         caution cannot occur",
        "models.\"simulated/d\".input_length: 9000 is above the window of 8192 and has no effect",
        "models.NAME.context_length: is not set for simulated/zzz, and no other source names it: \
         96000 tokens are assumed. Nothing is cut by that where the provider refuses what is too \
         long, and health never becomes critical",
    ];
    assert_eq!(found, expected.join("\n"));
}

#[test]
fn a_critical_limit_of_an_unknown_window_is_warned_of() {
    let model = "[models.\"simulated/zzz\"]\ncritical_max_tokens = 9000\n";
    let expected = "models.\"simulated/zzz\".critical_max_tokens: has no effect, since the window \
                    is unknown; set context_length too";
    assert!(warned(model, &[]).contains(expected));
    let known = format!("{model}context_length = 10000\noptimal_max_tokens = 8000");
    assert_eq!(warned(&known, &[]), "");
}

#[test]
fn credentials_over_plain_http_are_warned_of() {
    let provider = |url: &str, auth: &str| {
        warned(
            &format!("[providers.p]\nbase_url = \"{url}\"\n{auth}"),
            &[("KEY", "k")],
        )
    };
    let key = "api_key_env = \"KEY\"";
    assert!(provider("http://example.com/v1", key).contains("use https"));
    assert_eq!(provider("https://example.com/v1", key), "");
    assert_eq!(provider("http://[::1]:8080/v1", key), "");
    assert_eq!(provider("http://127.0.0.1:8080/v1", key), "");
    assert_eq!(provider("http://example.com/v1", "auth = \"none\""), "");
}

#[test]
fn settings_of_models_without_effect_are_warned_of() {
    let providers = "[providers.a]\nbase_url = \"https://a.example/v1\"\nauth = \"client\"\n\
                     [providers.b]\nbase_url = \"https://b.example/{model}\"\nauth = \"client\"\n\
                     [providers.c]\nbase_url = \"https://c.example/v1\"\nauth = \"none\"\n\
                     models = [\"listed\", \"pattern-*\"]\n";
    let found = warned(
        &format!(
            "{providers}[aliases]\nshort = \"a/m\"\n\
             [models.short]\ndeployments = [{{ model = \"a/m\" }}, {{ model = \"c/m\" }}]\n\
             [models.\"a/*\"]\ncontext_length = 10000\n\
             [models.\"b/*\"]\ncontext_length = 20000\nfallback = [\"a/m\", \"c/m\"]\n\
             [models.\"c/m\"]\ncontext_length = 8000\nlarger = \"c/small\"\n\
             [models.\"c/small\"]\ncontext_length = 8000\n\
             [models.two]\ndeployments = [{{ model = \"a/m\" }}, {{ model = \"c/m\" }}]\n\
             fallback = [\"b/m\"]\nlarger = \"b/l\""
        ),
        &[],
    );
    let left_out = "is never used: the client's own credentials go to one provider only, so name \
                    one with api_key_env here";
    let expected = [
        "providers.b.base_url: contains the model, so that requests without a model cannot go there, \
         and the provider is not asked for its list of models",
        &format!("models.\"b/*\".fallback: a/m {left_out}"),
        "models.\"c/m\".larger: c/small holds 8000 tokens, and c/m holds 8000; it is never used",
        "models.short: has no effect, since an alias has that name",
        "models.two.deployments: the deployments have different windows (a/m 10000, c/m 8000), so \
         that how much a session may hold depends on which one serves it",
        &format!("models.two.fallback: b/m {left_out}"),
        &format!("models.two.larger: b/l {left_out}"),
        "models.NAME.context_length: is not set for c/listed, and no other source names it: 96000 \
         tokens are assumed. Nothing is cut by that where the provider refuses what is too long, and \
         health never becomes critical",
    ];
    assert_eq!(found, expected.join("\n"));
}

#[test]
fn a_base_url_without_the_path_of_its_profile_is_warned_of() {
    let found = |base_url: &str| {
        let provider = format!("[providers.p]\nbase_url = \"{base_url}\"\nauth = \"none\"");
        warned(&provider, &[])
    };
    for bare in [
        "https://api.openai.com",
        "https://api.anthropic.com/",
        "http://127.0.0.1:11434",
    ] {
        let found = found(bare);
        let meant = format!("{}/v1", bare.trim_end_matches('/'));
        assert!(
            found.starts_with("providers.p.base_url: has no path"),
            "{found}"
        );
        assert!(found.ends_with(&meant), "{found}");
    }
    for good in [
        "https://api.openai.com/v1",
        "https://api.deepseek.com",
        "http://127.0.0.1:8000",
    ] {
        assert_eq!(found(good), "", "{good}");
    }
}

#[test]
fn a_model_that_two_providers_list_is_warned_of_or_the_default_ones() {
    let provider = |name: &str| {
        format!(
            "[providers.{name}]\nbase_url = \"https://{name}.example/v1\"\nauth = \"none\"\nmodels = [\"m*\"]\n"
        )
    };
    let both = format!("{}{}", provider("a"), provider("b"));
    assert_eq!(
        warned(&both, &[]),
        "providers.a.models: \"m*\" is listed by a, b, so that a request for it is refused unless it says \
         PROVIDER/m*; set default_provider to one of them, or leave the name out of the others"
    );
    let chosen = format!("default_provider = \"b\"\n{both}");
    assert_eq!(warned(&chosen, &[]), "");
    let config = accepted(&chosen);
    let names = crate::config::names::ModelNames::new(&config);
    assert_eq!(names.resolve_model("m1", None).unwrap().provider, "b");
}

#[test]
fn a_model_of_a_provider_that_is_missing_is_warned_of() {
    let with = |model: &str| {
        format!(
            "[providers.openai]\nbase_url = \"https://api.openai.com/v1\"\nauth = \"none\"\n\
             [models.\"{model}\"]\ncontext_length = 50000\n"
        )
    };
    let found = warned(&with("opnai/gpt-4o"), &[]);
    let meant = "there is no provider \"opnai\"; did you mean \"openai\"? As it stands, openai is asked for";
    assert!(found.contains(meant), "{found}");
    let found = warned(&with("anthropic/claude-sonnet-4-5"), &[]);
    assert!(
        found.contains("there is no provider \"anthropic\""),
        "{found}"
    );
    let stated = format!("{}provider = \"openai\"\n", with("opnai/gpt-4o"));
    assert_eq!(warned(&stated, &[]), "");
    for plain in ["openai/gpt-4o", "meta-llama/llama-4", "gpt-*"] {
        assert_eq!(warned(&with(plain), &[]), "", "{plain}");
    }
}

#[test]
fn the_settings_of_a_pattern_apply_to_its_models() {
    let config = accepted(
        "[providers.a]\nbase_url = \"https://api.anthropic.com/v1\"\nauth = \"none\"\n\
         [models.\"claude-*\"]\ncontext_length = 50000\n\
         [models.\"claude-opus-*\"]\ncontext_length = 60000\n",
    );
    let registry = Registry::new(&config).unwrap();
    let window = |model| registry.resolve_target(model, None).unwrap().window.tokens;
    assert_eq!(window("claude-sonnet-4-5"), 50_000);
    assert_eq!(window("a/claude-opus-4-1"), 60_000);
    let middle = refused("[models.\"*-sonnet\"]\ncontext_length = 50000", &[]);
    assert!(middle.contains("must be a model's name"), "{middle}");
}
