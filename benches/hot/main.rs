//! The functions on the path of every request: index, plan, fit, and a stream on its way back. For
//! comparison, over the same bodies: serde_json finding the messages alone, and the same functions
//! with recovery's injections.
//!
//! `cargo bench --bench hot`, or `cargo bench --bench hot -- index` for one of them.

use std::{fmt, hint::black_box, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use divan::{
    Bencher,
    counter::{BytesCount, ItemsCount},
};
use futures_util::stream;
use http::{Response, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use plimsoll::{
    config::GuardConfig,
    conversation::{Author, Conversation, Format},
    guard::{
        self, Policy, SessionKnowledge,
        injections::{Course, InjectionContent, InjectionRecord, Injections},
        ledger, profile,
    },
    recovery::tool,
    relay::{
        self, AnswerDriver, AnswerFilter, ModelAnswer, PrecedingText, ResponseSummary,
        StreamFooter, StreamOptions,
    },
    wire::{Body, sse::SseSplitter},
};
use serde::Deserialize;
use serde_json::value::RawValue;

#[allow(
    unused_imports,
    clippy::unwrap_used,
    reason = "shared with the tests, which use all of it"
)]
#[path = "../../tests/it/support/mod.rs"]
mod support;

mod events;

use self::events::write_events;
use support::{
    drive::{make_policy, raw_tokens, settings},
    generate::{self, ConversationSize, Recipe, Session, Shape},
    generate_messages::escape_beyond_ascii,
    translate_chat::translate_chat,
};

fn main() {
    divan::main();
}

const FORMATS: [Format; 3] = [Format::Chat, Format::Messages, Format::Responses];

/// A body by its format, its size, and the number of its escapes. Of one size, all formats have the same conversation.
#[derive(Clone, Copy)]
struct BodyKind {
    format: Format,
    bytes: usize,
    heavy: bool,
}

impl fmt::Display for BodyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escapes = if self.heavy { "heavy" } else { "light" };
        write!(out, "{:?}, ", self.format)?;
        match self.bytes {
            bytes if bytes >= 1_000_000 => write!(out, "{} MB, {escapes}", bytes / 1_000_000),
            bytes => write!(out, "{} KB, {escapes}", bytes / 1_000),
        }
    }
}

impl BodyKind {
    fn body(self) -> Bytes {
        let body = generate::body_for_measuring(self.bytes, self.heavy);
        translate_as_spelt(&body, self.format, self.heavy)
    }

    fn conversation(self) -> Conversation {
        index_in(self.format, self.body())
    }
}

/// A body in a format; `heavy`: with the escapes of the original.
fn translate_as_spelt(chat: &[u8], format: Format, heavy: bool) -> Bytes {
    let body = String::from_utf8(translate_chat(chat, format, false)).expect("JSON is UTF-8");
    if heavy {
        body.chars()
            .map(escape_beyond_ascii)
            .collect::<String>()
            .into()
    } else {
        body.into()
    }
}

fn index_in(format: Format, body: Bytes) -> Conversation {
    let found = format.index_body(body);
    found.expect("a generated body can be indexed")
}

fn kinds() -> impl Iterator<Item = BodyKind> {
    FORMATS.into_iter().flat_map(|format| {
        let sizes = [1_000, 100_000, 1_000_000, 4_000_000].into_iter();
        sizes.flat_map(move |bytes| {
            [true, false].map(|heavy| BodyKind {
                format,
                bytes,
                heavy,
            })
        })
    })
}

/// Of chat completions only.
fn chat_kinds() -> impl Iterator<Item = BodyKind> {
    kinds().filter(|kind| kind.format == Format::Chat)
}

/// Spans, roles, sizes and digests of all messages.
#[divan::bench(args = kinds())]
fn index(bencher: Bencher<'_, '_>, kind: BodyKind) {
    let body = kind.body();
    bencher
        .counter(BytesCount::new(body.len()))
        .bench(|| index_in(kind.format, black_box(body.clone())));
}

/// Spans of the messages and nothing else, by serde_json, borrowing.
#[divan::bench(args = chat_kinds())]
fn serde_json_spans(bencher: Bencher<'_, '_>, kind: BodyKind) {
    #[derive(Deserialize)]
    struct MessagesBody<'a> {
        #[serde(borrow)]
        messages: Vec<&'a RawValue>,
    }
    let body = kind.body();
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        serde_json::from_slice::<MessagesBody<'_>>(black_box(&body)).map(|body| body.messages.len())
    });
}

fn roomy_policy(settings: &GuardConfig) -> Policy<'_> {
    make_policy(&profile::PROFILES[0], 4_000_000, settings)
}

/// The guard's part, on an indexed body in a window with room.
#[divan::bench(args = kinds())]
fn plan(bencher: Bencher<'_, '_>, kind: BodyKind) {
    let (settings, conversation) = (settings(), kind.conversation());
    let knowledge = SessionKnowledge::default();
    bencher
        .counter(BytesCount::new(conversation.body.len()))
        .bench(|| {
            guard::plan(
                black_box(&conversation),
                &roomy_policy(&settings),
                &knowledge,
            )
        });
}

/// The same with injections: an early course, and prompts after it that are put back.
#[divan::bench(args = kinds().filter(|kind| kind.bytes >= 100_000))]
fn plan_with_ours(bencher: Bencher<'_, '_>, kind: BodyKind) {
    let (settings, conversation) = (settings(), kind.conversation());
    let knowledge = SessionKnowledge {
        injections: injected_parts(&conversation),
        ..SessionKnowledge::default()
    };
    let plan = guard::plan(&conversation, &roomy_policy(&settings), &knowledge);
    assert!(plan.report.stood_back.is_none() && plan.report.folded.is_some());
    bencher
        .counter(BytesCount::new(conversation.body.len()))
        .bench(|| {
            guard::plan(
                black_box(&conversation),
                &roomy_policy(&settings),
                &knowledge,
            )
        });
}

const RECORDS: usize = 40;

/// A course from the second answer on, and prompts evenly over the rest.
fn injected_parts(conversation: &Conversation) -> Injections {
    let mut answers = Vec::new();
    let (mut place, mut before) = (0, Author::System);
    for message in &conversation.items {
        if matches!(message.author, Author::System) {
            continue;
        }
        if message.author == Author::Model && matches!(before, Author::User | Author::Tool) {
            answers.push(place);
        }
        before = message.author;
        place += 1;
    }
    let text = "The window is filling up: add_reminder, please. ".repeat(8);
    let prompts = answers
        .iter()
        .skip(2)
        .step_by((answers.len() / RECORDS).max(1));
    let records = prompts.take(RECORDS).map(|&place| InjectionRecord {
        place,
        what: InjectionContent::Prompt(text.as_str().into()),
    });
    Injections {
        course: Some(Course {
            number: 2,
            boundary: answers[1],
            preface: text.repeat(8).into(),
        }),
        records: records.collect(),
        ..Injections::default()
    }
}

/// The whole step of a request that needs no change: index, plan, apply.
#[divan::bench(args = kinds())]
fn step(bencher: Bencher<'_, '_>, kind: BodyKind) {
    let (settings, body) = (settings(), kind.body());
    let knowledge = SessionKnowledge::default();
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        let conversation = index_in(kind.format, black_box(body.clone()));
        let plan = guard::plan(&conversation, &roomy_policy(&settings), &knowledge);
        plan.edits.apply(&conversation.body)
    });
}

/// A fit by its format and by whether results are cleared.
#[derive(Clone, Copy)]
struct FitKind {
    format: Format,
    clears: bool,
}

impl fmt::Display for FitKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}, clears: {}", self.format, self.clears)
    }
}

fn fits() -> impl Iterator<Item = FitKind> {
    let formats = FORMATS.into_iter();
    formats.flat_map(|format| [true, false].map(|clears| FitKind { format, clears }))
}

/// A history of 180,000 tokens fitted to a window of 128,000 without state: by defaults, where
/// clearing is enough, and by folding alone.
#[divan::bench(args = fits())]
fn fit_180k_tokens(bencher: Bencher<'_, '_>, fit: FitKind) {
    let FitKind { format, clears } = fit;
    let profile = &profile::PROFILES[0];
    let mut settings = settings();
    settings.clear.enabled &= clears;
    let recipe = Recipe::new(Shape::OneTurn);
    let body = (1..)
        .map(|step| Session::new(5, recipe, ConversationSize::Bytes(step * 20_000)).whole())
        .map(Bytes::from)
        .find(|body| raw_tokens(body, profile) >= 180_000)
        .expect("bodies grow without end");
    let conversation = index_in(format, translate_as_spelt(&body, format, false));
    let policy = make_policy(profile, 128_000, &settings);
    let knowledge = SessionKnowledge::default();
    let report = guard::plan(&conversation, &policy, &knowledge).report;
    assert!(report.raw_before > report.budget.tokens, "it fits already");
    assert!(report.raw_after <= report.budget.tokens, "it does not fit");
    assert!(clears || report.folded.is_some(), "nothing was folded");
    bencher.bench(|| {
        let plan = guard::plan(black_box(&conversation), &policy, &knowledge);
        plan.edits.apply(&conversation.body)
    });
}

/// The ledger of a megabyte of omitted messages, as in each request after a fold.
#[divan::bench(args = [true, false])]
fn ledger(bencher: Bencher<'_, '_>, heavy: bool) {
    let kind = BodyKind {
        format: Format::Chat,
        bytes: 1_000_000,
        heavy,
    };
    let conversation = kind.conversation();
    let removed: Vec<usize> = (1..conversation.items.len() - 1).collect();
    assert!(!ledger::gather(&conversation, &removed, 12_000).is_empty());
    bencher
        .counter(BytesCount::new(conversation.body.len()))
        .bench(|| ledger::gather(black_box(&conversation), &removed, 12_000));
}

/// Splits a stream of deltas in network-sized chunks.
#[divan::bench(args = chat_kinds())]
fn splitter(bencher: Bencher<'_, '_>, kind: BodyKind) {
    let (chunks, _) = chunks(kind);
    let bytes: usize = chunks.iter().map(Bytes::len).sum();
    bencher.counter(BytesCount::new(bytes)).bench(|| {
        let mut splitter = SseSplitter::new(1 << 20);
        let mut events = 0;
        for chunk in &chunks {
            splitter.push(black_box(chunk.clone()));
            while let Some(event) = splitter.next_event() {
                events += usize::from(event.message.is_some());
            }
        }
        events
    });
}

/// A stream relayed to a client with the pipeline reading it.
#[divan::bench(args = kinds())]
fn relay_plain(bencher: Bencher<'_, '_>, kind: BodyKind) {
    relayed(bencher, kind, |answer| {
        let options = StreamOptions {
            format: kind.format,
            ..StreamOptions::default()
        };
        relay::stream_answer(answer, None, options)
    });
}

/// The same where the stream may contain proxy-executed calls.
#[divan::bench(args = kinds())]
fn relay_sifted(bencher: Bencher<'_, '_>, kind: BodyKind) {
    let sifting = AnswerFilter {
        tools: tool::TOOL_NAMES,
        package: true,
    };
    relayed(bencher, kind, |answer| {
        let foot = relay::FooterOptions {
            trailers: &[],
            max_wait: Duration::from_millis(50),
        };
        let options = StreamOptions {
            format: kind.format,
            filter: sifting,
            footer: foot,
            ..StreamOptions::default()
        };
        relay::stream_answer(answer, Some(Box::new(NoRounds)), options)
    });
}

fn relayed(
    bencher: Bencher<'_, '_>,
    kind: BodyKind,
    relay: impl Fn(Response<Body>) -> Response<Body> + Sync,
) {
    let (chunks, events) = chunks(kind);
    let bytes: usize = chunks.iter().map(Bytes::len).sum();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O can be built");
    let counters = bencher.counter(BytesCount::new(bytes));
    counters.counter(ItemsCount::new(events)).bench_local(|| {
        let frames = chunks
            .clone()
            .into_iter()
            .map(|chunk| Ok(Frame::data(chunk)));
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let answer = Response::builder().header(CONTENT_TYPE, "text/event-stream");
        let answer = relay(black_box(answer.body(body).expect("headers are valid")));
        runtime.block_on(async {
            let (mut body, mut frames) = (answer.into_body(), 0);
            while let Some(frame) = body.frame().await {
                frames += usize::from(frame.is_ok());
            }
            frames
        })
    });
}

struct NoRounds;

#[async_trait]
impl AnswerDriver for NoRounds {
    async fn next_answer(&mut self, _: ModelAnswer) -> Option<Response<Body>> {
        None
    }

    async fn end_answer(
        self: Box<Self>,
        _: ResponseSummary,
        _: ModelAnswer,
        _: PrecedingText,
    ) -> StreamFooter {
        StreamFooter::default()
    }
}

/// A body as a streamed answer with deltas of about 20 bytes each, in chunks of 1,400 bytes; and the number of its events.
fn chunks(kind: BodyKind) -> (Vec<Bytes>, usize) {
    // A delta's frame is about eight times its text.
    let body = generate::body_for_measuring(kind.bytes / 8 + 1_000, kind.heavy);
    let text = String::from_utf8_lossy(&body);
    let letters: Vec<char> = text.chars().take(kind.bytes / 8).collect();
    let pieces = letters.chunks(20).map(|it| it.iter().collect());
    let events = write_events(kind.format, &pieces.collect::<Vec<String>>());
    let whole = Bytes::from(events.concat());
    let chunks = (0..whole.len())
        .step_by(1_400)
        .map(|at| whole.slice(at..(at + 1_400).min(whole.len())));
    (chunks.collect(), events.len())
}
