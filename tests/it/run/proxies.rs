//! Which proxy a client gets: one of its own, that of another client, or that of the user.

use super::*;

#[tokio::test]
async fn two_at_once_share_a_proxy_which_outlives_one_that_is_killed() {
    let home = Home::new();
    let (mut one, mut other) = (home.run(ENDS_SOON), home.run(ENDS_SOON));
    let address = one.address().await;
    assert_eq!(other.address().await, address);
    let process = home.process();
    send_signal("KILL", one.child.id().into());
    one.wait().await;
    // Longer than a proxy without clients lives.
    tokio::time::sleep(SOON * 3).await;
    assert_serves(address).await;
    assert_eq!(home.process(), process);
    other.end_with(5).await;
    wait_until(async || is_closed(address).await && home.proxy().is_none()).await;
    assert!(!home.data().join("proxy.json").exists());
}

#[tokio::test]
async fn a_proxy_of_the_users_own_is_used_and_stays() {
    let home = Home::new();
    let own = home.start_own().await;
    let mut client = home.run(ENDS_SOON);
    assert_eq!(client.address().await, own.address);
    client.end_with(0).await;
    assert_serves(own.address).await;
    own.signal("TERM");
    assert!(own.wait_for_end().await.0.success());
    assert!(home.proxy().is_none(), "it has taken its file away");
}

#[tokio::test]
async fn a_proxy_of_other_settings_is_refused_by_name() {
    let home = Home::new();
    let mut client = home.run(STAYS);
    let address = client.address().await;
    let settings = home.folder.path().join("other.toml");
    fs::write(&settings, "[guard]\nreserve_tokens = 4321\n").unwrap();
    let mut other = home.command(STAYS);
    other
        .arg("--config")
        .arg(&settings)
        .args(["echo", "started"]);
    let (status, printed, said) = finish(&mut other).await;
    assert_eq!((status.code(), &*printed), (Some(1), ""));
    let expected = format!(
        "plimsoll: the proxy of this data directory runs at {address}, with no settings file: stop it (process {}), use \
         the same settings, or set another server.data_dir\n",
        home.process()
    );
    assert_eq!(said, expected);
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let home = Home::new();
    let (status, _, said) = finish(home.command(STAYS).arg("no-such-program")).await;
    assert_eq!(status.code(), Some(127));
    assert!(
        said.starts_with("plimsoll: no-such-program cannot be started: "),
        "{said}"
    );
    let (status, _, said) = finish(home.command(STAYS).arg("/etc/passwd")).await;
    assert_eq!(status.code(), Some(126), "{said}");
    let wrong = home.folder.path().join("wrong.toml");
    fs::write(&wrong, "[guard]\nreserve_tokens = \"many\"\n").unwrap();
    let mut command = home.command(STAYS);
    command
        .arg("--config")
        .arg(&wrong)
        .args(["echo", "started"]);
    let (status, printed, said) = finish(&mut command).await;
    assert_eq!((status.code(), &*printed), (Some(2), ""));
    assert!(said.contains("guard.reserve_tokens"), "{said}");
    let folder = home.folder.path().join("file");
    fs::write(&folder, "").unwrap();
    let mut command = home.command(STAYS);
    command
        .env("PLIMSOLL_SERVER__DATA_DIR", &folder)
        .args(["echo", "started"]);
    let (status, printed, said) = finish(&mut command).await;
    assert_eq!((status.code(), &*printed), (Some(1), ""));
    assert!(
        said.contains("cannot use") && said.contains("file"),
        "{said}"
    );
}

/// Not even root can make a file there.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_a_home_or_with_one_that_is_read_only_each_client_has_a_proxy_of_its_own() {
    let nowhere = Path::new("/proc/nowhere");
    let run = |with_home: bool| {
        let mut command = command_at(nowhere, ENDS_SOON);
        if !with_home {
            command.env_remove("HOME");
        }
        Running::start(command.args(["sh", "-c", CLIENT]))
    };
    let (mut one, mut other) = (run(true), run(false));
    let addresses = [one.address().await, other.address().await];
    assert_ne!(addresses[0], addresses[1]);
    for address in addresses {
        assert_serves(address).await;
    }
    one.end_with(0).await;
    other.end_with(0).await;
    for address in addresses {
        wait_until(async || is_closed(address).await).await;
    }
}

#[tokio::test]
async fn a_proxy_of_run_is_named_where_it_is_in_the_way() {
    let home = Home::new();
    let mut client = home.run(STAYS);
    let address = client.address().await;
    let name = format!(
        "the proxy of `plimsoll run` at http://{address} (process {}), which ends a minute after its last client: use that one, \
         or stop it (kill {0})",
        home.process()
    );
    let plimsoll = async |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        at_home(&mut command, home.folder.path())
            .envs(NO_CATALOGUE)
            .env("PLIMSOLL_SERVER__KNOWN_PROVIDERS", "false")
            .current_dir("/")
            .args(arguments);
        finish(&mut command).await
    };
    let (status, _, said) = plimsoll(&["--listen", "127.0.0.1:0"]).await;
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("in use by another process"), "{said}");
    assert!(said.ends_with(&format!("\nThat is {name}\n")), "{said}");
    let (status, _, said) = plimsoll(&["--listen", &address.to_string()]).await;
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("the address is in use"), "{said}");
    assert!(said.ends_with(&format!("\nThat is {name}\n")), "{said}");
    let (_, printed, said) = plimsoll(&["doctor", "--listen", "127.0.0.1:0"]).await;
    let warning = format!(
        "another process uses the sessions in {}: {name}\n",
        home.data().display()
    );
    assert!(printed.contains(&warning), "{printed}{said}");
}
