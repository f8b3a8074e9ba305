//! A real HAProxy.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use super::within_time;

/// How often to try other ports when free ones are taken in the meantime.
const ATTEMPTS: usize = 20;

/// Is killed when dropped.
pub(crate) struct Balancer {
    pub(crate) addresses: Vec<SocketAddr>,
    process: Child,
    _folder: TempDir,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Balancer {
    /// Starts it with so many addresses of its own, from which the settings are written.
    pub(crate) async fn start(
        count: usize,
        write_settings: impl Fn(&[SocketAddr]) -> String,
    ) -> Self {
        let installed = |program: &&str| {
            let asked = Command::new(program).arg("-v").output();
            asked.is_ok_and(|answer| answer.status.success())
        };
        let program = ["haproxy", "/usr/sbin/haproxy"].into_iter().find(installed);
        let program = program.expect("haproxy is installed, which tests/run does");
        for _ in 0..ATTEMPTS {
            if let Some(running) = Self::attempt(program, count, &write_settings).await {
                return running;
            }
        }
        panic!("haproxy did not start");
    }

    /// `None` where another process took one of the ports.
    async fn attempt(
        program: &str,
        count: usize,
        write_settings: impl Fn(&[SocketAddr]) -> String,
    ) -> Option<Self> {
        // All are held at the same time, so that they differ.
        let ports = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports: Vec<_> = ports.collect();
        let addresses = ports.iter().map(|port| port.local_addr().unwrap());
        let addresses: Vec<_> = addresses.collect();
        drop(ports);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("haproxy.cfg");
        fs::write(&file, write_settings(&addresses)).unwrap();
        let process = Command::new(program)
            .args(["-db", "-f"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut balancer = Self {
            addresses,
            process: process.unwrap(),
            _folder: folder,
        };
        let listens = within_time(async {
            loop {
                if balancer.process.try_wait().unwrap().is_some() {
                    return false;
                }
                let mut addresses = balancer.addresses.iter();
                if addresses.all(|address| TcpStream::connect(address).is_ok()) {
                    return true;
                }
                tokio::task::yield_now().await;
            }
        });
        listens.await.then_some(balancer)
    }
}
