//! Where the demo is drawn: a panel that is redrawn in a terminal, a line per step elsewhere.

use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};

use super::{
    agent::Reading,
    gauge::{bar, legend, level, prompts},
    tally::{EVENTS, Tally},
};
use crate::{cli::table::grouped, health::limits::Limits};

// Control sequences of ECMA-48, and of xterm for the modes 7 and 25.
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
/// A row that wraps would break the redrawing of the panel: the terminal clips it at its width.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";
const CLEAR_LINE: &str = "\x1b[2K";
const RESET_COLOUR: &str = "\x1b[0m";

/// What stays the same for the whole session.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    pub(super) model: String,
    pub(super) window: u32,
    pub(super) limits: Limits,
    pub(super) steps: u32,
}

/// The output, and how many lines of a panel stand on it.
pub(super) struct Screen<W: Write> {
    out: W,
    live: bool,
    colour: bool,
    drawn: u16,
}

impl Screen<BufWriter<Stdout>> {
    /// The process's own output.
    pub(super) fn of_process() -> Self {
        let live = io::stdout().is_terminal();
        Self {
            out: BufWriter::new(io::stdout()),
            live,
            colour: live && std::env::var_os("NO_COLOR").is_none(),
            drawn: 0,
        }
    }
}

impl<W: Write> Screen<W> {
    /// Lines of text, into anything.
    #[cfg(test)]
    pub(super) fn plain(out: W) -> Self {
        Self {
            out,
            live: false,
            colour: false,
            drawn: 0,
        }
    }

    /// Whether someone is watching, so that steps are worth a pause.
    pub(super) const fn live(&self) -> bool {
        self.live
    }

    pub(super) fn open(&mut self, scale: &Scale) -> io::Result<()> {
        if self.live {
            write!(self.out, "{HIDE_CURSOR}")?;
        }
        writeln!(
            self.out,
            "A long coding session in a window of {} tokens ({}), simulated: no key, no network.\n",
            grouped(scale.window.into()),
            scale.model
        )?;
        self.out.flush()
    }

    pub(super) fn step(
        &mut self,
        scale: &Scale,
        reading: &Reading,
        tally: &Tally,
    ) -> io::Result<()> {
        if self.live {
            self.panel(scale, reading, tally)?;
        } else {
            self.line(scale, reading, tally)?;
        }
        self.out.flush()
    }

    pub(super) fn close(&mut self, scale: &Scale, tally: &Tally) -> io::Result<()> {
        writeln!(
            self.out,
            "\n{} requests, {} refused, {} folds, {} tool results truncated, \
             window at most {:.1} % full, {:.1} % of {} prompt tokens read from the provider's cache, \
             {} recovery prompts, {} new courses, {} reminders kept ({})",
            tally.requests,
            tally.refused,
            tally.folds,
            tally.truncations,
            tally.fullest * 100.0,
            tally.cached_percent(),
            grouped(tally.prompt_tokens),
            tally.prompts,
            tally.courses,
            tally.reminders,
            scale.model,
        )?;
        self.out.flush()
    }

    fn line(&mut self, scale: &Scale, reading: &Reading, tally: &Tally) -> io::Result<()> {
        let used = reading.prompt_tokens.unwrap_or(0);
        write!(
            self.out,
            "step {:>4}  turn {:>3}  [{}] {:>9} of {} tokens  {:<8}  cached {:>4.1} %  {}",
            tally.requests,
            reading.turn,
            bar(used, scale.window, &scale.limits, '#', '.'),
            grouped(used.into()),
            grouped(scale.window.into()),
            reading.level,
            tally.cached_percent(),
            reading.actions,
        )?;
        let told = reading.recovery.told();
        if !told.is_empty() {
            write!(self.out, "  ({told})")?;
        }
        match &reading.refused {
            Some(said) => writeln!(self.out, "  REFUSED {said}")?,
            None => writeln!(self.out)?,
        }
        for event in &reading.recovery.events {
            writeln!(self.out, "  ==> {}", event.told())?;
        }
        Ok(())
    }

    fn panel(&mut self, scale: &Scale, reading: &Reading, tally: &Tally) -> io::Result<()> {
        let rows = rows(scale, reading, tally);
        if self.drawn > 0 {
            write!(self.out, "\x1b[{}A", self.drawn)?;
        }
        write!(self.out, "{WRAP_OFF}")?;
        for (at, row) in rows.iter().enumerate() {
            if self.colour && COLOURED.contains(&at) {
                let colour = colour_of(&reading.level);
                writeln!(self.out, "{CLEAR_LINE}{colour}{row}{RESET_COLOUR}")?;
            } else {
                writeln!(self.out, "{CLEAR_LINE}{row}")?;
            }
        }
        write!(self.out, "{WRAP_ON}")?;
        self.drawn = rows.len() as u16;
        Ok(())
    }
}

impl<W: Write> Drop for Screen<W> {
    /// Leaves the terminal as it was found, however the demo ends.
    fn drop(&mut self) {
        if self.live {
            // The terminal may be gone; nothing is left to tell then.
            let _ = write!(self.out, "{RESET_COLOUR}{WRAP_ON}{SHOW_CURSOR}");
            let _ = self.out.flush();
        }
    }
}

/// The panel, always of as many rows: the bar and the level stand in those that are coloured.
fn rows(scale: &Scale, reading: &Reading, tally: &Tally) -> Vec<String> {
    let used = reading.prompt_tokens.unwrap_or(0);
    let percent = 100.0 * f64::from(used) / f64::from(scale.window.max(1));
    let told = reading.recovery.told();
    let mut rows = vec![
        format!(
            "step    {} of {}, turn {}",
            tally.requests, scale.steps, reading.turn
        ),
        format!(
            "sent    {} messages, {} bytes; the model did: {}",
            reading.messages,
            grouped(reading.bytes as u64),
            reading.did
        ),
        format!(
            "window  {} of {} tokens, {percent:.1} %",
            grouped(used.into()),
            grouped(scale.window.into())
        ),
        bar(used, scale.window, &scale.limits, '█', '░'),
        legend(scale.window, &scale.limits),
        prompts(&tally.prompted_at, scale.window),
        format!("level   {}", level(&reading.level)),
        match &reading.refused {
            Some(said) => format!("REFUSED {said}"),
            None => format!("guard   {}", reading.actions),
        },
        match told.as_str() {
            "" => "memory  nothing to keep yet".to_owned(),
            told => format!("memory  {told}"),
        },
        format!(
            "cached  {:.1} % of all prompt tokens so far",
            tally.cached_percent()
        ),
        format!(
            "total   {} folds, {} results truncated, {} requests refused, {} prompts, \
             {} new courses, {} reminders kept",
            tally.folds,
            tally.truncations,
            tally.refused,
            tally.prompts,
            tally.courses,
            tally.reminders
        ),
    ];
    // Rows for events that are still to come: a panel that grows could not be redrawn in place.
    let mut events = tally.events.iter();
    rows.extend((0..EVENTS).map(|_| match events.next() {
        Some((step, event)) => format!("step {step:>4}: {}", event.told()),
        None => String::new(),
    }));
    rows
}

/// Rows of the panel in the colour of the level.
const COLOURED: [usize; 2] = [3, 6];

/// The control sequence for the colour of a level.
fn colour_of(level: &str) -> &'static str {
    match level {
        "healthy" => "\x1b[32m",
        "caution" => "\x1b[33m",
        "critical" => "\x1b[31m",
        _ => "\x1b[37m",
    }
}

#[cfg(test)]
mod tests;
