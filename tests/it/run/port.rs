//! The port of a proxy that `plimsoll run` has started is nobody else's while a keeper lives.

use std::net::TcpListener;

use super::*;

/// A zombie is dead: its parent may sleep, or in a container there may be nobody to reap it.
fn is_dead(process: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

async fn kill_proxy(process: u64) {
    send_signal("KILL", process);
    wait_until(async || is_dead(process)).await;
}

/// Somebody else tries to get the port, while the keepers that hold it sleep and a client asks.
async fn assert_port_is_held(address: SocketAddr, keepers: &[u64], proxy: u64) {
    for keeper in keepers {
        send_signal("STOP", *keeper);
    }
    kill_proxy(proxy).await;
    let stranger = async {
        for _ in 0..50 {
            let taken = TcpListener::bind(address);
            assert!(taken.is_err(), "{address} was free");
            tokio::time::sleep(SOON / 50).await;
        }
        for keeper in keepers {
            send_signal("CONT", *keeper);
        }
    };
    // The request waits in the socket's queue until a proxy is there again.
    tokio::join!(assert_serves(address), stranger);
    assert!(TcpListener::bind(address).is_err());
}

#[tokio::test]
async fn a_request_waits_while_the_proxy_is_away_and_nobody_gets_its_port() {
    let home = Home::new();
    let mut client = home.run(ENDS_SOON);
    let address = client.address().await;
    let keeper = find_keeper(&client);
    for _ in 0..2 {
        let proxy = home.process();
        assert_port_is_held(address, &[keeper], proxy).await;
        assert_ne!(home.process(), proxy);
        let expected = format!("plimsoll: the proxy ended, and runs again at http://{address}");
        assert_eq!(client.said().await, expected);
    }
    client.end_with(0).await;
    wait_until(async || is_closed(address).await && home.proxy().is_none()).await;
    wait_until(async || is_dead(keeper)).await;
}

/// The keeper that has opened the socket ends with its client, or is killed. The other one got a copy from the proxy.
#[tokio::test]
async fn every_keeper_holds_the_port() {
    let home = Home::new();
    let (mut first, mut second) = (home.run(STAYS), home.run(STAYS));
    let address = first.address().await;
    assert_eq!(second.address().await, address);
    let keepers = [find_keeper(&first), find_keeper(&second)];
    assert_port_is_held(address, &keepers, home.process()).await;
    first.end_with(0).await;
    wait_until(async || is_dead(keepers[0])).await;
    let mut third = home.run(ENDS_SOON);
    assert_eq!(third.address().await, address);
    send_signal("KILL", keepers[1]);
    let left = find_keeper(&third);
    assert_port_is_held(address, &[left], home.process()).await;
    third.end_with(0).await;
    wait_until(async || is_closed(address).await && home.proxy().is_none()).await;
    second.end_with(0).await;
}

#[tokio::test]
async fn without_proxy_and_keeper_the_port_is_free_and_the_next_client_brings_the_proxy_back() {
    let home = Home::new();
    let mut client = home.run(STAYS);
    let address = client.address().await;
    let keeper = find_keeper(&client);
    send_signal("KILL", keeper);
    kill_proxy(home.process()).await;
    wait_until(async || is_closed(address).await).await;
    drop(TcpListener::bind(address).unwrap());
    let mut next = home.run(ENDS_SOON);
    assert_eq!(next.address().await, address);
    assert_serves(address).await;
    next.end_with(0).await;
    client.end_with(0).await;
}

#[tokio::test]
async fn the_client_has_no_socket_of_the_proxy() {
    let home = Home::new();
    let script = r#"for file in /proc/$$/fd/*; do readlink "$file"; done"#;
    let (status, printed, said) = finish(home.command(STAYS).args(["sh", "-c", script])).await;
    assert!(status.success(), "{said}");
    assert!(printed.contains("pipe:"), "{printed}");
    assert!(!printed.contains("socket:"), "{printed}");
}
