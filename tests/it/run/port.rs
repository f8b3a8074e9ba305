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

/// Also where the next client comes while the keeper brings back a proxy that was stopped.
#[tokio::test]
async fn the_next_client_gets_the_proxy_that_comes_back() {
    let home = Home::new();
    let mut first = home.run(STAYS);
    let address = first.address().await;
    for _ in 0..2 {
        let proxy = home.process();
        send_signal("TERM", proxy);
        let mut next = home.run(STAYS);
        assert_eq!(next.address().await, address);
        wait_until(async || home.process() != proxy).await;
        assert_serves(address).await;
        next.end_with(0).await;
    }
    first.end_with(0).await;
}

#[tokio::test]
async fn without_proxy_and_keeper_the_port_is_free_and_the_next_client_brings_the_proxy_back() {
    let home = Home::new();
    // No other test listens at this address, and takes a port that is free for a moment.
    let mut command = home.command(STAYS);
    command.args(["--listen", "127.0.0.77:0", "sh", "-c", CLIENT]);
    let mut client = Running::start(&mut command);
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

/// The inode of a listening socket, as `/proc/net/tcp` has it.
fn find_inode(address: SocketAddr) -> String {
    let (port, listens) = (format!(":{:04X}", address.port()), "0A");
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let mut sockets = sockets
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = sockets.find(|socket| socket[1].ends_with(&port) && socket[3] == listens);
    found.unwrap()[9].to_owned()
}

#[tokio::test]
async fn the_client_has_no_socket_of_the_proxy() {
    let home = Home::new();
    let script = r#"echo "$OPENAI_BASE_URL"; for file in /proc/$$/fd/*; do readlink "$file"; done; echo end; read line"#;
    let mut client = Running::start(home.command(STAYS).args(["sh", "-c", script]));
    let socket = format!("socket:[{}]", find_inode(client.address().await));
    let mut files = Vec::new();
    while files.last().is_none_or(|file| file != "end") {
        files.push(client.line().await);
    }
    assert!(files.len() > 3 && !files.contains(&socket), "{files:?}");
    let keeper = find_keeper(&client);
    let mut kept = fs::read_dir(format!("/proc/{keeper}/fd")).unwrap();
    let is_it = |link: PathBuf| link.to_str() == Some(&*socket);
    assert!(kept.any(|file| fs::read_link(file.unwrap().path()).is_ok_and(is_it)));
}
