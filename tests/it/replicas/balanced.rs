//! Two processes with a real Redis behind HAProxy, turn by turn.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};

use futures_util::future::join_all;
use tempfile::TempDir;

use super::story::{STORIES, Story};
use crate::support::{Balancer, NO_CATALOGUE, Redis, RunningModel, TestClient};

/// Is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The real binary before the models of all stories.
struct Replica {
    address: SocketAddr,
    folder: TempDir,
    process: Killed,
    log: Option<JoinHandle<String>>,
}

impl Replica {
    fn start(ups: &[RunningModel], store: &str, secret: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        if let Some(secret) = secret {
            fs::copy(secret, data.join("secret")).unwrap();
        }
        let mut settings = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {data:?}\n\
             [store]\nurl = {store:?}\nencrypt_key_env = \"REPLICAS_KEY\"\n\
             timeout_ms = 20000\n\
             [guard]\nclear_tools = false\n"
        );
        for (story, up) in STORIES.iter().zip(ups) {
            let (name, window) = (story.name, story.claimed);
            settings.push_str(&format!(
                "[providers.{name}]\nbase_url = \"http://{}/v1\"\nauth = \"none\"\n\
                 profile = \"openai\"\nask_models = false\n\
                 [models.\"{name}/m\"]\ncontext_length = {window}\n\
                 optimal_max_tokens = {}\ncritical_max_tokens = {}\n",
                up.provider.address,
                window / 100 * 45,
                window / 100 * 60
            ));
        }
        let file = folder.path().join("config.toml");
        fs::write(&file, settings).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("--config")
            .arg(&file)
            .env("REPLICAS_KEY", "7e".repeat(32))
            .env("PLIMSOLL_LOG", "info")
            .envs(NO_CATALOGUE)
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Killed(child.unwrap());
        let mut log = BufReader::new(process.0.stderr.take().unwrap()).lines();
        let line =
            log.find_map(|line| Some(line.unwrap()).filter(|it| it.contains("listening on")));
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        Self {
            address: line["listen"].as_str().unwrap().parse().unwrap(),
            folder,
            process,
            log: Some(std::thread::spawn(move || {
                let rest: Vec<_> = log.map_while(Result::ok).collect();
                rest.join("\n")
            })),
        }
    }

    fn secret(&self) -> std::path::PathBuf {
        self.folder.path().join("data/secret")
    }

    /// Ends it; returns its log.
    fn end(mut self) -> String {
        self.process.0.kill().unwrap();
        self.log.take().unwrap().join().unwrap()
    }
}

/// HAProxy with an address for each story, so that each alternates by itself.
async fn start_balancer(replicas: &[Replica]) -> Balancer {
    let write_settings = |addresses: &[SocketAddr]| {
        let mut settings = "global\n  nbthread 1\ndefaults\n  mode http\n  timeout connect 5s\n  \
             timeout client 60s\n  timeout server 60s\n"
            .to_owned();
        for (story, address) in STORIES.iter().zip(addresses) {
            settings.push_str(&format!(
                "listen {}\n  bind {address}\n  balance roundrobin\n  \
                 http-response set-header x-served-by %s\n",
                story.name
            ));
            for (number, replica) in replicas.iter().enumerate() {
                settings.push_str(&format!("  server r{number} {}\n", replica.address));
            }
        }
        settings
    };
    Balancer::start(STORIES.len(), write_settings).await
}

/// The process that answered each turn of a story.
async fn play_story(story: &Story, up: &RunningModel, address: SocketAddr) -> Vec<String> {
    let mut agent = story.agent(TestClient::http1(address));
    let mut served = Vec::new();
    for _ in 0..story.generations {
        let generation = agent.step().await;
        let by = generation.answer.headers.get("x-served-by");
        served.extend(by.map(|by| by.to_str().unwrap().to_owned()));
    }
    story.is_told(up).await;
    served
}

async fn ups() -> Vec<RunningModel> {
    join_all(STORIES.iter().map(Story::start_model)).await
}

async fn bodies(up: &RunningModel) -> Vec<Vec<u8>> {
    let seen = up.provider.requests(0).await;
    seen.into_iter().map(|seen| seen.body).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_behind_a_balancer_answer_like_one() {
    let (alone, together) = (ups().await, ups().await);
    let one = Replica::start(&alone, "memory", None);
    let redis = Redis::start();
    let first = Replica::start(&together, &redis.url(), None);
    let second = Replica::start(&together, &redis.url(), Some(&first.secret()));
    let replicas = [first, second];
    let balancer = start_balancer(&replicas).await;
    let told = STORIES
        .iter()
        .zip(&alone)
        .map(|(story, up)| play_story(story, up, one.address));
    let retold = STORIES.iter().zip(&together).zip(&balancer.addresses);
    let retold = retold.map(|((story, up), address)| play_story(story, up, *address));
    let (told, retold) = tokio::join!(join_all(told), join_all(retold));
    assert!(told.iter().all(Vec::is_empty));
    for (story, served) in STORIES.iter().zip(&retold) {
        assert_eq!(served.len(), story.generations);
        let turns = served.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(turns && served.contains(&"r0".to_owned()), "{served:?}");
    }
    for ((story, alone), together) in STORIES.iter().zip(&alone).zip(&together) {
        let (one, both) = (bodies(alone).await, bodies(together).await);
        let differs = one.iter().zip(&both).position(|(one, both)| one != both);
        assert_eq!((differs, one.len()), (None, both.len()), "{}", story.name);
    }
    // Every look-up was answered.
    for replica in replicas {
        let log = replica.end();
        assert!(
            !log.contains("continues without its session state") && !log.contains("was not stored"),
            "{log}"
        );
    }
}
