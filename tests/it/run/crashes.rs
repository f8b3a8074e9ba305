//! What is left of a crash, and who owns the port then.

use http::Method;
use tokio::net::TcpListener;

use super::*;
use crate::support::{COMPLETION, ScriptedProvider, answer};

#[tokio::test]
async fn a_proxy_that_dies_under_a_client_comes_back_at_its_port() {
    let home = Home::new();
    let (mut one, mut other) = (home.run(ENDS_SOON), home.run(ENDS_SOON));
    let address = one.address().await;
    other.address().await;
    let before = home.process();
    send_signal("KILL", before);
    let expected = format!("plimsoll: the proxy ended, and runs again at http://{address}");
    assert_eq!(one.said().await, expected);
    assert_eq!(other.said().await, expected);
    assert_serves(address).await;
    assert_ne!(home.process(), before);
    one.end_with(0).await;
    other.end_with(0).await;
    wait_until(async || is_closed(address).await && home.proxy().is_none()).await;
}

/// Of the user's own proxy, no keeper holds the port. The keeper sleeps meanwhile, so that somebody else is faster.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_is_stopped_where_its_port_is_taken() {
    let home = Home::new();
    let own = home.start_own().await;
    let mut client = home.run(STAYS);
    let address = client.address().await;
    let keeper = find_keeper(&client);
    send_signal("STOP", keeper);
    own.signal("KILL");
    own.wait_for_end().await;
    let stranger = TcpListener::bind(address).await.unwrap();
    send_signal("CONT", keeper);
    let (status, _, said) = client.wait().await;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(15), "{said}");
    let expected = format!(
        "plimsoll: the proxy at {address} ended: {address}: the address is in use; stop the program that listens there, or choose \
         another with --listen. The client was stopped, so that nothing of it goes elsewhere\n"
    );
    assert_eq!(said, expected);
    drop(stranger);
}

/// It answers everything, and gets nothing but the challenge.
#[tokio::test]
async fn a_stranger_at_the_recorded_address_gets_no_client() {
    let home = Home::new();
    let stranger =
        ScriptedProvider::start_answering(|_| vec![answer("200 OK", "", COMPLETION)]).await;
    let secret = "ab".repeat(32);
    let stale = serde_json::json!({
        "address": stranger.address, "process": 1, "settings": null, "secret": secret, "socket": "00",
    });
    fs::create_dir_all(home.data()).unwrap();
    let file = home.data().join("proxy.json");
    fs::write(&file, stale.to_string()).unwrap();
    // Believed only if it is its owner's alone.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&file, mode).unwrap();
    let mut client = home.run(ENDS_SOON);
    let address = client.address().await;
    assert_ne!(address, stranger.address);
    assert_serves(address).await;
    let asked = stranger.requests(1).await;
    let lines: Vec<_> = asked.iter().map(|asked| &*asked.line).collect();
    // It is asked for some seconds: a keeper could bring the proxy back there.
    let all_lines = lines
        .iter()
        .all(|line| *line == "GET /plimsoll/lease HTTP/1.1");
    assert!(!lines.is_empty() && all_lines, "{lines:?}");
    let mut headers = asked.iter().flat_map(|asked| &asked.headers);
    assert!(headers.all(|(_, value)| !value.contains(&secret)));
    assert_ne!(home.process(), 1);
    client.end_with(0).await;
}

#[tokio::test]
async fn what_a_crash_leaves_is_replaced() {
    let home = Home::new();
    fs::create_dir_all(home.data()).unwrap();
    for left in ["", "{\"address\":", "{}", "\u{0}"] {
        fs::write(home.data().join("proxy.json"), left).unwrap();
        let mut client = home.run(ENDS_SOON);
        let address = client.address().await;
        assert_serves(address).await;
        client.end_with(0).await;
        wait_until(async || home.proxy().is_none()).await;
    }
    let left: Vec<_> = fs::read_dir(home.data())
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with('.')),
        "{left:?}"
    );
}

#[tokio::test]
async fn the_file_is_its_owners_and_the_path_of_leases_is_none_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let mut client = home.run(STAYS);
    let address = client.address().await;
    for name in ["proxy.json", "run.log", "run.lock"] {
        let file = fs::metadata(home.data().join(name)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
    }
    let stranger = TestClient::http1(address);
    let path = "/plimsoll/lease";
    stranger.get(path).await.is_error(404, "path_not_found");
    let asked = stranger
        .request(Method::GET, path)
        .header("x-plimsoll-nonce", "n")
        .header("x-plimsoll-proof", "00".repeat(32));
    stranger
        .send_with(asked, "")
        .await
        .is_error(404, "path_not_found");
    client.end_with(0).await;
}
