//! What the clients of the table get. Stand-ins have the programs' names.

use super::*;

/// The user's own headers stay.
#[tokio::test]
async fn claude_gets_a_header_that_names_the_account_of_the_data_directory() {
    let home = Home::new();
    let claude = home.stand_in(
        "claude",
        r#"echo "$ANTHROPIC_BASE_URL"; echo "$ANTHROPIC_CUSTOM_HEADERS""#,
    );
    let run = async || {
        let mut command = home.command(STAYS);
        command
            .arg(&claude)
            .env("ANTHROPIC_CUSTOM_HEADERS", "x-mine: yes");
        finish(&mut command).await.1
    };
    let printed = run().await;
    let lines: Vec<_> = printed.lines().collect();
    let key = lines[2].strip_prefix("x-plimsoll-key: ").unwrap();
    assert_eq!((lines[1], key.len()), ("x-mine: yes", 32));
    assert_eq!(run().await, printed, "the same proxy and the same key");
    let secret = fs::read_to_string(home.data().join("secret")).unwrap();
    assert!(!secret.contains(key));
}

#[tokio::test]
async fn an_address_in_a_clients_file_is_named_where_it_counts_for_more() {
    let home = Home::new();
    let claude = home.stand_in("claude", "echo started");
    let project = home.folder.path().join("project");
    let below = project.join("below");
    for folder in [
        &home.folder.path().join(".claude"),
        &project.join(".git"),
        &below.join(".claude"),
    ] {
        fs::create_dir_all(folder).unwrap();
    }
    let settings = |url: &str| format!(r#"{{"env": {{"ANTHROPIC_BASE_URL": "{url}"}}}}"#);
    let users = home.folder.path().join(".claude/settings.json");
    let projects = below.join(".claude/settings.local.json");
    fs::write(&users, settings("http://127.0.0.1:1876")).unwrap();
    fs::write(&projects, settings("https://me:secret@gate.way/v1")).unwrap();
    let run = async || {
        let mut command = home.command(STAYS);
        finish(command.arg(&claude).current_dir(&below)).await
    };
    let (status, printed, said) = run().await;
    assert!(status.success(), "{said}");
    assert_eq!(printed, "started\n");
    let warning = |path: &Path, address: &str| {
        format!(
            "plimsoll: Claude Code goes around the proxy: {} sets ANTHROPIC_BASE_URL to {address}, which counts for more. Take \
             that line out (`plimsoll disconnect claude-code`, if `connect --write` has set it)\n",
            path.display()
        )
    };
    assert_eq!(
        said,
        warning(&users, "http://127.0.0.1:1876") + &warning(&projects, "https://gate.way")
    );
    // The address of the proxy itself is none.
    let address = home.proxy().unwrap()["address"]
        .as_str()
        .unwrap()
        .to_owned();
    fs::write(&users, settings(&format!("http://{address}/"))).unwrap();
    fs::remove_file(&projects).unwrap();
    assert_eq!(run().await.2, "");
}

/// aider reads its files after the variables, and before the arguments. pi reads no `--extension=FILE`.
#[tokio::test]
async fn aider_and_pi_get_what_their_files_cannot_undo() {
    let home = Home::new();
    let print = r#"for argument; do echo "$argument"; done"#;
    let run = async |name: &str| {
        let program = home.stand_in(name, print);
        let (status, printed, said) = finish(home.command(STAYS).arg(program).arg("own")).await;
        assert!(status.success(), "{said}");
        printed
    };
    let aider = run("aider").await;
    let base = format!(
        "http://{}/v1",
        home.proxy().unwrap()["address"].as_str().unwrap()
    );
    assert_eq!(aider, format!("--openai-api-base={base}\nown\n"));
    let file = home.data().join("pi-extension.js");
    assert_eq!(
        run("pi").await,
        format!("--extension\n{}\nown\n", file.display())
    );
    assert!(
        fs::read_to_string(file)
            .unwrap()
            .contains("registerProvider")
    );
}
