//! The cost of a summary when it is due: how much of its request a prompt cache holds, and how many
//! requests a small model needs.

use std::io::{self, Write};

use super::percentile;
use crate::support::{
    cache::PromptCache,
    count::TokenCounter,
    data,
    drive::{apply_plan, make_policy},
    generate::{ConversationSize, Recipe, SHAPES, Session},
};
use bytes::Bytes;
use plimsoll::{
    compaction::{self, Summariser, SummaryRange, SummaryWork},
    config::{CompactionConfig, GuardConfig, profile::AnswerFilling},
    conversation::Conversation,
    format::chat,
    guard::{self, Plan, SessionKnowledge, budget, estimate::Weights, profile},
    recovery::Language,
};

const WINDOWS: [u32; 2] = [32_768, 131_072];
/// The window of the small model.
const SMALL: u32 = 16_384;

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    let asked = CompactionConfig::default();
    writeln!(
        out,
        "\nsummaries: each session grown until {} of the window without its reserve is used; tokens by \
         o200k\n(cached: the beginning in common with the request just sent, in blocks of 128; \
         replaced: raw tokens that the\nsummary takes the place of; requests: to another model with a \
         window of {SMALL})\n",
        asked.threshold
    )?;
    let counter = TokenCounter::o200k();
    for window in WINDOWS {
        writeln!(
            out,
            "window {window}\n  {:<36} {:>7} {:>8} {:>8} {:>9} {:>9}",
            "session", "sent", "request", "cached", "replaced", "requests"
        )?;
        let mut shares = Vec::new();
        for (name, session) in sessions() {
            let Some(found) = find_due_moment(&session, window, &asked, &counter) else {
                continue;
            };
            let share = 100.0 * found.cached as f64 / found.request as f64;
            shares.push(share);
            let requests = found
                .requests
                .map_or("too many".into(), |it| it.to_string());
            writeln!(
                out,
                "  {name:<36} {:>7} {:>8} {share:>7.1}% {:>9} {requests:>9}",
                found.sent, found.request, found.replaced
            )?;
        }
        let (count, low) = (shares.len(), percentile(&mut shares, 10));
        let median = percentile(&mut shares, 50);
        writeln!(
            out,
            "  {count} sessions: cached {median:.1} % (median), {low:.1} % (10th percentile)\n"
        )?;
    }
    Ok(())
}

/// Recorded sessions and generated ones.
fn sessions() -> impl Iterator<Item = (String, Session)> {
    let recorded = data::requests().into_iter().filter_map(|it| {
        let session = Session::from_recorded(&it.body)?;
        Some((it.name, session))
    });
    let generated = SHAPES.iter().map(|&shape| {
        let session = Session::new(21, Recipe::new(shape), ConversationSize::Messages(400));
        (format!("generated {shape:?}"), session)
    });
    recorded.chain(generated)
}

/// A summary when it is due.
struct DueSummary {
    sent: u64,
    request: u64,
    cached: u64,
    replaced: u32,
    /// `None`: more than the limit.
    requests: Option<usize>,
}

fn find_due_moment(
    session: &Session,
    window: u32,
    asked: &CompactionConfig,
    counter: &TokenCounter,
) -> Option<DueSummary> {
    let settings = GuardConfig::default();
    let policy = make_policy(&profile::PROFILES[0], window, &settings);
    let mut knowledge = SessionKnowledge::default();
    for body in session.steps() {
        let conversation = chat::index_body(Bytes::from(body)).ok()?;
        let plan = guard::plan(&conversation, &policy, &knowledge);
        let body = apply_plan(&conversation, &plan);
        let tokens = counter.request(&body);
        let budget = budget::compute_request_budget(&conversation, &policy);
        if tokens >= u64::from(compaction::compute_threshold(&budget, asked))
            && let Some(due) = compaction::find_summary_range(
                &conversation,
                &policy,
                &plan.memory,
                &knowledge.injections,
            )
        {
            return summarise_at(&conversation, &plan, due, (window, asked), counter, &body);
        }
        knowledge.calibration =
            knowledge
                .calibration
                .learn_usage(plan.report.raw_after, tokens as u32, false);
        knowledge.memory = plan.memory;
        knowledge.sent_messages = conversation.items.len();
    }
    None
}

fn summarise_at(
    conversation: &Conversation,
    plan: &Plan,
    due: SummaryRange,
    (window, asked): (u32, &CompactionConfig),
    counter: &TokenCounter,
    sent: &Bytes,
) -> Option<DueSummary> {
    let begin = |own: bool, window: u32| {
        let asked = Summariser {
            may_repeat_conversation: own,
            model: "m".into(),
            profile: &profile::PROFILES[0],
            room: window - asked.max_summary_tokens,
            max_tokens: asked.max_summary_tokens,
            thinking_tokens: 0,
            filling: AnswerFilling::ByName,
            language: Language::English,
            weights: Weights::for_unknown_model(),
            nonce: [7; 8],
        };
        SummaryWork::begin_summary(conversation, &plan.edits, due, asked)
    };
    let mut cache = PromptCache::new(counter);
    cache.request(sent);
    let (_, request) = begin(true, window)?;
    let hit = cache.request(&request);
    Some(DueSummary {
        sent: counter.request(sent),
        request: hit.prompt,
        cached: hit.cached,
        replaced: due.replaced,
        requests: begin(false, SMALL).map(|(work, _)| 1 + work.remaining_requests()),
    })
}
