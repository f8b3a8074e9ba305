//! Which model a client is told where the settings have none of its own.

use serde_json::json;

use super::*;

/// A provider of one's own, at an address where nobody listens.
const LOCAL: &str = r#"
[providers.local]
base_url = "http://127.0.0.1:1/v1"
auth = "none"
formats = ["chat", "messages", "responses"]
"#;

struct Client {
    home: Home,
    settings: PathBuf,
}

impl Client {
    fn new(settings: &str) -> Self {
        let home = Home::new();
        let path = home.folder.path().join("own.toml");
        fs::write(&path, settings).unwrap();
        Self {
            home,
            settings: path,
        }
    }

    fn with_models(models: &str) -> Self {
        let window = "[models.\"local/qwen3\"]\ncontext_length = 32768\n";
        Self::new(&format!("{LOCAL}models = {models}\n{window}"))
    }

    /// Starts `plimsoll run`, with arguments of its own and of the client, and variables. What the client printed (its
    /// arguments, then its variables of that beginning), and what was said.
    async fn run(
        &self,
        name: &str,
        before: &[&str],
        after: &[&str],
        set: &[(&str, &str)],
    ) -> (String, String) {
        let print = r#"for argument; do echo "$argument"; done
env | grep -E '^(ANTHROPIC|CLAUDE_CODE|PLIMSOLL_MODELS)' | grep -v -E '_BASE_URL=|CUSTOM_HEADERS=' | sort
echo "$OPENCODE_CONFIG_CONTENT""#;
        let program = self.home.stand_in(name, print);
        let mut command = self.home.command(STAYS);
        command
            .arg("--config")
            .arg(&self.settings)
            .args(before)
            .arg(program)
            .args(after)
            .envs(set.iter().copied());
        let (status, printed, said) = finish(&mut command).await;
        assert!(status.success(), "{said}");
        (printed, said)
    }
}

fn lines(printed: &str) -> Vec<&str> {
    printed.lines().filter(|line| !line.is_empty()).collect()
}

const HINTS: &str = "CLAUDE_CODE_GATEWAY_HINT_HEADERS=1";

#[tokio::test]
async fn claude_begins_with_the_only_model() {
    let client = Client::with_models(r#"["qwen3"]"#);
    let (printed, said) = client.run("claude", &[], &["-p"], &[]).await;
    // Told a window below 100,000 tokens, it stops.
    assert_eq!(
        lines(&printed),
        [
            "-p",
            "ANTHROPIC_DEFAULT_FABLE_MODEL=local/qwen3",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL=local/qwen3",
            "ANTHROPIC_DEFAULT_OPUS_MODEL=local/qwen3",
            "ANTHROPIC_DEFAULT_SONNET_MODEL=local/qwen3",
            "ANTHROPIC_MODEL=local/qwen3",
            "ANTHROPIC_SMALL_FAST_MODEL=local/qwen3",
            HINTS,
        ]
    );
    assert_eq!(
        said,
        "plimsoll: no provider here serves the names that Claude Code asks for: it begins with local/qwen3 (--model NAME \
         before claude chooses)\n"
    );
    let window = ["--window", "150000"];
    let own = [("ANTHROPIC_DEFAULT_HAIKU_MODEL", "small")];
    let (printed, _) = client.run("claude", &window, &[], &own).await;
    assert!(
        printed.contains("ANTHROPIC_DEFAULT_HAIKU_MODEL=small\n"),
        "{printed}"
    );
    assert!(
        printed.contains("CLAUDE_CODE_MAX_CONTEXT_TOKENS=150000\n"),
        "{printed}"
    );
    // The user's own choice counts.
    let (printed, said) = client.run("claude", &[], &["--model", "mine"], &[]).await;
    assert_eq!(
        (lines(&printed), &*said),
        (vec!["--model", "mine", HINTS], "")
    );
    let own = [("ANTHROPIC_MODEL", "mine")];
    let (printed, said) = client.run("claude", &[], &[], &own).await;
    assert_eq!(
        (lines(&printed), &*said),
        (vec!["ANTHROPIC_MODEL=mine", HINTS], "")
    );
}

#[tokio::test]
async fn of_several_models_claude_and_codex_get_the_one_that_is_named() {
    let client = Client::with_models(r#"["qwen3", "glm"]"#);
    for (name, program) in [("Claude Code", "claude"), ("Codex", "codex")] {
        let (printed, said) = client.run(program, &[], &[], &[]).await;
        assert!(!printed.contains("local/"), "{printed}");
        assert_eq!(
            said,
            format!(
                "plimsoll: no provider here serves the names that {name} asks for: choose a model by `plimsoll run --model \
                 NAME {program}`, one of local/glm, local/qwen3\n"
            )
        );
    }
    let (printed, said) = client
        .run("codex", &["--model", "local/qwen3"], &["exec"], &[])
        .await;
    let told = [
        "--config=model=\"local/qwen3\"",
        "--config=model_context_window=32768",
        "exec",
    ];
    assert!(lines(&printed).ends_with(&told), "{printed}");
    assert_eq!(said, "");
    let mut command = client.home.command(STAYS);
    command.arg("--config").arg(&client.settings);
    let (status, _, said) = finish(command.args(["--model", "local/glm", "sh"])).await;
    assert_eq!(status.code(), Some(1));
    assert!(
        said.contains("this program cannot be told a model"),
        "{said}"
    );
}

#[tokio::test]
async fn clients_without_names_of_their_own_get_all_models_as_connect_writes_them() {
    let client = Client::with_models(r#"["qwen3", "glm"]"#);
    let own = [("OPENCODE_CONFIG_CONTENT", r#"{"theme": "mine"}"#)];
    let (printed, said) = client.run("opencode", &[], &[], &own).await;
    assert!(said.contains("it begins with local/glm"), "{said}");
    let config: Value = serde_json::from_str(lines(&printed).last().unwrap()).unwrap();
    let address = client.home.proxy().unwrap()["address"]
        .as_str()
        .unwrap()
        .to_owned();
    let base = format!("http://{address}/v1");
    assert_eq!(config["theme"], "mine");
    assert_eq!(config["model"], "plimsoll/local/glm");
    for provider in ["openai", "plimsoll"] {
        assert_eq!(
            config["provider"][provider]["options"]["baseURL"],
            json!(base),
            "{config}"
        );
    }
    let limit = &config["provider"]["plimsoll"]["models"]["local/qwen3"]["limit"];
    assert_eq!(*limit, json!({"context": 32768, "output": 8192}));

    let (printed, _) = client.run("aider", &[], &["--yes"], &[]).await;
    let file = client.home.data().join("aider-models.json");
    let told = [
        format!("--openai-api-base={base}"),
        "--model=openai/local/glm".to_owned(),
        format!("--model-metadata-file={}", file.display()),
        "--yes".to_owned(),
    ];
    assert!(
        lines(&printed).starts_with(&told.each_ref().map(|it| &**it)),
        "{printed}"
    );
    let models: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(models["openai/local/qwen3"]["max_input_tokens"], 32768);

    let (printed, _) = client
        .run("pi", &["--model", "local/qwen3"], &[], &[])
        .await;
    let told = lines(&printed);
    assert_eq!(
        (told[0], &told[2..4]),
        ("--extension", &["--model", "plimsoll/local/qwen3"][..])
    );
    assert!(printed.contains("PLIMSOLL_MODELS="), "{printed}");
    let (printed, said) = client.run("pi", &[], &["--model", "mine"], &[]).await;
    assert!(!printed.contains("plimsoll/local"), "{printed}");
    assert_eq!(said, "");
}

#[tokio::test]
async fn nothing_is_told_where_a_client_is_served_or_cannot_be() {
    let anthropic = format!(
        "{LOCAL}models = [\"qwen3\"]\n[providers.anthropic]\nbase_url = \"http://127.0.0.1:1/v1\"\nauth = \"client\"\nmodels = [\"claude-*\"]\n"
    );
    for settings in ["", &anthropic] {
        let client = Client::new(settings);
        let (printed, said) = client.run("claude", &[], &[], &[]).await;
        assert_eq!((lines(&printed), &*said), (vec![HINTS], ""), "{settings}");
    }
    let chat_alone = LOCAL.replace("\"messages\", ", "");
    let client = Client::new(&format!("{chat_alone}models = [\"qwen3\"]\n"));
    let (printed, said) = client.run("claude", &[], &[], &[]).await;
    assert_eq!(lines(&printed), [HINTS]);
    assert_eq!(
        said,
        "plimsoll: no provider here serves the names that Claude Code asks for, nor is there another model for /v1/messages\n"
    );
}
