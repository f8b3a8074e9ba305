//! A peer's processes: their core, processor time and memory, and stopping them while others are
//! measured.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The core of the measured peer, and that of provider and load.
pub(crate) const PEER: usize = 0;
pub(crate) const LOAD: usize = 1;

/// Ticks of `/proc` per second, on every Linux.
const TICKS: f64 = 100.0;

/// Is ended with all of its children when dropped.
pub(crate) struct PeerProcess {
    child: Child,
    /// Settings and data, removed with the process.
    _folder: TempDir,
}

/// Pins this thread and its children to the load's core, with a higher priority where that is
/// allowed.
pub(crate) fn pin_this_thread() -> io::Result<()> {
    let _ = rustix::process::setpriority_process(None, -15);
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(LOAD);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

impl PeerProcess {
    /// Starts a command on the peer's core, with its output in a file in `folder`.
    pub(crate) fn start(command: &Command, folder: TempDir) -> io::Result<Self> {
        let log = fs::File::create(folder.path().join("log"))?;
        let mut pinned = Command::new("taskset");
        pinned
            .args(["-c", &PEER.to_string()])
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => pinned.env(name, value),
                None => pinned.env_remove(name),
            };
        }
        Ok(Self {
            child: pinned.spawn()?,
            _folder: folder,
        })
    }

    /// The end of its output, where it has exited.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        let log = fs::read_to_string(self._folder.path().join("log")).unwrap_or_default();
        let line = log.lines().rev().find(|line| !line.trim().is_empty());
        Some(format!("{status}: {}", line.unwrap_or("no output").trim()))
    }

    /// The process with all its descendants.
    fn process_ids(&self) -> Vec<u32> {
        let mut parents = BTreeMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(process) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            if let Some(parent) =
                read_stat(process).and_then(|fields| fields.get(1)?.parse::<u32>().ok())
            {
                parents.insert(process, parent);
            }
        }
        let mut tree = vec![self.child.id()];
        let mut at = 0;
        while let Some(&parent) = tree.get(at) {
            tree.extend(parents.iter().filter(|it| *it.1 == parent).map(|it| it.0));
            at += 1;
        }
        tree
    }

    /// Processor time of all of them in seconds, ended ones included.
    pub(crate) fn cpu(&self) -> f64 {
        let ticks = |process| -> Option<f64> {
            let fields = read_stat(process)?;
            let field = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok());
            // utime, stime, cutime, cstime.
            Some(field(11)? + field(12)? + field(13)? + field(14)?)
        };
        let all: f64 = self.process_ids().into_iter().filter_map(ticks).sum();
        all / TICKS
    }

    /// Bytes of memory: the resident set, or the proportional share where there are several processes.
    pub(crate) fn memory(&self) -> f64 {
        let tree = self.process_ids();
        let field = if tree.len() > 1 { "Pss:" } else { "Rss:" };
        let kilobytes = |process: u32| -> Option<f64> {
            let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace().next()?.parse().ok()
        };
        tree.into_iter().filter_map(kilobytes).sum::<f64>() * 1024.0
    }

    /// # Errors
    /// If a thread of any of its processes may run on another core.
    pub(crate) fn check_core(&self) -> io::Result<()> {
        for process in self.process_ids() {
            let threads = fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"));
            for thread in threads.into_iter().flatten().flatten() {
                let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                let allowed = status
                    .lines()
                    .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
                if allowed.is_some_and(|cores| cores.trim() != PEER.to_string()) {
                    return Err(io::Error::other(format!(
                        "a thread of process {process} left core {PEER}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Stops all of them, or lets them continue.
    pub(crate) fn pause_process(&self, rests: bool) {
        self.signal(if rests { Signal::STOP } else { Signal::CONT });
    }

    fn signal(&self, signal: Signal) {
        for process in self.process_ids() {
            if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
                // A process that has just ended needs no signal.
                let _ = kill_process(process, signal);
            }
        }
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The fields of `/proc/PID/stat` after the name, which may contain spaces.
fn read_stat(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields = text.rsplit_once(')')?.1;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}
