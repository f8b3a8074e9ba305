//! Sessions of clients that speak in the user's place and edit their own history: in the shape of known clients
//! (`shapes`), and generated with edits of every kind (`edits`). Each request that reaches the provider is judged
//! (`judge`).

mod client;
pub(crate) mod edits;
pub(crate) mod judge;
mod provider;
pub(crate) mod shapes;
mod transcript;

pub(crate) use self::{
    judge::{Check, SessionRecord},
    transcript::Wire,
};

use plimsoll::guard::profile::find_profile;
use tokio::task::JoinSet;

use self::{
    provider::{Records, WorkHabits, lock, start_work},
    shapes::{ClientShape, ShapedSession},
};
use super::{
    agent::AgentGeneration,
    provider::ScriptedProvider,
    proxy::{ProxyBuilder, model_with_early_levels},
};

/// Sessions of one client at the same time, each with so many requests; what the provider saw of each.
pub(crate) async fn run_shaped(
    shape: ClientShape,
    wire: Wire,
    sessions: usize,
    requests: usize,
    window: u32,
) -> Vec<SessionRecord> {
    let words: Vec<String> = (0..sessions).map(|nth| name_ship(nth as u64, 0)).collect();
    let habits = WorkHabits {
        seed: 7,
        ends: 4,
        written: 600,
        writes_calls: shape.writes_calls(),
        repeats_ids: false,
    };
    let (provider, records) = start_work(wire, habits, &words).await;
    let proxy = proxy_for(&provider, wire)
        .model("*", model_with_early_levels(window))
        .start()
        .await;
    let mut running = JoinSet::new();
    for (place, word) in words.into_iter().enumerate() {
        let session = ShapedSession::new(shape, wire, &word, proxy.client(), place);
        running.spawn(drive_shaped(session, place, requests, records.clone()));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    let mut records = std::mem::take(&mut *lock(&records));
    judge::compare_ids(&mut records);
    records
}

async fn drive_shaped(mut session: ShapedSession, place: usize, requests: usize, records: Records) {
    let mut watch = AnswerWatch::default();
    for _ in 0..requests {
        let change = session.prepare();
        {
            let record = &mut lock(&records)[place];
            (record.change, record.newest) = (change, Some(session.newest()));
        }
        let generation = session.client.ask().await;
        let record = &mut lock(&records)[place];
        watch.judge(&generation, true, record);
        session.go_on(session.client.read(&generation));
    }
}

/// A proxy before a provider of this format.
fn proxy_for(provider: &ScriptedProvider, wire: Wire) -> ProxyBuilder {
    let profile = find_profile(wire.profile()).unwrap();
    provider.proxy().providers(move |it| it.profile = profile)
}

/// A word that no other session has.
fn name_ship(seed: u64, place: usize) -> String {
    format!("ship-{seed}-{place}-hull")
}

/// What answers told of a session.
#[derive(Debug)]
struct AnswerWatch {
    id: Option<String>,
    course: u32,
    told: Vec<String>,
}

impl Default for AnswerWatch {
    fn default() -> Self {
        Self {
            id: None,
            course: 1,
            told: Vec::new(),
        }
    }
}

impl AnswerWatch {
    /// Judges what an answer tells. Where the request need not continue the session, another one is no fault. Returns
    /// whether it is another session.
    fn judge(
        &mut self,
        generation: &AgentGeneration,
        must_continue: bool,
        record: &mut SessionRecord,
    ) -> bool {
        let id = generation.header("session").map(str::to_owned);
        let is_other = self.id.is_some() && self.id != id;
        if is_other && must_continue {
            record.fault(Check::Session, format!("{:?} follows {:?}", id, self.id));
        }
        record.id.clone_from(&id);
        self.id = id;
        let reminders = generation.number("reminders").unwrap_or(0) as usize;
        let kept = record.notes.len().max(record.blocks.min(1));
        if must_continue && reminders < kept {
            record.fault(
                Check::Told,
                format!("the answer tells {reminders} reminders of {kept}"),
            );
        }
        let told = told_changes(generation);
        let began = generation.course() > self.course;
        let left_out = record.notes.iter().find(|it| !record.shown.contains(it));
        let left_out = left_out.filter(|_| began).cloned();
        let has_new_cut = told != self.told;
        let missing = record.missing.take().filter(|_| !has_new_cut || is_other);
        if let Some(note) = missing.or(left_out).filter(|_| must_continue) {
            record.fault(Check::Notes, note);
        }
        if let Some(changed) = record.changed.take().filter(|_| !has_new_cut && !is_other) {
            record.fault(Check::Prefix, changed);
        }
        self.course = generation.course();
        self.told = told;
        is_other
    }
}

/// The cuts that an answer tells, and its course.
fn told_changes(generation: &AgentGeneration) -> Vec<String> {
    let actions = generation.header("actions").unwrap_or_default();
    let words = actions.split(',').map(str::trim);
    let told = words.filter(|word| {
        let name = word.split('=').next().unwrap_or_default();
        !["none", "clamped", "injected", "recalled"].contains(&name)
    });
    let course = generation.header("course").unwrap_or("1");
    told.map(str::to_owned)
        .chain([format!("course {course}")])
        .collect()
}
