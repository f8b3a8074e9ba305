//! A real `redis-server`, or a cluster of three, for one test. It writes nothing to disk and
//! listens on the loopback address only.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

/// How often to try another port when a free one is taken in the meantime.
const ATTEMPTS: usize = 20;

/// The password of the user `plimsoll`, with TLS.
pub(crate) const PASSWORD: &str = "sk-secret of the store/%@:";

pub(crate) struct Redis {
    program: &'static str,
    options: Vec<String>,
    port: u16,
    folder: TempDir,
    child: Child,
    tls: bool,
}

/// Installed servers with the Redis protocol; `redis-server` is required.
#[allow(clippy::print_stdout, reason = "the output names what was not tested")]
pub(crate) fn programs() -> Vec<&'static str> {
    assert!(
        installed("redis-server"),
        "redis-server is not installed: run tests/run, which installs it"
    );
    if installed("valkey-server") {
        return vec!["redis-server", "valkey-server"];
    }
    println!("valkey-server is not installed here; Redis alone is tested");
    vec!["redis-server"]
}

fn installed(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    asked.is_ok_and(|answer| answer.status.success())
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::with("redis-server", &[])
    }

    /// A server with more options.
    pub(crate) fn with(program: &'static str, options: &[&str]) -> Self {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self::launch(program, options, tempfile::tempdir().unwrap(), false)
    }

    /// A server with TLS, and `plimsoll` as its only user, with [`PASSWORD`].
    pub(crate) fn with_tls(program: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path(), "IP:127.0.0.1,DNS:localhost");
        let file = |name: &str| folder.path().join(name).display().to_string();
        let acl = format!(
            "user default off\nuser plimsoll on sanitize-payload ~mine:* resetchannels +@all \
             -@admin -@dangerous +info #{}\n",
            digest(PASSWORD)
        );
        fs::write(folder.path().join("users.acl"), acl).unwrap();
        let options = [
            ("--tls-cert-file", file("server.pem")),
            ("--tls-key-file", file("server.key")),
            ("--tls-auth-clients", "no".to_owned()),
            ("--aclfile", file("users.acl")),
        ];
        let options = options
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect();
        Self::launch(program, options, folder, true)
    }

    fn launch(program: &'static str, options: Vec<String>, folder: TempDir, tls: bool) -> Self {
        programs();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            if let Some(child) = run(program, &options, port, folder.path(), tls) {
                return Self {
                    program,
                    options,
                    port,
                    folder,
                    child,
                    tls,
                };
            }
        }
        panic!("{program} did not start");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The authority of the server's certificate.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The server's answer to a command.
    pub(crate) fn run_command(&self, command: &[&str]) -> String {
        let socket = self.folder.path().join("socket");
        let answer = Command::new("redis-cli")
            .arg("-s")
            .arg(socket)
            .args(command)
            .output()
            .unwrap();
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the killed server again, empty, at the same port.
    pub(crate) fn restart(&mut self) {
        let (folder, options) = (self.folder.path(), &self.options);
        let child =
            (0..ATTEMPTS).find_map(|_| run(self.program, options, self.port, folder, self.tls));
        self.child = child.expect("the port is still free");
    }

    /// Stops the process: it accepts connections and answers nothing until `resume`.
    pub(crate) fn stall(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three servers with a third of the slots each.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Redis>,
}

impl Cluster {
    pub(crate) async fn start(program: &'static str) -> Self {
        let node = || {
            let port = free_port().to_string();
            let options = ["--cluster-enabled", "yes", "--cluster-port", &port];
            (Redis::with(program, &options), port)
        };
        let nodes: Vec<_> = (0..3).map(|_| node()).collect();
        for ((node, _), slots) in
            nodes
                .iter()
                .zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")])
        {
            assert_eq!(
                node.run_command(&["cluster", "addslotsrange", slots.0, slots.1]),
                "OK"
            );
        }
        for (node, bus) in &nodes[1..] {
            let port = node.port.to_string();
            assert_eq!(
                nodes[0]
                    .0
                    .run_command(&["cluster", "meet", "127.0.0.1", &port, bus]),
                "OK"
            );
        }
        let cluster = Self {
            nodes: nodes.into_iter().map(|(node, _)| node).collect(),
        };
        wait_until(|| {
            let joined = |node: &Redis| {
                let info = node.run_command(&["cluster", "info"]);
                info.contains("cluster_state:ok") && info.contains("cluster_size:3")
            };
            cluster.nodes.iter().all(joined)
        })
        .await;
        cluster
    }
}

/// Waits for a condition that nothing announces.
pub(crate) async fn wait_until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
    waited.expect("the wait ends within 20 s");
}

/// A port that is free now; another process may take it.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The server once it accepts connections; `None` where it exited.
fn run(program: &str, options: &[String], port: u16, folder: &Path, tls: bool) -> Option<Child> {
    let (plain, secure) = if tls {
        ("0".to_owned(), port.to_string())
    } else {
        (port.to_string(), "0".to_owned())
    };
    let mut child = Command::new(program)
        .args(["--port", &plain, "--tls-port", &secure])
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--loglevel", "notice", "--logfile", "", "--daemonize", "no"])
        .arg("--dir")
        .arg(folder)
        .arg("--unixsocket")
        .arg(folder.join("socket"))
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = child.stdout.take().expect("it was asked for");
    let ready = |line: &str| line.to_lowercase().contains("ready to accept connections");
    let mut lines = BufReader::new(&mut said).lines();
    if lines.any(|line| line.is_ok_and(|line| ready(&line))) {
        // Kept open, since the server writes to it.
        child.stdout = Some(said);
        return Some(child);
    }
    let _ = child.wait();
    None
}

fn digest(password: &str) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(password))
}

/// An authority (`ca.pem`), and its certificate (`server.pem`, `server.key`) for these names.
pub(crate) fn make_certificates(folder: &Path, names: &str) {
    fs::write(
        folder.join("server.ext"),
        format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n"),
    )
    .unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for command in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"),
        format!("req {key} -keyout server.key -out server.csr -subj /CN=server"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
         -extfile server.ext -out server.pem"
            .to_owned(),
    ] {
        let done = Command::new("openssl")
            .args(command.split_whitespace())
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
}
