//! Seeded conversations that resemble recorded ones: the same seed, shape and size give the same
//! bytes on every platform. Every body is valid JSON (with lone surrogates, which some parsers
//! refuse) and a valid conversation for OpenAI's grammar; with [`Recipe::strict`], for every
//! provider's.
//!
//! Tests and benches use it; the benches include this folder by its path.

mod any;
pub(crate) mod figures;
pub(crate) mod notes;
pub(crate) mod prose;
pub(crate) mod random;
mod scene;
mod shape;
mod things;
pub(crate) mod tongues;
mod words;
mod write;

pub(crate) use any::{GeneratedCase, any_conversation};
pub(crate) use random::Random;
pub(crate) use shape::{SHAPES, Shape};
pub(crate) use write::{Escapes, JsonSpelling, Space};

use std::{borrow::Cow, ops::Range};

use scene::Scene;
use serde_json::value::RawValue;
use write::{Json, JsonWriter};

/// Where a conversation ends: at the last request before this limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversationSize {
    Messages(usize),
    /// Bytes of the whole body, accurate to an eighth from 1 KB on.
    Bytes(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    pub(crate) shape: Shape,
    pub(crate) spelling: JsonSpelling,
    /// Only what the strictest profile accepts: one leading system message, alternating roles, no
    /// user message directly after a tool result.
    pub(crate) strict: bool,
    /// Length of all texts, in hundredths of the usual length.
    pub(crate) scale: u32,
    /// The client puts texts of its own behind results.
    pub(crate) notes: bool,
}

impl Recipe {
    pub(crate) const fn new(shape: Shape) -> Self {
        Self {
            shape,
            spelling: JsonSpelling::PLAIN,
            strict: false,
            scale: 100,
            notes: false,
        }
    }
}

/// A conversation with all its requests, rendered once: a message has the same bytes in every body
/// of the session.
#[derive(Clone)]
pub(crate) struct Session {
    /// The body up to and including the bracket that opens `messages`.
    head: Vec<u8>,
    messages: Vec<Vec<u8>>,
    separator: Vec<u8>,
    /// The body from the bracket that closes `messages`.
    tail: Vec<u8>,
    /// Counts of messages at which a client sends a request.
    points: Vec<usize>,
}

impl Session {
    /// A session of about that size.
    pub(crate) fn new(seed: u64, recipe: Recipe, size: ConversationSize) -> Self {
        let mut random = Random::for_part(seed, 1);
        let target = match size {
            ConversationSize::Bytes(bytes) => Some(bytes),
            ConversationSize::Messages(_) => None,
        };
        Self::from_unit_source(seed, recipe, target, |messages, bytes| {
            let more = match size {
                ConversationSize::Messages(limit) => messages < limit,
                ConversationSize::Bytes(limit) => bytes * 100 < limit * 97,
            };
            more.then(|| random.next())
        })
        .end_by(size)
    }

    /// One message or step for each of `units`, each with its own seed, so that leaving some out
    /// does not change the others.
    pub(crate) fn from_units(seed: u64, recipe: Recipe, units: &[u64]) -> Self {
        let mut units = units.iter().copied();
        Self::from_unit_source(seed, recipe, None, |_, _| units.next())
    }

    /// A recorded body as the session that led to it: a request before each assistant message.
    /// `None` where no message can be the end of a request.
    pub(crate) fn from_recorded(body: &[u8]) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct RecordedSessionBody<'a> {
            #[serde(borrow)]
            messages: Vec<&'a RawValue>,
        }
        #[derive(serde::Deserialize)]
        struct RecordedMessage<'a> {
            #[serde(borrow)]
            role: Cow<'a, str>,
        }
        let parsed: RecordedSessionBody<'_> = serde_json::from_slice(body).ok()?;
        let role = |raw: &RawValue| {
            serde_json::from_str::<RecordedMessage<'_>>(raw.get())
                .map_or_else(|_| String::new(), |message| message.role.into_owned())
        };
        let roles: Vec<String> = parsed.messages.iter().map(|raw| role(raw)).collect();
        Self::from_entries(body, &parsed.messages, &roles)
    }

    /// The session that led to the body of a Responses request, without a call at its end.
    pub(crate) fn from_responses(body: &[u8]) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct ResponsesBody<'a> {
            #[serde(borrow)]
            input: Vec<&'a RawValue>,
        }
        #[derive(serde::Deserialize)]
        struct ResponsesEntry {
            #[serde(default, rename = "type")]
            kind: String,
            #[serde(default)]
            role: String,
        }
        let parsed: ResponsesBody<'_> = serde_json::from_slice(body).ok()?;
        let role = |raw: &RawValue| {
            let entry: ResponsesEntry = serde_json::from_str(raw.get()).expect("an entry");
            match entry.kind.as_str() {
                "reasoning" | "program" => "assistant".to_owned(),
                kind if kind.ends_with("_call") => "assistant".to_owned(),
                kind if kind.ends_with("_output") => "tool".to_owned(),
                _ => entry.role,
            }
        };
        let roles: Vec<String> = parsed.input.iter().map(|raw| role(raw)).collect();
        Self::from_entries(body, &parsed.input, &roles)
    }

    fn from_entries(body: &[u8], entries: &[&RawValue], roles: &[String]) -> Option<Self> {
        let asks = |at: usize| {
            let answered = roles.get(at).is_none_or(|next| next == "assistant");
            answered && matches!(roles[at - 1].as_str(), "user" | "tool" | "function")
        };
        let points: Vec<usize> = (1..=roles.len()).filter(|&at| asks(at)).collect();
        let (first, last) = (entries.first()?, entries.last()?);
        let place = |raw: &RawValue| raw.get().as_ptr() as usize - body.as_ptr() as usize;
        (!points.is_empty()).then(|| Self {
            head: body[..place(first)].to_vec(),
            tail: body[place(last) + last.get().len()..].to_vec(),
            separator: b",".to_vec(),
            messages: entries
                .iter()
                .map(|raw| raw.get().as_bytes().to_vec())
                .collect(),
            points,
        })
    }

    /// The same session with an answer cap in every request.
    pub(crate) fn asking_for(&self, tokens: u32) -> Self {
        let mut session = self.clone();
        let start = session.head.iter().position(|&byte| byte == b'{');
        let cap = format!("\"max_completion_tokens\" : {tokens},");
        let at = start.map_or(0, |start| start + 1);
        session.head.splice(at..at, cap.into_bytes());
        session
    }

    fn from_unit_source(
        seed: u64,
        recipe: Recipe,
        target: Option<usize>,
        mut next: impl FnMut(usize, usize) -> Option<u64>,
    ) -> Self {
        let mut random = Random::for_part(seed, 2);
        let mut scene = Scene::new(seed, recipe, target);
        let fields = scene.fields(&mut random);
        let mut session = Self::with_fields(seed, recipe, fields);
        let mut bytes = session.head.len() + session.tail.len();
        scene.begin(seed);
        loop {
            for message in scene.messages.drain(..) {
                let salt = 1000 + session.messages.len() as u64;
                let mut writer = JsonWriter::new(recipe.spelling, Random::for_part(seed, salt));
                writer.value(&message, 2);
                bytes += writer.out.len() + session.separator.len();
                session.messages.push(writer.out);
            }
            if scene.asks() {
                session.points.push(session.messages.len());
            }
            scene.left = target.map(|target| target.saturating_sub(bytes));
            match next(session.messages.len(), bytes) {
                Some(unit) => scene.unit(unit),
                None if session.points.is_empty() => scene.ask(seed),
                None => break,
            }
        }
        session
    }

    /// The fields around `messages`, as bytes.
    fn with_fields(seed: u64, recipe: Recipe, fields: Vec<(&'static str, Json)>) -> Self {
        let mut writer = JsonWriter::new(recipe.spelling, Random::for_part(seed, 3));
        let order = writer.order(fields.len());
        let (mut head, mut separator) = (Vec::new(), Vec::new());
        writer.open(b'{', 1, false);
        for (at, place) in order.into_iter().enumerate() {
            if at > 0 {
                writer.comma(1);
            }
            let (key, value) = &fields[place];
            if *key == "messages" {
                writer.key(key);
                writer.open(b'[', 2, false);
                head = std::mem::take(&mut writer.out);
                writer.comma(2);
                separator = std::mem::take(&mut writer.out);
                writer.close(b']', 1, false);
            } else {
                writer.member(key, value, 1);
            }
        }
        writer.close(b'}', 0, false);
        Self {
            head,
            messages: Vec::new(),
            separator,
            tail: writer.out,
            points: Vec::new(),
        }
    }

    fn end_by(mut self, size: ConversationSize) -> Self {
        let first = self.points[0];
        let mut bytes = self.head.len() + self.tail.len();
        let mut sizes = Vec::with_capacity(self.messages.len() + 1);
        sizes.push(bytes);
        for message in &self.messages {
            bytes += message.len() + self.separator.len();
            sizes.push(bytes);
        }
        self.points.retain(|&at| {
            at == first
                || match size {
                    ConversationSize::Messages(limit) => at <= limit,
                    ConversationSize::Bytes(limit) => sizes[at] * 100 <= limit * 108,
                }
        });
        self
    }

    /// The same session with about so many of its requests, the last among them.
    pub(crate) fn thinned(mut self, requests: usize) -> Self {
        let every = self.points.len().div_ceil(requests.max(1));
        let last = self.points.len() - 1;
        let mut at = 0;
        self.points.retain(|_| {
            at += 1;
            (last + 1 - at).is_multiple_of(every)
        });
        self
    }

    /// How many requests the client makes.
    pub(crate) fn requests(&self) -> usize {
        self.points.len()
    }

    /// The number of messages of a request.
    pub(crate) fn messages_at(&self, request: usize) -> usize {
        self.points[request]
    }

    /// The messages of the whole session.
    pub(crate) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// The body of the request of that number, from 0.
    pub(crate) fn body(&self, request: usize) -> Vec<u8> {
        self.beginning(self.points[request])
    }

    /// The body with the first messages only.
    pub(crate) fn beginning(&self, messages: usize) -> Vec<u8> {
        self.without(0..0, messages)
    }

    /// The body with so many messages, less those in a range.
    pub(crate) fn without(&self, dropped: Range<usize>, messages: usize) -> Vec<u8> {
        let mut body = self.head.clone();
        let kept = (0..messages).filter(|at| !dropped.contains(at));
        for (place, at) in kept.enumerate() {
            let message = &self.messages[at];
            if place > 0 {
                body.extend_from_slice(&self.separator);
            }
            body.extend_from_slice(message);
        }
        body.extend_from_slice(&self.tail);
        body
    }

    /// The last request's body.
    pub(crate) fn whole(&self) -> Vec<u8> {
        self.body(self.points.len() - 1)
    }

    /// The bodies of the session, one for each request.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        (0..self.points.len()).map(|request| self.body(request))
    }
}

/// A conversation of a few to about a hundred messages, in any spelling.
pub(crate) fn conversation(seed: u64, shape: Shape) -> Vec<u8> {
    let mut random = Random::for_part(seed, 100 + shape as u64);
    let recipe = Recipe {
        spelling: JsonSpelling::any(&mut random),
        ..Recipe::new(shape)
    };
    let messages = random.sample_quantiles(&[(0, 1), (500, 12), (900, 60), (1000, 160)]);
    Session::new(seed, recipe, ConversationSize::Messages(messages.max(2))).whole()
}

/// A body of about that many bytes for benchmarks: an agent's with many escapes (code, JSON inside
/// JSON, Chinese as `\uXXXX`), or a chat's with few.
pub(crate) fn body_for_measuring(bytes: usize, heavy: bool) -> Vec<u8> {
    let (shape, escapes) = if heavy {
        (Shape::Escaped, Escapes::Ascii)
    } else {
        (Shape::Chat, Escapes::Raw)
    };
    let recipe = Recipe {
        spelling: JsonSpelling {
            space: Space::Python,
            escapes,
            shuffled: false,
        },
        ..Recipe::new(shape)
    };
    // A small body has few messages, and some seeds do not reach its size.
    (11..60)
        .map(|seed| Session::new(seed, recipe, ConversationSize::Bytes(bytes)).whole())
        .find(|body| body.len().abs_diff(bytes) * 100 <= bytes * 8)
        .expect("one seed in fifty gives a body of about that size")
}
