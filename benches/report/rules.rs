//! What each rule of the guard is worth: the same sessions with the rule and without it.

mod cases;
mod measure;

use std::{
    io::{self, Write},
    sync::Mutex,
    thread,
};

use plimsoll::guard::{
    DeepCut, Due, MessageCut, Reach, RequestCut,
    rules::{RULES, Rules},
};

use self::{
    cases::{Case, SEEDS},
    measure::{Measure, MeasuredCase, Shares},
};
use crate::{
    reasoning::{self, KeptThinking},
    support::count::TokenCounter,
};

/// The guard without one of its rules.
struct Variant {
    name: &'static str,
    rules: Rules,
    /// Whether answer caps are lowered to what is left.
    clamps: bool,
}

/// The list without some cuts. It is leaked: rules hold lists that last as long as the program.
fn without<T: Copy + PartialEq>(list: &[T], left_out: impl Fn(&T) -> bool) -> &'static [T] {
    let left: Vec<T> = list.iter().filter(|it| !left_out(it)).copied().collect();
    Vec::leak(left)
}

fn list_variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |name, change: &dyn Fn(&mut Rules)| {
        let mut rules = RULES;
        change(&mut rules);
        variants.push(Variant {
            name,
            rules,
            clamps: true,
        });
    };
    add("all rules", &|_| {});
    for (name, cut) in [
        ("CapNamedTexts", MessageCut::CapNamedTexts),
        ("HoldSystemShare", MessageCut::HoldSystemShare),
        ("TruncateResults", MessageCut::TruncateResults),
        ("RepeatLimits", MessageCut::RepeatLimits),
        ("TruncateNewResults", MessageCut::TruncateNewResults),
    ] {
        add(name, &|rules| {
            rules.order.messages = without(rules.order.messages, |it| *it == cut);
            rules.order.of_session = without(rules.order.of_session, |it| *it == cut);
        });
    }
    for (name, cut) in [
        ("ShortenTools", RequestCut::ShortenTools),
        ("ClearEarly", RequestCut::ClearEarly),
        ("LeaveOutTexts", RequestCut::LeaveOutTexts),
        ("CutDeeply", RequestCut::CutDeeply),
        ("DropLedger", RequestCut::DropLedger),
        ("ShortenNewestStep", RequestCut::ShortenNewestStep),
        (
            "ShortenNewestAttachments",
            RequestCut::ShortenNewestAttachments,
        ),
        ("FoldNewestQuestion", RequestCut::FoldNewestQuestion),
    ] {
        add(name, &|rules| {
            rules.order.requests = without(rules.order.requests, |it| *it == cut);
            rules.order.last = without(rules.order.last, |it| *it == cut);
        });
    }
    add("DropLedger, the first", &|rules| {
        rules.order.last = &RULES.order.last[1..];
    });
    add("DropLedger, the second", &|rules| {
        rules.order.last = &RULES.order.last[..RULES.order.last.len() - 1];
    });
    for (name, part) in [
        (
            "ClearResults before the tail",
            (DeepCut::ClearResults, Reach::BeforeTail),
        ),
        (
            "ClearAttachments before the tail",
            (DeepCut::ClearAttachments, Reach::BeforeTail),
        ),
        (
            "FoldLeastWorth before the tail",
            (DeepCut::FoldLeastWorth, Reach::BeforeTail),
        ),
        (
            "ClearResults before the newest",
            (DeepCut::ClearResults, Reach::BeforeNewest),
        ),
        (
            "ClearAttachments before the newest",
            (DeepCut::ClearAttachments, Reach::BeforeNewest),
        ),
        (
            "FoldLeastWorth before the newest",
            (DeepCut::FoldLeastWorth, Reach::BeforeNewest),
        ),
        ("FoldOldest", (DeepCut::FoldOldest, Reach::BeforeNewest)),
    ] {
        add(name, &|rules| {
            rules.order.deep = without(RULES.order.deep, |it| *it == part);
        });
    }
    for (name, cut) in [
        ("ClearResults, both", DeepCut::ClearResults),
        ("ClearAttachments, both", DeepCut::ClearAttachments),
        ("FoldLeastWorth, both", DeepCut::FoldLeastWorth),
    ] {
        add(name, &|rules| {
            rules.order.deep = without(RULES.order.deep, |it| it.0 == cut);
        });
    }
    for (name, reason) in [
        ("a cut as the question returns", Due::QuestionReturns),
        ("a cut as a turn begins", Due::TurnBegins),
        ("a cut as the cache is cold", Due::ColdCache),
    ] {
        add(name, &|rules| {
            rules.due = without(RULES.due, |it| *it == reason)
        });
    }
    add("the tail", &|rules| rules.tail_part = u32::MAX);
    add("a tail of a fifth", &|rules| rules.tail_part = 5);
    add("deeper cuts of bound reasoning", &|rules| {
        rules.bound_depth = 1.0
    });
    add("tolerance of an unsure request", &|rules| {
        rules.uncounted_error = 0.0
    });
    add("a short newest question stays", &|rules| {
        (rules.question_part, rules.least_question_part) = (u32::MAX, u32::MAX);
    });
    add("the ledger's lines of the user", &|rules| {
        rules.said_part = u32::MAX
    });
    add("the ledger's words", &|rules| rules.words_part = u32::MAX);
    add("the ledger", &|rules| {
        (rules.said_part, rules.words_part) = (u32::MAX, u32::MAX);
    });
    add("answer caps are lowered", &|_| {});
    if let Some(last) = variants.last_mut() {
        last.clamps = false;
    }
    variants
}

/// What was measured under one variant.
#[derive(Clone, Default)]
struct Row {
    /// For each seed.
    generated: Vec<Measure>,
    recorded: Measure,
    /// For each seed.
    thinking: Vec<KeptThinking>,
}

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nrules: each session with all rules, and without one. Differences from all rules: needs, old, newest and question words \
         in\nhundredths (newest: words of the messages behind the newest answer; question: of the user's newest message), cost in \
         percent,\nretried, refused and invalid requests; changed: of 100 requests, those that are sent in another form; kept: of\nthe \
         ten newest answers' bound thinking, in hundredths. `*`: more than its spread over the seeds. \
         Every twelfth request\nfollows a pause, after which the cache is cold.\n"
    )?;
    let counter = TokenCounter::o200k();
    let variants = list_variants();
    let rows = measure_all(&variants, &counter);
    write_table(out, &variants, &rows)
}

/// Measures all variants, on all cores.
fn measure_all(variants: &[Variant], counter: &TokenCounter) -> Vec<Row> {
    let seeds = SEEDS.count();
    let empty = Row {
        generated: vec![Measure::default(); seeds],
        recorded: Measure::default(),
        thinking: vec![KeptThinking::default(); seeds],
    };
    let rows = Mutex::new(vec![empty; variants.len()]);
    let mut cases: Vec<Case> = SEEDS.flat_map(Case::generated).collect();
    cases.extend(Case::recorded());
    // A task is a case under all variants, or the thinking of a seed under one of them.
    let thinking = SEEDS.flat_map(|seed| (0..variants.len()).map(move |variant| (seed, variant)));
    let thinking: Vec<(u64, usize)> = thinking.collect();
    let tasks = Mutex::new(0..cases.len() + thinking.len());
    // The lock is not held while a task runs.
    let next = || tasks.lock().expect("nobody panics with it").next();
    let place = |seed: u64| (seed - SEEDS.start) as usize;
    let work = || {
        while let Some(task) = next() {
            if let Some(case) = cases.get(task) {
                let mut measured = MeasuredCase::new(case, counter);
                for (at, variant) in variants.iter().enumerate() {
                    let found = measured.measure(&variant.rules, variant.clamps);
                    let row = &mut rows.lock().expect("nobody panics with it")[at];
                    match case.seed {
                        Some(seed) => row.generated[place(seed)].add(&found),
                        None => row.recorded.add(&found),
                    }
                }
            } else {
                let (seed, at) = thinking[task - cases.len()];
                let found = reasoning::measure_thinking(seed, &variants[at].rules, counter);
                rows.lock().expect("nobody panics with it")[at].thinking[place(seed)] = found;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(work);
        }
    });
    rows.into_inner().expect("nobody panics with it")
}

fn write_table(out: &mut impl Write, variants: &[Variant], rows: &[Row]) -> io::Result<()> {
    let all = &rows[0];
    let total = |row: &Row| {
        let mut sum = Measure::default();
        row.generated.iter().for_each(|it| sum.add(it));
        sum
    };
    for (name, measure) in [("generated", total(all)), ("recorded", all.recorded)] {
        let Shares {
            needs,
            old,
            newest,
            question,
            cached,
            cost,
            changed: _,
        } = measure.shares();
        writeln!(
            out,
            "all rules, {name}: needs {needs:.3}, old {old:.3}, newest {newest:.3}, question {question:.3}, cached {cached:.3}, cost {cost:.0}; \
             retried {}, refused {}, invalid {}",
            measure.retried, measure.refused, measure.invalid
        )?;
    }
    let mean = |of: fn(&KeptThinking) -> f64| {
        all.thinking.iter().map(of).sum::<f64>() / all.thinking.len() as f64
    };
    writeln!(
        out,
        "all rules, bound thinking: kept {:.3}, cost {:.0}\n",
        mean(|it| it.recent),
        mean(|it| it.cost)
    )?;
    writeln!(
        out,
        "{:<36} {:>7} {:>7} {:>7} {:>7} {:>8} {:>7} {:>7} {:>5} {:>5} {:>5} | {:>7} {:>6} {:>6} {:>6} {:>8} {:>6} {:>5} | {:>6} {:>7} {:>5}",
        "without",
        "changed",
        "needs",
        "old",
        "newest",
        "question",
        "cached",
        "cost",
        "retr",
        "ref",
        "inv",
        "changed",
        "needs",
        "old",
        "newest",
        "question",
        "cost",
        "ref",
        "kept",
        "cost",
        "ref"
    )?;
    for (variant, row) in variants.iter().zip(rows).skip(1) {
        let changed = 100.0 * total(row).shares().changed;
        write!(out, "{:<36} {changed:>7.1}", variant.name)?;
        let pairs = || row.generated.iter().zip(&all.generated);
        for share in [
            |now: &Shares, was: &Shares| 100.0 * (now.needs - was.needs),
            |now: &Shares, was: &Shares| 100.0 * (now.old - was.old),
            |now: &Shares, was: &Shares| 100.0 * (now.newest - was.newest),
            |now: &Shares, was: &Shares| 100.0 * (now.question - was.question),
            |now: &Shares, was: &Shares| 100.0 * (now.cached - was.cached),
            |now: &Shares, was: &Shares| 100.0 * (now.cost / was.cost - 1.0),
        ] {
            let differences = pairs().map(|(now, was)| share(&now.shares(), &was.shares()));
            write!(
                out,
                " {}",
                show_difference(&differences.collect::<Vec<_>>())
            )?;
        }
        let (now, was) = (total(row), total(all));
        let count = |now: u64, was: u64| now as i64 - was as i64;
        for difference in [
            count(now.retried, was.retried),
            count(now.refused, was.refused),
            count(now.invalid, was.invalid),
        ] {
            write!(out, " {difference:>5}")?;
        }
        let (now, was) = (row.recorded.shares(), all.recorded.shares());
        write!(
            out,
            " | {:>7.1} {:>6.1} {:>6.1} {:>6.1} {:>8.1} {:>6.1} {:>5}",
            100.0 * now.changed,
            100.0 * (now.needs - was.needs),
            100.0 * (now.old - was.old),
            100.0 * (now.newest - was.newest),
            100.0 * (now.question - was.question),
            100.0 * (now.cost / was.cost - 1.0),
            count(
                row.recorded.refused + row.recorded.invalid,
                all.recorded.refused + all.recorded.invalid
            ),
        )?;
        let pairs = || row.thinking.iter().zip(&all.thinking);
        let kept = pairs().map(|(now, was)| 100.0 * (now.recent - was.recent));
        let cost = pairs().map(|(now, was)| 100.0 * (now.cost / was.cost - 1.0));
        let refused: i64 = pairs()
            .map(|(now, was)| count(now.refused, was.refused))
            .sum();
        writeln!(
            out,
            " | {} {} {refused:>5}",
            show_difference(&kept.collect::<Vec<_>>()),
            show_difference(&cost.collect::<Vec<_>>()),
        )?;
    }
    writeln!(out)
}

/// The mean of differences, with a star if it is more than their standard deviation.
fn show_difference(differences: &[f64]) -> String {
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let squares = differences
        .iter()
        .map(|it| (it - mean).powi(2))
        .sum::<f64>();
    let is_sure = mean.abs() >= 0.05 && mean.abs() > (squares / (count - 1.0)).sqrt();
    format!("{mean:>6.1}{}", if is_sure { '*' } else { ' ' })
}
