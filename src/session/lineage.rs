//! The digest chain of a conversation: which stored state it continues.
//!
//! A client sends the whole conversation every time, so its messages are the key. `system` and
//! `developer` messages are left out, since they change with the time of day. The state after a
//! generation is stored under up to three keys; the next request probes them from its newest answer
//! to its oldest. It probes strict prefixes only, so a retry finds what the first try found and is
//! not counted twice.
//!
//! Reads digests of the index only, never text. No I/O here.
//!
//! | key | digest of | for clients that |
//! | --- | --- | --- |
//! | exact | all messages of the request, and the answer | echo the answer unchanged |
//! | gap | the messages up to the last answer, and the new answer | add remarks to their last message and remove them later |
//! | bare | all messages of the request, without the answer | echo the answer in another form; valid only while the request has one answer |
//!
//! Of two answers in a row, the second is probed by its exact key only: it may be half of an answer
//! that the client keeps as two messages. Auxiliary requests (titles, probes) store nothing.
//!
//! The chain begins with the tenant, whose digest is keyed with the installation's secret. The
//! messages are mixed in by a fast digest without a key: a client that finds a collision confuses
//! only sessions of its tenant.

use xxhash_rust::xxh3::xxh3_128;

use crate::{
    conversation::{Author, Conversation, Format},
    store::{StateKey, StateKeys, Tenant},
};

/// Newest answers that are probed.
const MAX_BOUNDARIES: usize = 256;

/// Keys of one request: those of the state it may continue, and those of the state it will store.
#[derive(Clone, Debug)]
pub struct Lineage {
    tenant: Tenant,
    format: Format,
    /// Digest of all messages.
    whole: u128,
    /// A state may be stored.
    stores: bool,
    /// Digest up to the last answer, if messages follow it.
    settled: Option<u128>,
    opening: u64,
    probes: Vec<StateKey>,
    /// For each probe, the messages before its answer, without system messages.
    answers: Vec<u32>,
    messages: u32,
}

impl Lineage {
    pub fn from_conversation(conversation: &Conversation, tenant: &Tenant) -> Self {
        let chain = DigestChain::from_conversation(conversation, tenant);
        let (probes, answers) = collect_probes(&chain.boundaries);
        let stores = chain.messages > 0 && !conversation.is_auxiliary();
        Self {
            tenant: *tenant,
            format: conversation.format,
            whole: chain.now,
            stores,
            settled: chain.settled.filter(|settled| *settled != chain.now),
            opening: chain.opening,
            probes,
            answers,
            messages: saturate_count(chain.messages),
        }
    }

    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub const fn format(&self) -> Format {
        self.format
    }

    /// Keys to look for, best first.
    pub fn probes(&self) -> &[StateKey] {
        &self.probes
    }

    /// Messages before the answer of a probe, without system messages; `None` for an unknown probe.
    pub fn answer_at(&self, probe: usize) -> Option<u32> {
        self.answers.get(probe).copied()
    }

    /// A digest of the first message. It separates conversations that a hint groups in one session,
    /// so that one does not evict the other's states.
    pub const fn opening(&self) -> u64 {
        self.opening
    }

    /// Messages of this request without system messages, which come and go within a lineage.
    pub const fn messages(&self) -> u32 {
        self.messages
    }

    /// Keys of the new state; `None` for auxiliary requests and those with system messages only.
    pub fn state_keys(&self, answer: u128) -> Option<StateKeys> {
        self.stores.then(|| StateKeys {
            exact: exact_key(self.whole, answer),
            gap: self.settled.map(|settled| gap_key(settled, answer)),
            bare: bare_key(self.whole),
        })
    }

    /// A key of the whole conversation that is no state's: the same for every try of a request.
    pub fn compaction_key(&self) -> StateKey {
        hash_key(4, &join_digests(self.whole, 0))
    }
}

/// An answer in the conversation, with the digests of the messages before it.
#[derive(Clone, Copy)]
struct AnswerBoundary {
    /// Over all messages before it, which is the request that it answered.
    before: u128,
    /// Over all up to the previous answer, if messages stand between.
    settled: Option<u128>,
    answer: u128,
    /// Messages before it, without system messages.
    at: u32,
    /// Directly after another answer: the request was prefilled, or the client split one answer
    /// into two messages. Only the exact key is probed; the others belong to the first of the row.
    in_row: bool,
}

struct DigestChain {
    now: u128,
    settled: Option<u128>,
    opening: u64,
    /// Messages without system messages.
    messages: usize,
    boundaries: Vec<AnswerBoundary>,
}

impl DigestChain {
    fn from_conversation(conversation: &Conversation, tenant: &Tenant) -> Self {
        let mut chain = Self {
            now: seed_chain(conversation.format, tenant),
            settled: None,
            opening: 0,
            messages: 0,
            boundaries: Vec::new(),
        };
        let (mut user_seen, mut after_answer) = (false, false);
        for message in &conversation.items {
            if message.author.is_system() {
                continue;
            }
            let is_answer = message.author == Author::Model;
            if is_answer && chain.messages > 0 {
                chain.boundaries.push(AnswerBoundary {
                    before: chain.now,
                    settled: chain.settled.filter(|settled| *settled != chain.now),
                    answer: message.short_digest,
                    at: saturate_count(chain.messages),
                    in_row: after_answer,
                });
            }
            chain.now = link_digest(chain.now, message.digest);
            chain.messages += 1;
            if chain.messages == 1 {
                // Half of a digest is enough to tell the conversations of one session apart.
                chain.opening = chain.now as u64;
            }
            user_seen |= message.author == Author::User;
            after_answer = is_answer;
            // Many conversations share a prefix without a user message, such as a greeting.
            if is_answer && user_seen {
                chain.settled = Some(chain.now);
            }
        }
        chain
    }
}

/// Start of the chain: the tenant and the format, since no conversation continues one of another
/// format. For chat completions it is the tenant alone, as stored before there were other formats.
fn seed_chain(format: Format, tenant: &Tenant) -> u128 {
    let tenant = u128::from_le_bytes(*tenant.id());
    match format as u8 {
        0 => tenant,
        number => link_digest(tenant, number.into()),
    }
}

/// All keys to look for, newest boundary first, each with the position of its answer. Within a
/// boundary, the most specific key comes first.
fn collect_probes(boundaries: &[AnswerBoundary]) -> (Vec<StateKey>, Vec<u32>) {
    let newest = boundaries.iter().rev().take(MAX_BOUNDARIES);
    let mut keys = Vec::with_capacity(3 * newest.len());
    let mut answers = Vec::with_capacity(3 * newest.len());
    for boundary in newest {
        keys.push(exact_key(boundary.before, boundary.answer));
        if !boundary.in_row {
            let settled = boundary.settled;
            keys.extend(settled.map(|settled| gap_key(settled, boundary.answer)));
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

/// The kind byte keeps the three kinds apart; the length, which differs from that of a link's
/// input, keeps keys and links apart.
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
