//! The loads: the requests to a peer during one turn, and their figures.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::{
    sync::{Mutex, Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};

use crate::{
    bodies::{BodySize, Mode, bodies},
    client::{LoadClient, PeerAddress, TimeReader, TimedAnswer, io_failure},
    figures::{Figure, FigureSample, LoadKind, quantile},
    growing::GrowingConversation,
    peers::{Peer, Speed},
};

pub(crate) struct PeerLoad {
    pub(crate) kind: LoadKind,
    pub(crate) size: BodySize,
    mode: Mode,
    light: bool,
    bodies: Vec<Bytes>,
    next: Arc<AtomicUsize>,
    /// Of each peer, those that none of its connections has.
    growing: parking_lot::Mutex<HashMap<&'static str, Vec<GrowingConversation>>>,
}

/// Time limit for all streams of a turn to have their first event.
const BEGINNING: Duration = Duration::from_secs(40);

/// Streams of [`LoadKind::Memory`].
pub(crate) const STREAMS: usize = 1_000;

impl PeerLoad {
    pub(crate) fn new(kind: LoadKind, size: BodySize, light: bool) -> Self {
        let mode = match kind {
            LoadKind::Latency | LoadKind::Busy | LoadKind::Open => Mode::Whole,
            kind if kind.grows() => Mode::Whole,
            LoadKind::Stream | LoadKind::Streams => Mode::Burst,
            LoadKind::Events => Mode::Paced,
            LoadKind::Flood => Mode::Endless,
            _ => Mode::Held,
        };
        Self {
            kind,
            size,
            mode,
            light,
            bodies: bodies(size, mode, light),
            next: Arc::default(),
            growing: parking_lot::Mutex::default(),
        }
    }

    /// The body of a request that belongs to no growing conversation.
    fn body(&self) -> Bytes {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.bodies[at % self.bodies.len()].clone()
    }

    /// Sends one unmeasured request, which wakes the peer and shows whether it accepts the load.
    ///
    /// # Errors
    /// If the peer refuses, or does not do what it stands for.
    pub(crate) async fn warm_up(&self, peer: &Peer) -> io::Result<()> {
        let mut client = LoadClient::new(peer.door.clone(), self.kind.format());
        if matches!(self.mode, Mode::Endless | Mode::Held) {
            let event = timeout(BEGINNING, first_event(&mut client, self.body())).await;
            return event
                .map_err(|_| io_failure("no event within 40 s"))?
                .map(drop);
        }
        let mut growing = self.take_growing(peer.name);
        let body = growing.as_mut().map(GrowingConversation::next_body);
        let body = body.unwrap_or_else(|| self.body());
        let answer = client.ask(body, self.mode).await?;
        let mut left = self.growing.lock();
        left.entry(peer.name).or_default().extend(growing);
        peer.check_actions(&answer.headers)
    }

    /// One turn of a peer. `rate` is that of [`LoadKind::Open`], in requests a second.
    pub(crate) async fn measure_turn(
        self: &Arc<Self>,
        peer: &Peer,
        length: Duration,
        rate: f64,
    ) -> io::Result<FigureSample> {
        match self.kind {
            LoadKind::Latency => {
                let (answers, _) = self.measure_closed_loop(peer, 1, length).await?;
                Ok(times(&answers, Figure::Median, Figure::Late))
            }
            LoadKind::Busy
            | LoadKind::Streams
            | LoadKind::Growing
            | LoadKind::GrowingMessages
            | LoadKind::GrowingResponses => self.measure_throughput(peer, length).await,
            LoadKind::Open => self.measure_open_loop(peer, length, rate).await,
            LoadKind::Stream => {
                let (answers, _) = self.measure_closed_loop(peer, 1, length).await?;
                let first = answers.iter().map(|it| it.first.as_secs_f64());
                let whole = answers.iter().map(|it| it.whole.as_secs_f64());
                Ok(FigureSample::from([
                    (Figure::First, quantile(first, 0.5)),
                    (Figure::Whole, quantile(whole, 0.5)),
                ]))
            }
            LoadKind::Events => {
                let (answers, _) = self.measure_closed_loop(peer, 4, length).await?;
                let events = || answers.iter().flat_map(|it| &it.events);
                let events = || events().map(Duration::as_secs_f64);
                Ok(FigureSample::from([
                    (Figure::Event, quantile(events(), 0.5)),
                    (Figure::EventLate, quantile(events(), 0.99)),
                ]))
            }
            LoadKind::Flood => self.measure_streams(peer, length).await,
            LoadKind::Memory => self.measure_memory(peer).await,
        }
    }

    /// A conversation for a connection, which goes on with it where an earlier one has left it.
    fn take_growing(&self, peer: &'static str) -> Option<GrowingConversation> {
        if !self.kind.grows() {
            return None;
        }
        let left = self.growing.lock().entry(peer).or_default().pop();
        let numbers = Arc::clone(&self.next);
        let number = move || numbers.fetch_add(1, Ordering::Relaxed);
        let begin = || GrowingConversation::new(self.kind.format(), self.size, self.light, number);
        Some(left.unwrap_or_else(begin))
    }

    /// Clients that send the next request after each answer, and the total time.
    async fn measure_closed_loop(
        self: &Arc<Self>,
        peer: &Peer,
        connections: usize,
        length: Duration,
    ) -> io::Result<(Vec<TimedAnswer>, Duration)> {
        // Made before the clock starts.
        let growing: Vec<_> = (0..connections)
            .map(|_| self.take_growing(peer.name))
            .collect();
        let begun = Instant::now();
        let mut clients = JoinSet::new();
        for mut conversation in growing {
            let (load, door, peer) = (Arc::clone(self), peer.door.clone(), peer.name);
            clients.spawn(async move {
                let mut client = LoadClient::new(door, load.kind.format());
                let mut answers = Vec::new();
                while begun.elapsed() < length {
                    let growing = conversation.as_mut();
                    let body = growing.map_or_else(|| load.body(), GrowingConversation::next_body);
                    answers.push(client.ask(body, load.mode).await?);
                }
                let mut growing = load.growing.lock();
                growing.entry(peer).or_default().extend(conversation);
                io::Result::Ok(answers)
            });
        }
        let mut all = Vec::new();
        while let Some(answers) = clients.join_next().await {
            all.extend(answers.map_err(io::Error::other)??);
        }
        Ok((all, begun.elapsed()))
    }

    async fn measure_throughput(
        self: &Arc<Self>,
        peer: &Peer,
        length: Duration,
    ) -> io::Result<FigureSample> {
        let connections = match peer.speed {
            Speed::Fast => 32,
            Speed::Middle => 16,
            Speed::Slow => 4,
        };
        let before = peer.cpu();
        let (answers, took) = self.measure_closed_loop(peer, connections, length).await?;
        let cpu = peer.cpu() - before;
        Ok(FigureSample::from([
            (Figure::Rate, answers.len() as f64 / took.as_secs_f64()),
            (Figure::Cpu, cpu / answers.len() as f64),
            (Figure::Share, cpu / took.as_secs_f64()),
        ]))
    }

    async fn measure_open_loop(
        self: &Arc<Self>,
        peer: &Peer,
        length: Duration,
        rate: f64,
    ) -> io::Result<FigureSample> {
        let (sender, receiver) = mpsc::unbounded_channel::<Instant>();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut clients = JoinSet::new();
        for _ in 0..64 {
            let (load, door) = (Arc::clone(self), peer.door.clone());
            let receiver = Arc::clone(&receiver);
            clients.spawn(async move {
                let (mut client, mut times) =
                    (LoadClient::new(door, load.kind.format()), Vec::new());
                loop {
                    // Locked in its own statement, or the lock would be held until the answer.
                    let due = receiver.lock().await.recv().await;
                    let Some(due) = due else {
                        return io::Result::Ok(times);
                    };
                    client.ask(load.body(), load.mode).await?;
                    times.push(due.elapsed().as_secs_f64());
                }
            });
        }
        let begun = Instant::now();
        for number in 0.. {
            let due = begun + Duration::from_secs_f64(f64::from(number) / rate);
            if due.duration_since(begun) >= length && number > 0 {
                break;
            }
            // Spins, since a timer would be late by up to a millisecond.
            while Instant::now() < due {
                tokio::task::yield_now().await;
            }
            sender.send(due).map_err(io::Error::other)?;
        }
        drop(sender);
        let mut times = Vec::new();
        while let Some(done) = clients.join_next().await {
            times.extend(done.map_err(io::Error::other)??);
        }
        Ok(FigureSample::from([
            (Figure::Median, quantile(times.iter().copied(), 0.5)),
            (Figure::Late, quantile(times.iter().copied(), 0.99)),
            (Figure::Asked, rate),
        ]))
    }

    /// Opens streams, and reads each to its first event.
    async fn with_open_streams<F>(
        self: &Arc<Self>,
        door: &PeerAddress,
        count: usize,
        then: impl Fn(LoadClient, hyper::body::Incoming) -> F,
    ) -> io::Result<JoinSet<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let slots = Arc::new(Semaphore::new(50));
        let mut opening = JoinSet::new();
        for _ in 0..count {
            let (load, door, slots) = (Arc::clone(self), door.clone(), Arc::clone(&slots));
            opening.spawn(async move {
                let _slot = slots.acquire().await.map_err(io::Error::other)?;
                let mut client = LoadClient::new(door, load.kind.format());
                let body = first_event(&mut client, load.body()).await?;
                io::Result::Ok((client, body))
            });
        }
        let mut streams = JoinSet::new();
        let mut begun = 0;
        let all = timeout(BEGINNING, async {
            while let Some(opened) = opening.join_next().await {
                let (client, body) = opened.map_err(io::Error::other)??;
                streams.spawn(then(client, body));
                begun += 1;
            }
            io::Result::Ok(())
        });
        let all = all.await;
        match all {
            Ok(done) => done.map(|()| streams),
            Err(_) => Err(io_failure(&format!(
                "{begun} of {count} streams began in 40 s"
            ))),
        }
    }

    async fn measure_streams(
        self: &Arc<Self>,
        peer: &Peer,
        length: Duration,
    ) -> io::Result<FigureSample> {
        let count = match peer.speed {
            Speed::Fast => 200,
            Speed::Middle => 40,
            Speed::Slow => 4,
        };
        let seen = Arc::new(AtomicUsize::new(0));
        let streams = self.with_open_streams(&peer.door, count, |client, mut body| {
            let seen = Arc::clone(&seen);
            async move {
                let (_client, mut reader) = (client, TimeReader::default());
                while let Some(Ok(frame)) = body.frame().await {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    reader.read(&data);
                    seen.fetch_add(reader.events.len(), Ordering::Relaxed);
                    reader.events.clear();
                }
            }
        });
        let streams = streams.await?;
        let (cpu, before) = (peer.cpu(), seen.load(Ordering::Relaxed));
        tokio::time::sleep(length).await;
        let events = seen.load(Ordering::Relaxed) - before;
        let cpu = peer.cpu() - cpu;
        if streams.len() < count || events == 0 {
            return Err(io_failure("streams without end have ended"));
        }
        Ok(FigureSample::from([(
            Figure::EventCpu,
            cpu / events as f64,
        )]))
    }

    async fn measure_memory(self: &Arc<Self>, peer: &Peer) -> io::Result<FigureSample> {
        let streams = self.with_open_streams(&peer.door, STREAMS, |client, mut body| async move {
            let _client = client;
            while let Some(Ok(_)) = body.frame().await {}
        });
        let mut streams = streams.await?;
        // Two more events of each.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let memory = peer.memory();
        if streams.try_join_next().is_some() {
            return Err(io_failure("an open stream has ended"));
        }
        Ok(FigureSample::from([(Figure::Open, memory)]))
    }
}

fn times(answers: &[TimedAnswer], median: Figure, late: Figure) -> FigureSample {
    let whole = || answers.iter().map(|it| it.whole.as_secs_f64());
    FigureSample::from([
        (median, quantile(whole(), 0.5)),
        (late, quantile(whole(), 0.99)),
    ])
}

async fn first_event(client: &mut LoadClient, body: Bytes) -> io::Result<hyper::body::Incoming> {
    let mut body = client.open(body).await?;
    let mut reader = TimeReader::default();
    while reader.events.is_empty() {
        let frame = body
            .frame()
            .await
            .ok_or_else(|| io_failure("a stream without an event"))?;
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            reader.read(&data);
        }
    }
    Ok(body)
}
