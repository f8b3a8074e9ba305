//! Writes the log to standard error: lines gather in one buffer, which a thread writes every [`FLUSH_EVERY`].
//!
//! A line costs a request one copy, and neither a system call nor a wake of the thread. An error is written at once.

use std::{
    io::{self, Write},
    mem,
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line waits at most. A process that is killed loses those that wait.
pub(super) const FLUSH_EVERY: Duration = Duration::from_millis(20);

/// Most bytes that wait, where nobody reads the log. A line is usually well under a kilobyte.
const MOST_WAITING: usize = 16 << 20;

/// Bytes of a buffer that is kept for the next lines.
const KEPT_BYTES: usize = 64 << 10;

/// How long the last lines may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Gives the log's lines to the thread that writes them.
#[derive(Clone)]
pub(super) struct LogWriter(Arc<LogBuffer>);

/// Dropping it writes the lines that wait, within about a second.
#[must_use = "the last lines are written where it is dropped"]
pub struct LogGuard(Arc<LogBuffer>);

#[derive(Default)]
struct LogBuffer {
    waiting: Mutex<WaitingLines>,
    /// Notified when lines come, when an error is among them, and when the log is closed or has ended.
    changed: Condvar,
}

#[derive(Default)]
struct WaitingLines {
    bytes: Vec<u8>,
    has_error: bool,
    is_closed: bool,
    has_ended: bool,
}

/// One line.
pub(super) struct LineWriter<'a> {
    buffer: &'a LogBuffer,
    is_error: bool,
}

/// Starts the thread, which writes to `out` until the guard is dropped. A line waits for `flush_every` at most, and an error for
/// nothing.
///
/// # Errors
/// There is no thread.
pub(super) fn start_writer(
    out: impl Write + Send + 'static,
    flush_every: Duration,
) -> io::Result<(LogWriter, LogGuard)> {
    let buffer = Arc::new(LogBuffer::default());
    let written = Arc::clone(&buffer);
    thread::Builder::new()
        .name("plimsoll-log".to_owned())
        .spawn(move || written.write_until_closed(out, flush_every))?;
    Ok((LogWriter(Arc::clone(&buffer)), LogGuard(buffer)))
}

impl LogBuffer {
    fn write_until_closed(&self, mut out: impl Write, flush_every: Duration) {
        let mut lines = Vec::new();
        loop {
            let mut waiting = self.waiting.lock();
            self.changed
                .wait_while(&mut waiting, |it| it.bytes.is_empty() && !it.is_closed);
            let may_wait = |it: &mut WaitingLines| !it.has_error && !it.is_closed;
            self.changed
                .wait_while_for(&mut waiting, may_wait, flush_every);
            if waiting.bytes.is_empty() {
                waiting.has_ended = true;
                self.changed.notify_all();
                return;
            }
            waiting.has_error = false;
            mem::swap(&mut waiting.bytes, &mut lines);
            drop(waiting);
            // Nobody reads it: there is nothing to report that to.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            lines.clear();
            lines.shrink_to(KEPT_BYTES);
        }
    }
}

impl Write for LineWriter<'_> {
    /// Takes a whole line, or loses it where too many wait.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.buffer.waiting.lock();
        let wakes = waiting.bytes.is_empty() || self.is_error && !waiting.has_error;
        if waiting.bytes.len() + line.len() <= MOST_WAITING {
            waiting.bytes.extend_from_slice(line);
            waiting.has_error |= self.is_error;
        }
        drop(waiting);
        if wakes {
            self.buffer.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LineWriter<'a>;

    // Without metadata, no error is known.
    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter {
            buffer: &self.0,
            is_error: false,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LineWriter<'a> {
        LineWriter {
            buffer: &self.0,
            is_error: *metadata.level() == Level::ERROR,
        }
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        waiting.is_closed = true;
        self.0.changed.notify_all();
        let is_open = |it: &mut WaitingLines| !it.has_ended;
        self.0
            .changed
            .wait_while_for(&mut waiting, is_open, CLOSE_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Passes each write on, as a reader that reads when it likes.
    struct SentWrites(Sender<Vec<u8>>);

    impl Write for SentWrites {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let sent = self.0.send(bytes.to_vec());
            sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A reader that reads nothing until its sender is dropped.
    struct StalledReader(Receiver<()>);

    impl Write for StalledReader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn put_line(log: &LogWriter, line: &str, is_error: bool) {
        let buffer = &*log.0;
        let mut writer = LineWriter { buffer, is_error };
        writer.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn lines_are_written_whole_in_their_order_and_the_last_ones_at_the_end() {
        let (sender, writes) = channel();
        let (log, guard) = start_writer(SentWrites(sender), HOUR).unwrap();
        let lines: Vec<_> = (0..1_000).map(|at| format!("line {at}\n")).collect();
        for line in &lines {
            put_line(&log, line, false);
        }
        drop(guard);
        assert_eq!(
            writes.iter().flatten().collect::<Vec<_>>(),
            lines.concat().as_bytes()
        );
    }

    #[test]
    fn an_error_waits_for_nothing_and_takes_with_it_what_waits() {
        let (sender, writes) = channel();
        let (log, _guard) = start_writer(SentWrites(sender), HOUR).unwrap();
        put_line(&log, "a line\n", false);
        put_line(&log, "an error\n", true);
        let written = writes.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(written, b"a line\nan error\n");
    }

    #[test]
    fn a_line_needs_nothing_to_follow_it() {
        let (sender, writes) = channel();
        let (log, _guard) = start_writer(SentWrites(sender), FLUSH_EVERY).unwrap();
        for line in ["a\n", "b\n"] {
            put_line(&log, line, false);
            let written = writes.recv_timeout(Duration::from_secs(30));
            assert_eq!(written.as_deref(), Ok(line.as_bytes()));
        }
    }

    #[test]
    fn a_stalled_reader_blocks_nothing_and_lines_that_wait_are_bounded() {
        let (stall, stalled) = channel();
        let (log, guard) = start_writer(StalledReader(stalled), FLUSH_EVERY).unwrap();
        let line = "x".repeat(1 << 20);
        for _ in 0..64 {
            put_line(&log, &line, false);
        }
        assert!(log.0.waiting.lock().bytes.len() <= MOST_WAITING);
        // It ends although the reader still stalls.
        drop(guard);
        drop(stall);
    }
}
