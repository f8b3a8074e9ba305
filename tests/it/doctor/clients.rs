//! Clients that point where no proxy is.

use super::*;

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
