//! Counts of what was generated, which show that nothing was left out.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use plimsoll::guard::Plan;

use crate::draw::DrawnCase;

#[derive(Default)]
pub(crate) struct PlanTally {
    bytes: u64,
    /// Bodies by size, in powers of four kilobytes.
    sizes: [u64; 7],
    counts: BTreeMap<String, u64>,
    all: u64,
}

impl PlanTally {
    pub(crate) fn count(&mut self, drawn: &DrawnCase, plan: &Plan) {
        self.all += 1;
        self.bytes += drawn.body.len() as u64;
        let mut step = 0;
        while step + 1 < self.sizes.len() && drawn.body.len() >= 1_024 << (2 * step) {
            step += 1;
        }
        self.sizes[step] += 1;
        let report = &plan.report;
        let recall = &drawn.knowledge.injections;
        let done = [
            ("went as it came", plan.edits.is_empty()),
            ("folded", report.folded.is_some()),
            ("truncated", !report.truncated.is_empty()),
            ("tightened", plan.memory.count_tightened() > 0),
            ("cleared", report.cleared.is_some()),
            ("caps and shares", report.texts.has_content()),
            ("a course", report.course.is_some()),
            ("our tools", !report.tools.is_empty()),
            ("over its budget", report.over_budget),
            ("records of ours", !recall.records.is_empty()),
            ("a record that had no place", report.records_left_out > 0),
            ("a summary", recall.summary.is_some()),
        ];
        for (name, _) in done.iter().filter(|(_, done)| *done) {
            self.note((*name).into());
        }
        if let Some(reason) = report.stood_back {
            self.note(format!("stood back: {}", reason.header_word()));
        }
        self.note(format!("profile {}", drawn.profile.name));
        self.note(format!("shape {:?}", drawn.recipe.shape));
    }

    fn note(&mut self, what: String) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.bytes += other.bytes;
        for (mine, theirs) in self.sizes.iter_mut().zip(other.sizes) {
            *mine += theirs;
        }
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
    }

    pub(crate) fn write(&self, out: &mut impl Write, took: Duration) -> io::Result<()> {
        let each = self.all.max(1);
        let seconds = took.as_secs_f64();
        let rate = self.all as f64 / seconds.max(1e-9);
        writeln!(
            out,
            "{} conversations in {seconds:.1} s, {rate:.0} a second",
            self.all
        )?;
        writeln!(out, "{} bytes, {} each", self.bytes, self.bytes / each)?;
        let names = [
            "under 1 KiB",
            "4 KiB",
            "16 KiB",
            "64 KiB",
            "256 KiB",
            "1 MiB",
            "above",
        ];
        for (name, count) in names.iter().zip(self.sizes) {
            writeln!(out, "{count:>9}  {name}")?;
        }
        for (name, count) in &self.counts {
            writeln!(out, "{count:>9}  {name}")?;
        }
        out.flush()
    }
}
