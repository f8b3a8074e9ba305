//! `plimsoll doctor` in broken set-ups, each on real sockets: it names the cause and the remedy, and shows no key.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    ScriptedProvider, answer,
    process::{Process, Settings},
    redis::Redis,
};

const SECRET: &str = "sk-never-shown";

/// A folder with settings, data and a home, and what the environment of the command has.
struct SetUp {
    folder: TempDir,
    listen: SocketAddr,
    lines: String,
    variables: Vec<(String, String)>,
}

/// What is expected of a finding: its level, and words of its subject, cause and remedy.
struct Expected<'e> {
    level: &'e str,
    subject: &'e str,
    cause: &'e str,
    remedy: &'e str,
}

impl SetUp {
    fn new(lines: impl Into<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        Self {
            folder,
            listen: free_address(),
            lines: lines.into(),
            variables: vec![("KEY".to_owned(), SECRET.to_owned())],
        }
    }

    /// Before a provider at that address, with more lines of its section and behind it.
    fn before(base_url: &str, lines: &str) -> Self {
        Self::new(format!(
            "[providers.up]\nbase_url = \"{base_url}\"\n{lines}\n"
        ))
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("config.toml")
    }

    /// Writes the settings, unless they are there, and runs the command.
    fn run(&self, arguments: &[&str]) -> Output {
        let (file, data) = (self.file(), self.data());
        if !file.exists() {
            let server = format!(
                "[server]\nlisten = \"{}\"\ndata_dir = {data:?}\nknown_providers = false\n[catalogue]\nurl = \"\"\n",
                self.listen
            );
            fs::write(&file, server + &self.lines).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        let command = command
            .args(["doctor", "--config"])
            .arg(&file)
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null());
        tokio::task::block_in_place(|| command.output().unwrap())
    }

    /// The report, which holds no key, and whether the exit code is 0.
    fn examine(&self) -> (Value, bool) {
        let done = self.run(&["--json"]);
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(!text.contains(SECRET), "{text}");
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        (report, done.status.success())
    }

    #[track_caller]
    fn finds(&self, expected: Expected) {
        let (report, is_healthy) = self.examine();
        let is_fault = expected.level == "fault";
        assert_eq!(report["healthy"], is_healthy);
        assert!(!(is_fault && is_healthy), "{report:#}");
        let has = |finding: &Value, key: &str, words: &str| {
            finding[key].as_str().is_some_and(|it| it.contains(words))
        };
        let found = report["findings"].as_array().unwrap().iter().any(|it| {
            it["level"] == expected.level
                && has(it, "subject", expected.subject)
                && has(it, "cause", expected.cause)
                && has(it, "remedy", expected.remedy)
        });
        let Expected {
            level,
            subject,
            cause,
            remedy,
        } = expected;
        assert!(
            found,
            "no {level} of {subject}: {cause} -> {remedy} in\n{report:#}"
        );
    }
}

/// Nobody listens on a port that was released.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A provider that answers every request so.
async fn provider(status: &'static str, headers: &'static str, body: Value) -> ScriptedProvider {
    let body = body.to_string();
    ScriptedProvider::start_answering(move |_| vec![answer(status, headers, &body)]).await
}

fn base_url(of: &ScriptedProvider) -> String {
    format!("http://{}/v1", of.address)
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const LISTED: &str = "listed";

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_set_up_has_no_fault() {
    let up = provider(
        "200 OK",
        "",
        json!({"data": [{"id": LISTED, "meta": {"n_ctx": 8192}}]}),
    )
    .await;
    let set_up = SetUp::before(&base_url(&up), "api_key_env = \"KEY\"");
    let (report, is_healthy) = set_up.examine();
    assert!(is_healthy && report["healthy"] == true, "{report:#}");
    for finding in report["findings"].as_array().unwrap() {
        assert_ne!(finding["level"], "fault");
        let has_remedy = finding["remedy"].is_string();
        assert_eq!(has_remedy, finding["level"] != "ok", "{finding}");
    }
    // Lists are all that is asked for.
    let asked = up.requests(2).await;
    assert!(asked.iter().all(|it| it.line.starts_with("GET /v1/models")));
    let shown = String::from_utf8(set_up.run(&[]).stdout).unwrap();
    assert!(
        shown.contains("ok       providers.up: can be reached, and takes the key"),
        "{shown}"
    );
    assert!(
        shown.contains("\nfaults: 0, warnings: 0, sound: "),
        "{shown}"
    );
    // A running proxy is no fault, nor is what it has open.
    let process = Process::run(|command| {
        command
            .arg("--config")
            .arg(set_up.file())
            .env("KEY", SECRET)
    })
    .await;
    assert_eq!(process.address, set_up.listen);
    let (report, is_healthy) = set_up.examine();
    assert!(is_healthy, "{report:#}");
    assert!(report.to_string().contains("a proxy runs at"), "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_provider_from_answering_is_found() {
    let gone = free_address();
    let fault = |cause, remedy| Expected {
        level: "fault",
        subject: "providers.up",
        cause,
        remedy,
    };
    SetUp::before(&format!("http://{gone}/v1"), "auth = \"none\"")
        .finds(fault("Connection refused", "start the server"));

    let tls = Redis::with_tls("redis-server");
    SetUp::before(
        &format!("https://127.0.0.1:{}/v1", tls.port()),
        "auth = \"none\"",
    )
    .finds(fault("UnknownIssuer", "server.ca_file"));

    // No server of names is asked for a label that is too long.
    let host = format!("{}.invalid", "a".repeat(64));
    SetUp::before(&format!("http://{host}/v1"), "auth = \"none\"")
        .finds(fault("lookup", "correct the host in base_url"));

    SetUp::before("https://provider.invalid/v1", "api_key_env = \"KEY\"")
        .variable("HTTPS_PROXY", &format!("http://{gone}"))
        .finds(fault("through a proxy", "NO_PROXY"));

    let up = provider("401 Unauthorized", "", json!({})).await;
    let with_key = SetUp::before(&base_url(&up), "api_key_env = \"KEY\"");
    with_key.finds(fault(
        "refuses the key in KEY (status 401",
        "set a key there that this provider knows",
    ));
    let shown = String::from_utf8(with_key.run(&[]).stdout).unwrap();
    assert!(
        shown.starts_with("fault    providers.up: refuses the key in KEY"),
        "{shown}"
    );

    SetUp::before(&base_url(&up), "auth = \"none\"\nprofile = \"ollama\"").finds(fault(
        "asks for a key",
        "api_key_env, in place of auth = \"none\"",
    ));

    let up = provider("403 Forbidden", "", json!({})).await;
    SetUp::before(&base_url(&up), "api_key_env = \"KEY\"").finds(fault(
        "refuses the key in KEY (status 403",
        "may list models",
    ));

    let up = provider("404 Not Found", "", json!({})).await;
    SetUp::before(&format!("http://{}/v1/v1", up.address), "auth = \"none\"").finds(Expected {
        level: "warning",
        subject: "providers.up.base_url",
        cause: "has /v1 twice",
        remedy: "write it once",
    });
    SetUp::before(&format!("http://{}/api", up.address), "auth = \"none\"").finds(Expected {
        level: "warning",
        ..fault(
            "/api/models is not there (status 404",
            "correct the path of base_url",
        )
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_and_clocks_that_differ_are_found() {
    let smaller = |name| Expected {
        level: "warning",
        subject: name,
        cause: "65536 tokens are set, and up tells that it holds 8192",
        remedy: "set 8192 here, or start the server with 65536",
    };
    let list = json!({"data": [{"id": LISTED, "meta": {"n_ctx": 8192}}]});
    let up = provider("200 OK", "", list).await;
    let model = format!("auth = \"none\"\n[models.\"up/{LISTED}\"]\ncontext_length = 65536");
    let subject = format!("models.\"up/{LISTED}\".context_length");
    SetUp::before(&base_url(&up), &model).finds(smaller(&subject));

    // What an engine has loaded counts, not what the model could hold.
    for (profile, path, loaded) in [
        (
            "ollama",
            "/api/ps",
            json!({"models": [{"name": "listed:latest", "context_length": 8192}]}),
        ),
        (
            "lmstudio",
            "/api/v0/models",
            json!({"data": [{"id": LISTED, "loaded_context_length": 8192}]}),
        ),
    ] {
        let up = ScriptedProvider::start_answering(move |request| {
            // As LM Studio before 0.4.
            if request.line.contains("/api/v1/") {
                return vec![answer("404 Not Found", "", "{}")];
            }
            let is_loaded = request.line.contains(path);
            let all = json!({"data": [{"id": LISTED}, {"id": "listed:latest"}]});
            vec![answer(
                "200 OK",
                "",
                if is_loaded { &loaded } else { &all }.to_string(),
            )]
        });
        let up = up.await;
        SetUp::before(&base_url(&up), &format!("profile = \"{profile}\"\n{model}"))
            .finds(smaller(&subject));
    }

    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let up = provider("200 OK", date, json!({"data": []})).await;
    SetUp::before(&base_url(&up), "auth = \"none\"").finds(Expected {
        level: "fault",
        subject: "clock",
        cause: "from that of up",
        remedy: "NTP",
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_this_machine_is_found() {
    let fault = |subject, cause, remedy| Expected {
        level: "fault",
        subject,
        cause,
        remedy,
    };
    let data_dir = |cause, remedy| fault("server.data_dir", cause, remedy);
    let set_up = SetUp::new("");
    fs::remove_dir(set_up.data()).unwrap();
    fs::write(set_up.data(), "").unwrap();
    set_up.finds(data_dir(
        "no file can be made in",
        "set server.data_dir to another",
    ));

    let set_up = SetUp::new("");
    fs::set_permissions(set_up.data(), fs::Permissions::from_mode(0o777)).unwrap();
    set_up.finds(data_dir("other users can write into", "chmod go-rwx"));

    let up = ScriptedProvider::start().await;
    let settings = Settings::new(&up);
    settings.write("");
    let _running = Process::start(&settings.file).await;
    let set_up = SetUp::new("").variable(
        "PLIMSOLL_SERVER__DATA_DIR",
        &settings.folder.path().join("data").display().to_string(),
    );
    set_up.finds(data_dir(
        "another process uses the sessions",
        "a server.data_dir of its own",
    ));

    let set_up = SetUp::new("");
    let _other = TcpListener::bind(set_up.listen).unwrap();
    // It accepts, and answers nothing.
    set_up.finds(fault(
        "server.listen",
        "in use by another program",
        "--listen",
    ));

    let gone = free_address();
    SetUp::new(format!("[store]\nurl = \"redis://:{SECRET}@{gone}\"\n")).finds(fault(
        "store.url",
        "it refuses connections",
        "start the server",
    ));

    let set_up = SetUp::before(
        "https://api.invalid/v1",
        "auth = \"client\"\nheaders = { \"x-key\" = \"sk-never-shown\" }",
    );
    set_up.run(&[]);
    fs::set_permissions(set_up.file(), fs::Permissions::from_mode(0o644)).unwrap();
    set_up.finds(Expected {
        level: "warning",
        subject: "config.toml",
        cause: "providers.up.headers.x-key may hold a key",
        remedy: "chmod 600",
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_environment_is_found() {
    let up = provider("200 OK", "", json!({"data": []})).await;
    let with_key =
        |value| SetUp::before(&base_url(&up), "api_key_env = \"KEY\"").variable("KEY", value);
    let key = |cause, remedy| Expected {
        level: "fault",
        subject: "providers.up.api_key_env",
        cause,
        remedy,
    };
    with_key("").finds(key("KEY is set, but empty", "set it to the key"));
    with_key("Bearer sk-never-shown").finds(key("white space or quotes in it", "without Bearer"));
    with_key("sk-never-shown\n").finds(key("white space around its value", "ends of lines"));
    SetUp::before(&base_url(&up), "api_key_env = \"ABSENT\"")
        .finds(key("ABSENT is not set", "set it in the environment"));

    SetUp::new("")
        .variable("HTTP_PROXY", "http://proxy.invalid:3128")
        .finds(Expected {
            level: "warning",
            subject: "HTTP_PROXY",
            cause: "NO_PROXY does not name 127.0.0.1",
            remedy: "export NO_PROXY=localhost,127.0.0.1",
        });

    let host = format!("{}.invalid", "a".repeat(64));
    SetUp::before(&format!("http://{host}/v1"), "api_key_env = \"KEY\"").finds(Expected {
        level: "warning",
        subject: "providers.up.base_url",
        cause: "unencrypted",
        remedy: "use https",
    });

    SetUp::new("[guard]\nenabeld = true\n").finds(Expected {
        level: "fault",
        subject: "guard.enabeld",
        cause: "unknown key",
        remedy: "did you mean enabled?",
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_point_where_nobody_listens_are_found() {
    let gone = free_address();
    let set_up = SetUp::new("");
    let url = format!("http://{gone}");
    let text = json!({"env": {"ANTHROPIC_BASE_URL": url}}).to_string();
    write(set_up.folder.path(), ".claude/settings.json", &text);
    let dead = |subject| Expected {
        level: "fault",
        subject,
        cause: "where nothing listens",
        remedy: "write http://127.0.0.1:",
    };
    set_up.finds(dead("Claude Code"));

    let set_up = SetUp::new("");
    let own = set_up.listen;
    let text = format!(
        "[model_providers.plimsoll]\nbase_url = \"http://localhost:{}/v1\"\n",
        own.port()
    );
    write(set_up.folder.path(), "own/config.toml", &text);
    let folder = set_up.folder.path().join("own").display().to_string();
    let set_up = set_up.variable("CODEX_HOME", &folder);
    set_up.finds(Expected {
        level: "fault",
        subject: "Codex",
        cause: "no proxy runs there",
        remedy: "start it with plimsoll",
    });
    let _process = Process::run(|command| command.arg("--config").arg(set_up.file())).await;
    let (report, is_healthy) = set_up.examine();
    assert!(is_healthy, "{report:#}");
    assert!(
        report.to_string().contains(", where a proxy runs"),
        "{report:#}"
    );

    SetUp::new("")
        .variable("OPENAI_BASE_URL", &format!("{url}/v1"))
        .finds(dead("environment"));
}
