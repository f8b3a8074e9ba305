//! The same for Messages, with a provider whose cache is written and read at markers only: the client's, or the proxy's
//! where the client sets none.

use std::io::{self, Write};

use bytes::Bytes;
use plimsoll::{
    config::GuardConfig,
    conversation::Format,
    guard::{self, Policy, Recall, profile::find_profile},
};

use crate::{
    cache::steps,
    support::{
        cache::CacheHit,
        chat_to_messages::chat_to_messages,
        count::TokenCounter,
        drive::make_policy,
        generate::{Session, Shape},
        marker_cache::MarkerCache,
    },
};

const WINDOW: u32 = 65_536;

/// Who sets the markers.
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

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nMessages, a client that marks its last system block and its last two user entries, a provider that reads its\n\
         cache at markers, at most 20 blocks back: 300 steps of an agent at {WINDOW} tokens. Unmarked: the client sets no\n\
         markers, with cache_markers = \"off\" and \"auto\"\n"
    )?;
    writeln!(
        out,
        "  session        unlimited   cached  of unlimited  changed  lost   emptied: cached  of unlimited   unmarked: off   auto  of unlimited"
    )?;
    let counter = TokenCounter::o200k();
    let settings = GuardConfig::default();
    let profile = find_profile("anthropic").expect("a profile of the table");
    let policy = make_policy(profile, WINDOW, &settings);
    let (mut sum, mut sum_auto, mut rows) = (0.0, 0.0, 0.0);
    for seed in 0..6 {
        for shape in [Shape::OneTurn, Shape::Agent] {
            let session = steps(seed, shape);
            let whole = run_unlimited(&session, &counter).share();
            let run = |keeps, marking| run_guarded(&session, &policy, &counter, keeps, marking);
            let kept = run(true, Marking::Client);
            let emptied = run(false, Marking::Client).share();
            let off = run(true, Marking::Nobody).share();
            let auto = run(true, Marking::Proxy).share();
            let (part, part_auto) = (kept.share() / whole, auto / whole);
            (sum, sum_auto, rows) = (sum + part, sum_auto + part_auto, rows + 1.0);
            writeln!(
                out,
                "  {:<14} {whole:>9.3} {:>8.3} {part:>13.3} {:>8} {:>5} {emptied:>17.3} {:>13.3} {off:>15.3} {auto:>6.3} {part_auto:>13.3}",
                format!("{shape:?} {seed}"),
                kept.share(),
                kept.changes,
                kept.lost,
                emptied / whole,
            )?;
        }
    }
    let (mean, mean_auto) = (sum / rows, sum_auto / rows);
    writeln!(
        out,
        "  mean of unlimited: {mean:.3}; with the proxy's markers: {mean_auto:.3}\n"
    )
}

fn run_unlimited(session: &Session, counter: &TokenCounter) -> Tally {
    let mut cache = MarkerCache::new(counter);
    let mut tally = Tally::default();
    for body in session.steps() {
        tally.add(cache.request(&chat_to_messages(&body, true)));
    }
    tally
}

/// `keeps`: the guard's state is kept between requests.
fn run_guarded(
    session: &Session,
    policy: &Policy<'_>,
    counter: &TokenCounter,
    keeps: bool,
    marking: Marking,
) -> Tally {
    let mut cache = MarkerCache::new(counter);
    let mut tally = Tally::default();
    let mut recall = Recall::default();
    for body in session.steps() {
        if !keeps {
            recall = Recall::default();
        }
        let body = Bytes::from(chat_to_messages(&body, marking == Marking::Client));
        let conversation = Format::Messages.index_body(body);
        let conversation = conversation.expect("a translated body can be indexed");
        let mut fitted = None;
        // The request, and two more where it is too long.
        for _ in 0..3 {
            let plan = guard::plan(&conversation, policy, &recall);
            let sent = plan.edits.apply(&conversation.body);
            let marked = (marking == Marking::Proxy).then(|| conversation.add_cache_markers(&sent));
            let sent = marked.flatten().unwrap_or(sent).to_bytes();
            let tokens = cache.count(&sent);
            let raw = plan.report.raw_after;
            recall.calibration = recall
                .calibration
                .learn_usage(raw, tokens as u32, policy.profile);
            recall.memory = plan.memory;
            recall.messages = count_messages(&conversation);
            let fits = tokens <= u64::from(policy.window);
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

fn count_messages(conversation: &plimsoll::conversation::Conversation) -> usize {
    let items = conversation.items.iter();
    items.filter(|item| !item.author.is_system()).count()
}
