//! The digest chain of a conversation: which stored state it continues.
//!
//! A client sends the whole conversation every time, so the messages are the key. `system` and `developer` messages
//! are left out, since they change with the time of day. The state after a generation is stored under up to three
//! keys. The next request probes such keys for each of its answers, from the newest to the oldest. It never probes the
//! keys of the whole conversation: so a retry finds the state that the first try found, and is not counted twice.
//!
//! If no key of the newest answers fits, then the client may have edited its history. In this case, the state is looked for
//! by loose keys: one key of an answer alone, and one of an answer and the answer before it. Loose keys cover no other
//! message. Therefore a state that they find is compared with the conversation before it is used
//! ([`crate::session::edited_history`]).
//!
//! If the provider holds the history, then a request names the answer that it continues (`previous_message_id` of a thread,
//! `previous_response_id`). The state is found by a key of that id alone. The places in the state are of no use here, since
//! the request does not hold the messages that they count.
//!
//! This module reads digests of the index, never text. No I/O here.
//!
//! | key | digest of | for clients that |
//! | --- | --- | --- |
//! | exact | all messages of the request, and the answer | echo the answer unchanged |
//! | gap | the messages up to the last answer, and the new answer | add remarks to their last message and remove them later |
//! | bare | all messages of the request, without the answer | echo the answer in another form; valid only while the request has one answer |
//!
//! Of two answers in a row, the second is probed by its exact key only: it may be half of an answer that the client
//! keeps as two messages. Auxiliary requests (titles, probes) store nothing.
//!
//! The chain begins with the tenant, whose digest is keyed with the installation's secret. A fast digest without a key
//! mixes the messages in: a client that finds a collision confuses only sessions of its own tenant.

use xxhash_rust::xxh3::xxh3_128;

use crate::{
    conversation::{Author, Conversation, Format, answer_digest},
    format::digest_id,
    store::{LOOSE_OPENING, LooseKeys, StateKey, StateKeys, Tenant},
};

/// Newest answers that are probed.
const MAX_BOUNDARIES: usize = 256;
/// Newest answers that are looked for by loose keys.
const MAX_LOOSE: usize = 8;

/// Members other than the messages that are part of the prompt, in all formats.
const PROMPT_FIELDS: [&str; 4] = ["system", "instructions", "tools", "functions"];

/// Keys of one request: of the state that it may continue, and of the state that it will store.
#[derive(Clone, Debug)]
pub struct Lineage {
    pub tenant: Tenant,
    pub format: Format,
    /// Digest of all messages.
    whole: u128,
    /// A state may be stored.
    pub(super) stores: bool,
    /// Digest of the messages up to the last answer, if messages follow that answer.
    settled: Option<u128>,
    /// A digest of the first message. It separates the conversations that a hint groups in one session, so that no
    /// conversation evicts another one's states.
    pub opening: u64,
    /// Keys to look for, best first.
    pub probes: Vec<StateKey>,
    /// The answer of each probe.
    answers: Vec<ProbedAnswer>,
    /// Messages of this request. System messages do not count, since they come and go within a lineage.
    pub messages: u32,
    /// The start of the chain.
    seed: u128,
    /// The digest of the newest answer; 0 if there is no answer.
    last_answer: u128,
    /// The provider holds the history, so the next request may continue from the id of the answer alone.
    is_held: bool,
    /// The request names the answer that it continues, and may hold nothing else of the earlier conversation.
    names_previous: bool,
    /// The answers to look for by loose keys, newest first.
    pub(super) loose: Vec<LooseProbe>,
    /// Number of messages up to the last answer of this request; 1 if there is no answer. If a session begins with this
    /// request, it may share these messages with other sessions.
    pub(super) shared: u32,
}

/// The answer of a probe.
#[derive(Clone, Copy, Debug)]
struct ProbedAnswer {
    /// Messages before it, without system messages.
    at: u32,
    /// The index of its item, if the key covers all messages before it: then the sketch of the state can be extended.
    answer_item: Option<usize>,
}

/// An answer that is looked for by loose keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct LooseProbe {
    pub(super) keys: LooseKeys,
    /// Its index among the items.
    pub(super) item: usize,
    /// Messages before it, without system messages.
    pub(super) at: u32,
}

impl Lineage {
    pub fn from_conversation(conversation: &Conversation, tenant: &Tenant) -> Self {
        let seed = seed_chain(conversation.format, tenant);
        let previous = conversation.find_previous_answer();
        let previous = previous.map(|id| id_key(seed, digest_id(id.as_bytes())));
        let start = previous.map_or(seed, |key| link_digest(seed, xxh3_128(key.as_bytes())));
        let (mut whole, mut last_answer, mut shared) = (start, 0, 1);
        let (mut settled, mut opening, mut messages) = (None, 0, 0_u32);
        let (mut user_seen, mut after_answer) = (false, false);
        let mut boundaries = Vec::new();
        for (item, message) in conversation.items.iter().enumerate() {
            if message.author.is_system() {
                continue;
            }
            let is_answer = message.author == Author::Model;
            if is_answer && messages > 0 {
                boundaries.push(AnswerBoundary {
                    before: whole,
                    settled: settled.filter(|settled| *settled != whole),
                    answer: message.short_digest,
                    at: messages,
                    in_row: after_answer,
                    previous: last_answer,
                    item,
                });
            }
            whole = link_digest(whole, message.digest);
            messages = messages.saturating_add(1);
            if messages == 1 {
                // Half of a digest is enough to tell the conversations of one session apart.
                opening = whole as u64;
            }
            user_seen |= message.author == Author::User;
            after_answer = is_answer;
            if is_answer {
                (last_answer, shared) = (message.short_digest, messages);
            }
            // Many conversations share a prefix without a user message, such as a greeting.
            if is_answer && user_seen {
                settled = Some(whole);
            }
        }
        let (mut probes, mut answers) = collect_probes(&boundaries);
        if let Some(key) = previous {
            // The request does not hold the messages before the named answer, so all states of such a chain share one
            // opening.
            (opening, probes) = (LOOSE_OPENING, vec![key]);
            answers = vec![ProbedAnswer {
                at: 0,
                answer_item: None,
            }];
            boundaries.clear();
        }
        let newest = boundaries.iter().rev().take(MAX_LOOSE);
        let loose = newest.filter(|boundary| boundary.answer != answer_digest(0, &[]));
        let loose = loose.map(|boundary| LooseProbe {
            keys: loose_keys(seed, boundary.previous, boundary.answer),
            item: boundary.item,
            at: boundary.at,
        });
        Self {
            tenant: *tenant,
            format: conversation.format,
            whole,
            stores: messages > 0 && !conversation.is_auxiliary(),
            settled: settled.filter(|settled| *settled != whole),
            opening,
            probes,
            answers,
            messages,
            seed,
            last_answer,
            is_held: previous.is_some() || !conversation.sends_history(),
            names_previous: previous.is_some(),
            loose: loose.collect(),
            shared,
        }
    }

    /// Messages before the answer of a probe, without system messages; `None` for an unknown probe.
    pub fn answer_at(&self, probe: usize) -> Option<u32> {
        self.answers.get(probe).map(|answer| answer.at)
    }

    /// The index of the item of a probe's answer, if all messages before it are those of the request that it answered.
    pub(super) fn find_answer_item(&self, probe: usize) -> Option<usize> {
        self.answers.get(probe)?.answer_item
    }

    /// Keys of the new state; `None` if nothing is stored, as for auxiliary requests and those with system messages only.
    pub fn state_keys(&self, answer: u128) -> Option<StateKeys> {
        self.stores.then(|| StateKeys {
            exact: exact_key(self.whole, answer),
            gap: self.settled.map(|settled| gap_key(settled, answer)),
            bare: bare_key(self.whole),
        })
    }

    /// The loose keys of the new state. If the next request may hold nothing but the answer's `id`, then the second key is
    /// made from that id. An empty answer has no key of its own, since many answers are empty; `None` if there is no key of
    /// the id either.
    pub(super) fn loose_keys(&self, answer: u128, id: Option<u128>) -> Option<LooseKeys> {
        let has_content = answer != answer_digest(0, &[]);
        let id = id.filter(|_| self.is_held);
        let id = id.map(|id| id_key(self.seed, id));
        let keys = has_content.then(|| loose_keys(self.seed, self.last_answer, answer));
        match (keys, id) {
            // This state covers only the messages that the request adds. Therefore only the id may find it: no request with
            // a whole history may continue it.
            (_, id) if self.names_previous => id.map(|id| [id; 2]),
            (Some([alone, _]), Some(id)) => Some([alone, id]),
            (keys, id) => keys.or(id.map(|id| [id; 2])),
        }
    }

    /// Whether a state may be stored.
    pub const fn stores_state(&self) -> bool {
        self.stores
    }

    /// Digests the prompt: all messages, including system messages, and the members in `PROMPT_FIELDS` as they are spelled.
    pub fn digest_prompt(&self, conversation: &Conversation) -> u128 {
        let system = conversation.items.iter();
        let system = system.filter(|item| item.author.is_system());
        let digest = system.fold(self.whole, |digest, item| link_digest(digest, item.digest));
        PROMPT_FIELDS.iter().fold(digest, |digest, name| {
            let value = conversation.find_field(name);
            let value = value.map(|field| conversation.span_bytes(field.value));
            link_digest(digest, xxh3_128(value.unwrap_or_default()))
        })
    }

    /// A key of the whole conversation for its summary. It is the same for every try of a request, and no state has it.
    pub fn compaction_key(&self) -> StateKey {
        hash_key(4, &join_digests(self.whole, 0))
    }
}

/// An answer in the conversation, with the digests of the messages before it.
#[derive(Clone, Copy)]
struct AnswerBoundary {
    /// The digest of all messages before the answer, which are those of the request that it answered.
    before: u128,
    /// The digest of all messages up to the previous answer, if there are messages between the two answers.
    settled: Option<u128>,
    answer: u128,
    /// Messages before the answer, without system messages.
    at: u32,
    /// The answer directly follows another one: the request was prefilled, or the client split one answer into two
    /// messages. Only its exact key is probed; the other keys belong to the first answer of the row.
    in_row: bool,
    /// The digest of the answer before it; 0 if there is none.
    previous: u128,
    /// Its index among the items.
    item: usize,
}

/// The start of the chain: the tenant and the format, since no conversation continues one of another format. For chat
/// completions it is the tenant alone, so that states from before there were other formats are found.
fn seed_chain(format: Format, tenant: &Tenant) -> u128 {
    let tenant = u128::from_le_bytes(*tenant.id());
    match format as u8 {
        0 => tenant,
        number => link_digest(tenant, number.into()),
    }
}

/// All keys to look for, each with the position of its answer. The newest answer comes first, and of one answer the
/// most specific key.
fn collect_probes(boundaries: &[AnswerBoundary]) -> (Vec<StateKey>, Vec<ProbedAnswer>) {
    let newest = boundaries.iter().rev().take(MAX_BOUNDARIES);
    let probes = newest.flat_map(|boundary| {
        let (at, before, answer) = (boundary.at, boundary.before, boundary.answer);
        let probe = |key, answer_item| (key, ProbedAnswer { at, answer_item });
        let all = Some(boundary.item);
        let others = (!boundary.in_row).then(|| {
            let gap = boundary.settled.map(|settled| gap_key(settled, answer));
            [
                gap.map(|key| probe(key, None)),
                Some(probe(bare_key(before), all)),
            ]
        });
        let exact = Some(probe(exact_key(before, answer), all));
        std::iter::once(exact)
            .chain(others.into_iter().flatten())
            .flatten()
    });
    probes.unzip()
}

/// `before`: the digest of the answer before this one; 0 if there is none.
fn loose_keys(seed: u128, before: u128, answer: u128) -> LooseKeys {
    let alone = hash_key(5, &join_digests(seed, answer));
    match before {
        0 => [alone; 2],
        _ => {
            let pair = join_digests(link_digest(seed, before), answer);
            [alone, hash_key(6, &pair)]
        }
    }
}

fn id_key(seed: u128, id: u128) -> StateKey {
    hash_key(7, &join_digests(seed, id))
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

/// A kind byte distinguishes the kinds of keys. No key equals a link of the chain, whose input is one byte shorter.
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
