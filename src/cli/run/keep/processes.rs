//! The processes that a keeper watches: the client and the proxy.

pub(super) use system::{is_running, stop_client, wait_for_client};

#[cfg(unix)]
mod system {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};
    use tokio::time::{Instant, sleep};

    use super::super::{CLIENT_ENDS_WITHIN, POLL};

    fn parse_id(process: u32) -> Option<Pid> {
        Pid::from_raw(i32::try_from(process).ok()?)
    }

    pub(in super::super) fn is_running(process: u32) -> bool {
        // A zombie has ended: in a container there may be nobody to reap it.
        let status = std::fs::read_to_string(format!("/proc/{process}/stat"));
        let has_ended = status.is_ok_and(|status| status.contains(") Z "));
        !has_ended && parse_id(process).is_some_and(|id| test_kill_process(id).is_ok())
    }

    /// The client is the parent, and keeps its process id to its end.
    fn is_client(client: u32) -> bool {
        std::os::unix::process::parent_id() == client
    }

    pub(in super::super) async fn wait_for_client(client: u32) {
        while is_client(client) {
            sleep(POLL).await;
        }
    }

    pub(in super::super) async fn stop_client(client: u32) {
        for signal in [Signal::TERM, Signal::KILL] {
            let begun = Instant::now();
            if let Some(id) = parse_id(client).filter(|_| is_client(client)) {
                // It may end by itself meanwhile.
                let _ = kill_process(id, signal);
            }
            while is_client(client) && begun.elapsed() < CLIENT_ENDS_WITHIN {
                sleep(POLL).await;
            }
        }
    }
}

/// The command waits for the client and for this process, and stops the client where this one ends first.
#[cfg(not(unix))]
mod system {
    use tokio::{io::AsyncReadExt as _, task::yield_now};

    pub(in super::super) fn is_running(_process: u32) -> bool {
        false
    }

    /// The input ends with the command.
    pub(in super::super) async fn wait_for_client(_client: u32) {
        let _ = tokio::io::stdin().read_u8().await;
    }

    pub(in super::super) async fn stop_client(_client: u32) {
        yield_now().await;
    }
}
