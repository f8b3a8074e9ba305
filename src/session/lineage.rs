//! The digest chain of a conversation: which stored state it continues.
//!
//! A client sends the whole conversation every time, so what was said is the key. `system` and
//! `developer` messages are left out: they change with the time of day. After a generation its
//! state is filed under up to three keys, and the next request asks for them from its newest
//! answer to its oldest. Only a strict prefix is ever asked for, so a retry of a request finds
//! what the first try found, and counts once.
//!
//! Never reads text: only the digests that the index made. No I/O here.
//!
//! | key | made of | for clients that |
//! | --- | --- | --- |
//! | exact | all messages of the request, and the answer | echo the answer as it was |
//! | gap | the messages up to the last answer, and the new answer | put remarks into their last message and take them out later |
//! | bare | all messages of the request, without the answer | spell the echoed answer otherwise; counts only while one answer was seen |
//!
//! Where two answers stand in a row, only the exact key counts for the second: it may be half of an answer that the
//! client keeps as two messages. Auxiliary requests (titles, probes) file nothing.
//!
//! The chain begins with the tenant, whose digest is keyed with the installation's secret. So the messages
//! themselves are mixed in by a fast digest without a key: whoever finds two texts with one digest confuses their
//! own sessions only.

use xxhash_rust::xxh3::xxh3_128;

use crate::{
    conversation::{Author, Conversation, Format},
    store::{StateKey, StateKeys, Tenant},
};

/// How many answers back an ancestor is looked for.
const MAX_BOUNDARIES: usize = 256;

/// Where one request stands: where to look for its ancestor, and where its own state will go.
#[derive(Clone, Debug)]
pub struct Lineage {
    tenant: Tenant,
    format: Format,
    /// Over all messages; `None` where nothing may be stored.
    whole: Option<u128>,
    /// Over all up to the last answer, where that is less than the whole.
    settled: Option<u128>,
    opening: u64,
    probes: Vec<StateKey>,
    /// For each probe, where the answer stands that it was made with: messages before it, system
    /// messages apart.
    answers: Vec<u32>,
    messages: u32,
}

impl Lineage {
    /// Reads the chain of a conversation.
    pub fn from_conversation(conversation: &Conversation, tenant: &Tenant) -> Self {
        let chain = DigestChain::from_conversation(conversation, tenant);
        let (probes, answers) = collect_probes(&chain.boundaries);
        let writes = chain.said > 0 && !conversation.is_auxiliary();
        Self {
            tenant: *tenant,
            format: conversation.format,
            whole: writes.then_some(chain.now),
            settled: chain.settled.filter(|settled| *settled != chain.now),
            opening: chain.opening,
            probes,
            answers,
            messages: saturate_count(chain.said),
        }
    }

    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub const fn format(&self) -> Format {
        self.format
    }

    /// What to look for, best first.
    pub fn probes(&self) -> &[StateKey] {
        &self.probes
    }

    /// Where the answer of a probe stands in this conversation: how many messages are before it,
    /// system messages apart. `None` where there is no such probe.
    pub fn answer_at(&self, probe: usize) -> Option<u32> {
        self.answers.get(probe).copied()
    }

    /// A digest of the first message: keeps apart conversations that were grouped in one session
    /// by a hint, so that one does not push the other's ancestors out.
    pub const fn opening(&self) -> u64 {
        self.opening
    }

    /// Messages of the client in this request, system messages apart: they come and go without
    /// breaking a lineage.
    pub const fn messages(&self) -> u32 {
        self.messages
    }

    /// Where the state goes once the answer is known; `None` for auxiliary requests, and where
    /// nothing but system messages was said.
    pub fn state_keys(&self, answer: u128) -> Option<StateKeys> {
        let whole = self.whole?;
        Some(StateKeys {
            exact: exact_key(whole, answer),
            gap: self.settled.map(|settled| gap_key(settled, answer)),
            bare: bare_key(whole),
        })
    }
}

/// An answer in the conversation, and what was said before it.
#[derive(Clone, Copy)]
struct AnswerBoundary {
    /// Over all messages before it: the request that it answered.
    before: u128,
    /// Over all up to the answer before it, where messages stand between.
    settled: Option<u128>,
    answer: u128,
    /// Messages mixed in before it.
    at: u32,
    /// Directly after another answer. Such a one may have been made from a prefilled request,
    /// or be the second half of an answer that the client keeps as two messages; so it counts
    /// only where the whole key matches, and the shorter ones stay with the first of the row.
    in_row: bool,
}

struct DigestChain {
    now: u128,
    settled: Option<u128>,
    opening: u64,
    /// Messages mixed in.
    said: usize,
    boundaries: Vec<AnswerBoundary>,
}

impl DigestChain {
    fn from_conversation(conversation: &Conversation, tenant: &Tenant) -> Self {
        let mut chain = Self {
            now: seed_chain(conversation.format, tenant),
            settled: None,
            opening: 0,
            said: 0,
            boundaries: Vec::new(),
        };
        let (mut user_seen, mut after_answer) = (false, false);
        for message in &conversation.items {
            if message.author.is_system() {
                continue;
            }
            let answers = message.author == Author::Model;
            if answers && chain.said > 0 {
                chain.boundaries.push(AnswerBoundary {
                    before: chain.now,
                    settled: chain.settled.filter(|settled| *settled != chain.now),
                    answer: message.short_digest,
                    at: saturate_count(chain.said),
                    in_row: after_answer,
                });
            }
            chain.now = link_digest(chain.now, message.digest);
            chain.said += 1;
            if chain.said == 1 {
                // Half of a digest is enough to tell the conversations of one session apart.
                chain.opening = chain.now as u64;
            }
            user_seen |= message.author == Author::User;
            after_answer = answers;
            // Without the task in it, a settled prefix would say nothing about the conversation.
            if answers && user_seen {
                chain.settled = Some(chain.now);
            }
        }
        chain
    }
}

/// What the chain of a tenant's conversations begins with: another one for each format, so that none continues
/// a conversation of another. That of chat completions is the tenant alone, as it was before there were others.
fn seed_chain(format: Format, tenant: &Tenant) -> u128 {
    let tenant = u128::from_le_bytes(*tenant.id());
    match format as u8 {
        0 => tenant,
        number => link_digest(tenant, number.into()),
    }
}

/// All keys to ask for, newest boundary first, and in it the most telling first.
/// Beside each, where its answer stands.
fn collect_probes(boundaries: &[AnswerBoundary]) -> (Vec<StateKey>, Vec<u32>) {
    let newest = boundaries.iter().rev().take(MAX_BOUNDARIES);
    let mut keys = Vec::with_capacity(3 * newest.len());
    let mut answers = Vec::with_capacity(3 * newest.len());
    for boundary in newest {
        keys.push(exact_key(boundary.before, boundary.answer));
        if !boundary.in_row {
            keys.extend(
                boundary
                    .settled
                    .map(|settled| gap_key(settled, boundary.answer)),
            );
            keys.push(bare_key(boundary.before));
        }
        answers.resize(keys.len(), boundary.at);
    }
    (keys, answers)
}

fn saturate_count(messages: usize) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}

fn link_digest(before: u128, digest: u128) -> u128 {
    xxh3_128(&join_digests(before, digest))
}

fn exact_key(whole: u128, answer: u128) -> StateKey {
    hash_key(1, &join_digests(whole, answer))
}

fn gap_key(settled: u128, answer: u128) -> StateKey {
    hash_key(2, &join_digests(settled, answer))
}

fn bare_key(whole: u128) -> StateKey {
    hash_key(3, &join_digests(whole, 0))
}

/// The kind stands in front, so that the three kinds never meet; the length differs from a
/// link's, so that no key is a link.
fn hash_key(kind: u8, pair: &[u8; 32]) -> StateKey {
    let mut input = [0; 33];
    input[0] = kind;
    input[1..].copy_from_slice(pair);
    StateKey::from_bytes(xxh3_128(&input).to_le_bytes())
}

fn join_digests(first: u128, second: u128) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&first.to_le_bytes());
    bytes[16..].copy_from_slice(&second.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests;
