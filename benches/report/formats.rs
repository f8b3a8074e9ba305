//! How much of long sessions the provider's prompt cache keeps in each wire format; and for Messages, whose cache is
//! written and read at markers only, what the client's markers and the proxy's are worth.

use std::io::{self, Write};

use bytes::Bytes;
use plimsoll::{
    config::GuardConfig,
    conversation::Format,
    guard::{self, Policy, SessionKnowledge, profile::find_profile},
};

use crate::{
    cache::steps,
    support::{
        block_cache::{BlockCache, CacheRule},
        cache::CacheHit,
        count::TokenCounter,
        drive::make_policy,
        generate::{Session, Shape},
        translate_chat::translate_chat,
    },
};

const WINDOW: u32 = 32_768;
const MARKERS_WINDOW: u32 = 65_536;
const SEEDS: u64 = 6;

/// Who sets the markers of Messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marking {
    Client,
    /// With `cache_markers = "auto"`.
    Proxy,
    Nobody,
}

/// Tokens of a session.
#[derive(Default)]
struct Tally {
    requests: usize,
    changes: usize,
    prompt: u64,
    cached: u64,
    /// Requests that stay over the window.
    lost: usize,
}

impl Tally {
    fn add(&mut self, hit: CacheHit) {
        self.requests += 1;
        self.changes += usize::from(hit.changed);
        self.prompt += hit.prompt;
        self.cached += hit.cached;
    }

    fn share(&self) -> f64 {
        self.cached as f64 / self.prompt.max(1) as f64
    }
}

/// A client of a format, with its provider.
#[derive(Clone, Copy)]
struct FormatClient<'a> {
    format: Format,
    counter: &'a TokenCounter,
    policy: Policy<'a>,
}

impl<'a> FormatClient<'a> {
    fn new(
        format: Format,
        window: u32,
        settings: &'a GuardConfig,
        counter: &'a TokenCounter,
    ) -> Self {
        let profile = match format {
            Format::Messages => "anthropic",
            _ => "openai",
        };
        let profile = find_profile(profile).expect("a profile of the table");
        Self {
            format,
            counter,
            policy: make_policy(profile, window, settings),
        }
    }

    fn new_cache(&self) -> BlockCache<'a> {
        let rule = match self.format {
            Format::Messages => CacheRule::AtMarkers,
            _ => CacheRule::Automatic,
        };
        BlockCache::new(rule, self.counter)
    }

    fn run_unlimited(&self, session: &Session) -> Tally {
        let mut cache = self.new_cache();
        let mut tally = Tally::default();
        for body in session.steps() {
            tally.add(cache.request(&translate_chat(&body, self.format, true)));
        }
        tally
    }

    /// `keeps`: the guard's state is kept between requests.
    fn run_guarded(&self, session: &Session, keeps: bool, marking: Marking) -> Tally {
        let mut cache = self.new_cache();
        let mut tally = Tally::default();
        let mut knowledge = SessionKnowledge::default();
        for body in session.steps() {
            if !keeps {
                knowledge = SessionKnowledge::default();
            }
            let body = translate_chat(&body, self.format, marking == Marking::Client);
            let conversation = self.format.index_body(body.into());
            let conversation = conversation.expect("a translated body can be indexed");
            let mut fitted: Option<(Bytes, bool)> = None;
            // The request, and two more where it is too long.
            for _ in 0..3 {
                let plan = guard::plan(&conversation, &self.policy, &knowledge);
                let sent = plan.edits.apply(&conversation.body);
                let marked = (marking == Marking::Proxy)
                    .then(|| conversation.add_cache_markers(&sent, false));
                let sent = marked.flatten().unwrap_or(sent).to_bytes();
                let tokens = cache.count(&sent);
                let raw = plan.report.raw_after;
                knowledge.calibration =
                    knowledge.calibration.learn_usage(raw, tokens as u32, false);
                knowledge.memory = plan.memory;
                knowledge.sent_messages = count_messages(&conversation);
                let fits = tokens <= u64::from(self.policy.window);
                fitted = Some((sent, fits));
                if fits {
                    break;
                }
            }
            if let Some((sent, fits)) = fitted {
                tally.lost += usize::from(!fits);
                tally.add(cache.request(&sent));
            }
        }
        tally
    }
}

fn count_messages(conversation: &plimsoll::conversation::Conversation) -> usize {
    let items = conversation.items.iter();
    items.filter(|item| !item.author.is_system()).count()
}

/// Agents of 300 steps, with their names.
fn sessions() -> impl Iterator<Item = (String, Session)> {
    let shapes = |seed| [Shape::OneTurn, Shape::Agent].map(|shape| (seed, shape));
    let all = (0..SEEDS).flat_map(shapes);
    all.map(|(seed, shape)| (format!("{shape:?} {seed}"), steps(seed, shape, 300)))
}

/// The same sessions in every format.
pub(crate) fn report_formats(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nthe same 300 steps of an agent in each format at {WINDOW} tokens: cached share of the prompt tokens, the same as a\n\
         part of that in an unlimited window, requests that do not begin with the one before, requests over the window, and\n\
         the part of the unlimited window where the state is emptied before each request. Chat completions and Responses have\n\
         an automatic cache; Messages has one at the client's markers\n"
    )?;
    let formats = [Format::Chat, Format::Messages, Format::Responses];
    write!(out, "  {:<12}", "session")?;
    for format in formats {
        let head = format!("{format:?}: cached");
        write!(out, " {head:>18}  of unlimited changed lost emptied")?;
    }
    writeln!(out)?;
    let counter = TokenCounter::o200k();
    let settings = GuardConfig::default();
    let mut sums = [[0.0; 3]; 3];
    for (name, session) in sessions() {
        write!(out, "  {name:<12}")?;
        for (format, sums) in formats.into_iter().zip(&mut sums) {
            let client = FormatClient::new(format, WINDOW, &settings, &counter);
            let whole = client.run_unlimited(&session).share();
            let kept = client.run_guarded(&session, true, Marking::Client);
            let emptied = client.run_guarded(&session, false, Marking::Client);
            let row = [kept.share(), kept.share() / whole, emptied.share() / whole];
            sums.iter_mut().zip(row).for_each(|(sum, it)| *sum += it);
            let (changes, lost) = (kept.changes, kept.lost);
            let [cached, part, emptied] = row;
            write!(
                out,
                " {cached:>18.3} {part:>13.3} {changes:>7} {lost:>4} {emptied:>7.3}"
            )?;
        }
        writeln!(out)?;
    }
    write!(out, "  {:<12}", "mean")?;
    for [cached, part, emptied] in sums.map(|sums| sums.map(|sum| sum / (2 * SEEDS) as f64)) {
        write!(
            out,
            " {cached:>18.3} {part:>13.3} {:>12} {emptied:>7.3}",
            ""
        )?;
    }
    writeln!(out, "\n")
}

/// What markers are worth in Messages.
pub(crate) fn report_markers(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nMessages, a client that marks its last system block and its last two user entries, a provider that reads its\n\
         cache at markers, at most 20 blocks back: 300 steps of an agent at {MARKERS_WINDOW} tokens. Unmarked: the client sets no\n\
         markers, with cache_markers = \"off\" and \"auto\"\n"
    )?;
    writeln!(
        out,
        "  session        unlimited   cached  of unlimited  changed  lost   emptied: cached  of unlimited   unmarked: off   auto  of unlimited"
    )?;
    let counter = TokenCounter::o200k();
    let settings = GuardConfig::default();
    let client = FormatClient::new(Format::Messages, MARKERS_WINDOW, &settings, &counter);
    let (mut sum, mut sum_auto, mut rows) = (0.0, 0.0, 0.0);
    for (name, session) in sessions() {
        let whole = client.run_unlimited(&session).share();
        let kept = client.run_guarded(&session, true, Marking::Client);
        let emptied = client.run_guarded(&session, false, Marking::Client).share();
        let off = client.run_guarded(&session, true, Marking::Nobody).share();
        let auto = client.run_guarded(&session, true, Marking::Proxy).share();
        let (part, part_auto) = (kept.share() / whole, auto / whole);
        (sum, sum_auto, rows) = (sum + part, sum_auto + part_auto, rows + 1.0);
        writeln!(
            out,
            "  {name:<14} {whole:>9.3} {:>8.3} {part:>13.3} {:>8} {:>5} {emptied:>17.3} {:>13.3} {off:>15.3} {auto:>6.3} {part_auto:>13.3}",
            kept.share(),
            kept.changes,
            kept.lost,
            emptied / whole,
        )?;
    }
    let (mean, mean_auto) = (sum / rows, sum_auto / rows);
    writeln!(
        out,
        "  mean of unlimited: {mean:.3}; with the proxy's markers: {mean_auto:.3}\n"
    )
}
