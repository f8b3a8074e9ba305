//! What is wrong with this machine, the environment and the settings.

use super::*;

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
    let settings = |cause, remedy| Expected {
        level: "fault",
        subject: "settings",
        cause,
        remedy,
    };
    let set_up = SetUp::new("[guard]\nenabled = yes\n");
    set_up.finds(settings(
        "config.toml: line 8 is no TOML: ",
        "write what is expected there: ",
    ));
    fs::write(set_up.file(), "[server]\n[server]\n").unwrap();
    set_up.finds(settings("line 2 is no TOML: ", "correct it there"));
}
