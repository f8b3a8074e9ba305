//! Editors and chat apps.

use super::{Client, ClientFile, FileFormat, folder};

pub(super) const APPS: &[Client] = &[
    Client {
        name: "cline",
        title: "Cline",
        programs: &["cline"],
        asks_for: "/v1/chat/completions",
        address: "its settings, or `cline auth`",
        base: "{base_v1}",
        model: "{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "Context Window",
        key: "In the field API Key, or behind --apikey.",
        common_mistakes: "Cline takes 128,000 tokens where nothing is set. cline --compaction off leaves it to the proxy to \
               shorten the history.",
        was_run: true,
        files: &[],
        lines: "In the extension's settings: API Provider \"OpenAI Compatible\"
Base URL {base_v1}
Model ID {model}
Model Configuration, Context Window {window}
In the terminal:
cline auth --provider openai-compatible --apikey KEY --modelid {model} --baseurl {base_v1}",
        run: None,
    },
    Client {
        name: "continue",
        title: "Continue",
        programs: &["cn"],
        asks_for: "/v1/chat/completions",
        address: "`~/.continue/config.yaml`",
        base: "{base_v1}",
        model: "{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`contextLength`",
        key: "In the file, in place of unused.",
        common_mistakes: "Without contextLength and maxTokens, Continue takes 32,768 and 4,096 in an editor. Autocompletion asks \
               another path, which is not guarded.",
        was_run: true,
        files: &[ClientFile {
            folders: &[
                folder("CONTINUE_GLOBAL_DIR", ""),
                folder("HOME", ".continue"),
            ],
            names: &["config.yaml"],
            format: FileFormat::Yaml,
            content: "name: Plimsoll
version: 1.0.0
schema: v1
models:
  - name: Plimsoll
    provider: openai
    model: {model}
    apiBase: {base_v1}
    apiKey: unused
    roles: [chat, edit, apply]
    capabilities: [tool_use]
    defaultCompletionOptions:
      contextLength: {window}
      maxTokens: {output}
",
        }],
        lines: "",
        run: None,
    },
    Client {
        name: "zed",
        title: "Zed",
        programs: &["zed"],
        asks_for: "/v1/chat/completions",
        address: "`settings.json`",
        base: "{base_v1}",
        model: "{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`max_tokens` of the model",
        key: "Typed into the settings of its agent, or PLIMSOLL_API_KEY=KEY where it is started.",
        common_mistakes: "Zed needs max_tokens. Edit predictions go elsewhere.",
        was_run: false,
        files: &[ClientFile {
            folders: &[
                folder("XDG_CONFIG_HOME", "zed"),
                folder("HOME", ".config/zed"),
            ],
            names: &["settings.json"],
            format: FileFormat::Json,
            content: include_str!("zed.json"),
        }],
        lines: "",
        run: None,
    },
    Client {
        name: "goose",
        title: "goose",
        programs: &["goose"],
        asks_for: "/v1/chat/completions",
        address: "`~/.config/goose/custom_providers/plimsoll.json`, or the environment",
        base: "{base_v1}/chat/completions",
        model: "{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`context_limit` of the model, or `GOOSE_CONTEXT_LIMIT`",
        key: "PLIMSOLL_KEY=KEY, as above.",
        common_mistakes: "goose takes 128,000 tokens where nothing is set, whatever the proxy's list says. The whole address in OPENAI_HOST \
               doubles /v1.",
        was_run: false,
        files: &[ClientFile {
            folders: &[
                folder("XDG_CONFIG_HOME", "goose/custom_providers"),
                folder("HOME", ".config/goose/custom_providers"),
            ],
            names: &["plimsoll.json"],
            format: FileFormat::Json,
            content: r#"{
  "name": "plimsoll",
  "engine": "openai",
  "display_name": "Plimsoll",
  "api_key_env": "PLIMSOLL_KEY",
  "base_url": "{base_v1}/chat/completions",
  "models": [{ "name": "{model}", "context_limit": "{window}" }]
}"#,
        }],
        lines: "export GOOSE_PROVIDER=plimsoll
export GOOSE_MODEL={model}
export PLIMSOLL_KEY=KEY",
        run: None,
    },
    Client {
        name: "openhands",
        title: "OpenHands",
        programs: &["openhands"],
        asks_for: "/v1/chat/completions",
        address: "its settings",
        base: "{base_v1}",
        model: "openai/{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`max_input_tokens`",
        key: "In the field API Key beside these.",
        common_mistakes: "In a container, 127.0.0.1 is the container itself: use an address of the host, and server.allowed_hosts.",
        was_run: false,
        files: &[],
        lines: "In the settings, LLM, Advanced:
Custom Model openai/{model}
Base URL {base_v1}
max_input_tokens {window}",
        run: None,
    },
    Client {
        name: "open-webui",
        title: "Open WebUI",
        programs: &["open-webui"],
        asks_for: "/v1/chat/completions",
        address: "a connection in its settings",
        base: "{base_v1}",
        model: "{model}",
        has_own_model_names: true,
        smallest_window: 0,
        window: "none",
        key: "In the field Key of the connection, or OPENAI_API_KEY before the first start.",
        common_mistakes: "OPENAI_API_BASE_URL counts at the first start only: later values stand in its settings. Without the header, \
               titles and tags that it asks for with prompts of your own are taken for conversations.",
        was_run: true,
        files: &[],
        lines: r#"In the admin settings, Connections, OpenAI API: URL {base_v1}, and in
Headers {"x-plimsoll-task": "{{TASK}}"}
Or before the first start:
export OPENAI_API_BASE_URL={base_v1} OPENAI_API_KEY=KEY
export OPENAI_API_CONFIGS='{"0": {"enable": true, "headers": {"x-plimsoll-task": "{{TASK}}"}}}'"#,
        run: None,
    },
    Client {
        name: "librechat",
        title: "LibreChat",
        programs: &[],
        asks_for: "/v1/chat/completions",
        address: "`endpoints.custom` in `librechat.yaml`",
        base: "{base_v1}",
        model: "{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`tokenConfig`",
        key: "PLIMSOLL_KEY=KEY in its file .env.",
        common_mistakes: "In a container, 127.0.0.1 is the container itself: use an address of the host, and server.allowed_hosts.",
        was_run: false,
        files: &[],
        lines: "endpoints:
  custom:
    - name: Plimsoll
      apiKey: \"${PLIMSOLL_KEY}\"
      baseURL: {base_v1}
      models:
        default: [\"{model}\"]
        fetch: true
      tokenConfig:
        \"{model}\": { context: {window} }",
        run: None,
    },
];
