//! Coding agents. Their settings are from the programs and pages that `docs/clients.md` names.

use super::{
    Client, ClientFile,
    Existing::{Json, Kept, Lines, Replaced},
    FileFormat, Overriding, RunSetup, RunVariable, folder,
};

/// Any program that is not in the table: the variables that the SDKs read.
pub(super) const ANY_PROGRAM: RunSetup = RunSetup {
    variables: &[
        set("OPENAI_BASE_URL", "{base_v1}"),
        set("ANTHROPIC_BASE_URL", "{base}"),
    ],
    arguments: &[],
    file: None,
    own_models: &[],
    chosen_by: &[],
    overridden_in: &[],
};

const CLAUDE: &str = "claude-opus-5-5";
const GPT: &str = "gpt-6.2-sol";

const fn set(name: &'static str, value: &'static str) -> RunVariable {
    RunVariable {
        name,
        value,
        existing: Replaced,
    }
}

const fn keep(name: &'static str, value: &'static str) -> RunVariable {
    RunVariable {
        name,
        value,
        existing: Kept,
    }
}

pub(super) const AGENTS: &[Client] = &[
    Client {
        name: "claude-code",
        title: "Claude Code",
        programs: &["claude"],
        asks_for: "/v1/messages",
        address: "`~/.claude/settings.json`, or the environment",
        base: "{base}",
        model: "{model}",
        has_own_model_names: true,
        smallest_window: 100_000,
        window: "`CLAUDE_CODE_MAX_CONTEXT_TOKENS`, `CLAUDE_CODE_AUTO_COMPACT_WINDOW`",
        key: "Its login or ANTHROPIC_API_KEY goes out as it is. In place of it ANTHROPIC_AUTH_TOKEN=KEY, beside it \
              ANTHROPIC_CUSTOM_HEADERS=\"x-plimsoll-key: KEY\".",
        common_mistakes: "The address has no /v1. The file comes before the shell. Told a window below 100,000 tokens, it stops: a smaller \
               one is not told. Tool search is off at any address but Anthropic's: ENABLE_TOOL_SEARCH=true.",
        was_run: true,
        files: &[ClientFile {
            folders: &[folder("CLAUDE_CONFIG_DIR", ""), folder("HOME", ".claude")],
            names: &["settings.json"],
            format: FileFormat::Json,
            content: r#"{
  "env": {
    "ANTHROPIC_BASE_URL": "{base}",
    "ANTHROPIC_MODEL": "{model}",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": "{model}",
    "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "{window_text}",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "{window_text}",
    "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"
  }
}"#,
        }],
        lines: "",
        run: Some(RunSetup {
            variables: &[
                set("ANTHROPIC_BASE_URL", "{base}"),
                RunVariable {
                    name: "ANTHROPIC_CUSTOM_HEADERS",
                    value: "x-plimsoll-key: {key}",
                    existing: Lines,
                },
                set("ANTHROPIC_MODEL", "{model}"),
                // What its aliases and small requests stand for; the last one is the former name.
                keep("ANTHROPIC_DEFAULT_FABLE_MODEL", "{model}"),
                keep("ANTHROPIC_DEFAULT_OPUS_MODEL", "{model}"),
                keep("ANTHROPIC_DEFAULT_SONNET_MODEL", "{model}"),
                keep("ANTHROPIC_DEFAULT_HAIKU_MODEL", "{model}"),
                keep("ANTHROPIC_SMALL_FAST_MODEL", "{model}"),
                keep("CLAUDE_CODE_MAX_CONTEXT_TOKENS", "{window}"),
                keep("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "{window}"),
                set("CLAUDE_CODE_GATEWAY_HINT_HEADERS", "1"),
            ],
            arguments: &[],
            file: None,
            own_models: &[CLAUDE],
            chosen_by: &["ANTHROPIC_MODEL", "--model"],
            overridden_in: &[
                Overriding {
                    name: "ANTHROPIC_BASE_URL",
                    folders: &[folder("CLAUDE_CONFIG_DIR", ""), folder("HOME", ".claude")],
                    names: &["settings.json"],
                },
                Overriding {
                    name: "ANTHROPIC_BASE_URL",
                    folders: &[folder("PROJECT", ".claude")],
                    names: &["settings.json", "settings.local.json"],
                },
            ],
        }),
    },
    Client {
        name: "codex",
        title: "Codex",
        programs: &["codex"],
        asks_for: "/v1/responses",
        address: "`~/.codex/config.toml`",
        base: "{base_v1}",
        model: "{model}",
        has_own_model_names: true,
        smallest_window: 0,
        window: "`model_context_window`",
        key: "Its login goes out as it is. Beside it goes what PLIMSOLL_KEY holds where Codex is started: export PLIMSOLL_KEY=KEY. Without a \
              login, env_key = \"PLIMSOLL_KEY\" stands in place of requires_openai_auth.",
        common_mistakes: "The provider's name must not be OpenAI: Codex then asks it to compact. A project's .codex/config.toml cannot \
               choose the provider.",
        was_run: true,
        files: &[ClientFile {
            folders: &[folder("CODEX_HOME", ""), folder("HOME", ".codex")],
            names: &["config.toml"],
            format: FileFormat::Toml,
            content: r#"model_provider = "plimsoll"
model = "{model}"
model_context_window = "{window}"

[model_providers.plimsoll]
name = "plimsoll"
base_url = "{base_v1}"
wire_api = "responses"
requires_openai_auth = true

[model_providers.plimsoll.env_http_headers]
x-plimsoll-key = "PLIMSOLL_KEY"
"#,
        }],
        lines: "",
        run: Some(RunSetup {
            variables: &[set("PLIMSOLL_KEY", "{key}")],
            arguments: &[
                &["--config=model_provider=\"plimsoll\""],
                &["--config=model_providers.plimsoll.name=\"plimsoll\""],
                &["--config=model_providers.plimsoll.base_url=\"{base_v1}\""],
                &["--config=model_providers.plimsoll.wire_api=\"responses\""],
                // Without it, Codex sends an own provider no login.
                &["--config=model_providers.plimsoll.requires_openai_auth=true"],
                &[
                    "--config=model_providers.plimsoll.env_http_headers={\"x-plimsoll-key\"=\"PLIMSOLL_KEY\"}",
                ],
                &["--config=model=\"{model}\""],
                &["--config=model_context_window={window}"],
            ],
            file: None,
            own_models: &[GPT],
            chosen_by: &[
                "--model",
                "-m",
                "model",
                "--config=model",
                "--profile",
                "-p",
                "--oss",
            ],
            // Arguments come before its files.
            overridden_in: &[],
        }),
    },
    Client {
        name: "opencode",
        title: "opencode",
        programs: &["opencode"],
        asks_for: "/v1/chat/completions",
        address: "`opencode.json`",
        base: "{base_v1}",
        model: "plimsoll/{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`limit.context` of the model",
        key: "It sends what PLIMSOLL_KEY holds where it is started: export PLIMSOLL_KEY=KEY.",
        common_mistakes: "Without limit, opencode knows no window. With npm set to @ai-sdk/openai it refers to stored items, \
               which cannot be guarded.",
        was_run: true,
        files: &[ClientFile {
            folders: &[
                folder("XDG_CONFIG_HOME", "opencode"),
                folder("HOME", ".config/opencode"),
            ],
            names: &["opencode.json", "opencode.jsonc"],
            format: FileFormat::Json,
            content: r#"{
  "$schema": "https://opencode.ai/config.json",
  "model": "plimsoll/{model}",
  "provider": {
    "plimsoll": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Plimsoll",
      "options": { "baseURL": "{base_v1}", "apiKey": "{env:PLIMSOLL_KEY}" },
      "models": {
        "{model}": { "name": "{model}", "limit": { "context": "{window}", "output": "{output}" } }
      }
    }
  }
}"#,
        }],
        lines: "",
        run: Some(RunSetup {
            variables: &[
                set("PLIMSOLL_KEY", "{key}"),
                RunVariable {
                    name: "OPENCODE_CONFIG_CONTENT",
                    // opencode's own providers, with its own names and credentials.
                    value: r#"{ "provider": {
  "openai": { "options": { "baseURL": "{base_v1}", "headers": { "x-plimsoll-key": "{key}" } } },
  "anthropic": { "options": { "baseURL": "{base_v1}", "headers": { "x-plimsoll-key": "{key}" } } }
} }"#,
                    existing: Json,
                },
                RunVariable {
                    name: "OPENCODE_CONFIG_CONTENT",
                    value: "{settings}",
                    existing: Json,
                },
            ],
            arguments: &[],
            file: None,
            own_models: &[CLAUDE, GPT],
            chosen_by: &["--model", "-m"],
            // The variable comes after its files.
            overridden_in: &[],
        }),
    },
    Client {
        name: "aider",
        title: "aider",
        programs: &["aider"],
        asks_for: "/v1/chat/completions",
        address: "the environment, or `~/.aider.conf.yml`",
        base: "{base_v1}",
        model: "openai/{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`.aider.model.metadata.json`",
        key: "OPENAI_API_KEY=KEY, as above, or openai-api-key in .aider.conf.yml.",
        common_mistakes: "The prefix openai/ says which API to speak. aider sends no tools, so what was cut cannot be looked up.",
        was_run: true,
        files: &[
            ClientFile {
                folders: &[folder("HOME", "")],
                names: &[".aider.conf.yml"],
                format: FileFormat::Yaml,
                content: "openai-api-base: {base_v1}\nmodel: openai/{model}\n",
            },
            ClientFile {
                folders: &[folder("HOME", "")],
                names: &[".aider.model.metadata.json"],
                format: FileFormat::Json,
                content: r#"{
  "openai/{model}": {
    "max_input_tokens": "{window}", "max_output_tokens": "{output}", "litellm_provider": "openai", "mode": "chat"
  }
}"#,
            },
        ],
        lines: "export OPENAI_API_KEY=KEY",
        run: Some(RunSetup {
            variables: &[
                set("OPENAI_API_BASE", "{base_v1}"),
                set("ANTHROPIC_API_BASE", "{base}"),
                // Without any, it does not ask.
                keep("OPENAI_API_KEY", "{model_key}"),
            ],
            arguments: &[
                // An argument comes before its files, a variable after them.
                &["--openai-api-base={base_v1}"],
                &["--model=openai/{model}"],
                &["--model-metadata-file={file}"],
            ],
            file: Some(("aider-models.json", "{settings}")),
            own_models: &[CLAUDE, GPT],
            chosen_by: &["AIDER_MODEL", "--model"],
            overridden_in: &[
                Overriding {
                    name: "ANTHROPIC_API_BASE",
                    folders: &[folder("HOME", "")],
                    names: &[".env"],
                },
                Overriding {
                    name: "ANTHROPIC_API_BASE",
                    folders: &[folder("PROJECT", "")],
                    names: &[".env"],
                },
            ],
        }),
    },
    Client {
        name: "pi",
        title: "pi",
        programs: &["pi"],
        asks_for: "/v1/chat/completions",
        address: "`~/.pi/agent/models.json`",
        base: "{base_v1}",
        model: "plimsoll/{model}",
        has_own_model_names: false,
        smallest_window: 0,
        window: "`contextWindow`",
        key: "In the file, in place of unused: KEY, or \"$PLIMSOLL_KEY\", which reads that variable where pi is started.",
        common_mistakes: "The model is chosen by --model plimsoll/NAME.",
        was_run: true,
        files: &[ClientFile {
            folders: &[
                folder("PI_CODING_AGENT_DIR", ""),
                folder("HOME", ".pi/agent"),
            ],
            names: &["models.json"],
            format: FileFormat::Json,
            content: r#"{
  "providers": {
    "plimsoll": {
      "baseUrl": "{base_v1}",
      "apiKey": "unused",
      "api": "openai-completions",
      "models": [{ "id": "{model}", "contextWindow": "{window}", "maxTokens": "{output}" }]
    }
  }
}"#,
        }],
        lines: "",
        run: Some(RunSetup {
            variables: &[
                set("PLIMSOLL_BASE_URL", "{base}"),
                set("PLIMSOLL_KEY", "{key}"),
                set("PLIMSOLL_MODELS", "{settings}"),
            ],
            // It does not read `--extension=FILE`.
            arguments: &[&["--extension", "{file}"], &["--model", "plimsoll/{model}"]],
            file: Some((
                "pi-extension.js",
                r#"// pi's own providers, with its own names and credentials, through the proxy; and the models that it was told of.
const UNKNOWN = {
  reasoning: false,
  input: ["text"],
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
  contextWindow: 128000,
  maxTokens: 8192,
};

export default function (pi) {
  const base = process.env.PLIMSOLL_BASE_URL;
  const headers = { "x-plimsoll-key": process.env.PLIMSOLL_KEY };
  pi.registerProvider("openai", { baseUrl: `${base}/v1`, headers });
  pi.registerProvider("anthropic", { baseUrl: base, headers });
  const { providers } = JSON.parse(process.env.PLIMSOLL_MODELS || "{}");
  for (const [name, { models, ...provider }] of Object.entries(providers ?? {})) {
    const filled = models.map((model) => ({ name: model.id, ...UNKNOWN, ...model }));
    pi.registerProvider(name, { ...provider, headers, models: filled });
  }
}
"#,
            )),
            own_models: &[CLAUDE, GPT],
            chosen_by: &["--model", "--models", "--provider"],
            // The extension comes after its files.
            overridden_in: &[],
        }),
    },
];
