//! Copies bytes both ways between two upgraded connections until one of them ends.
//!
//! Bytes are never read, and at most one buffer is held in each direction.
//! CANCEL: dropping the future closes both connections.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    time::{Instant, sleep_until, timeout},
};

/// Bytes held in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// How long one side may still send after the other has ended.
const LINGER: Duration = Duration::from_secs(5);

const CLIENT_CLOSED: &str = "client_closed";
const PROVIDER_CLOSED: &str = "provider_closed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelStats {
    /// Bytes from the client.
    pub sent: u64,
    /// Bytes from the provider.
    pub received: u64,
    /// Why it ended, as a label: `client_closed`, `provider_closed`, `idle` or `broken`.
    pub ended: &'static str,
}

/// When bytes last moved, in either direction.
struct IdleClock {
    begun: Instant,
    moved_ms: AtomicU64,
}

/// Copies bytes until one side ends, or nothing moves for `idle`.
pub async fn tunnel_bytes(
    client: impl AsyncRead + AsyncWrite,
    provider: impl AsyncRead + AsyncWrite,
    idle: Duration,
) -> TunnelStats {
    let clock = IdleClock {
        begun: Instant::now(),
        moved_ms: AtomicU64::new(0),
    };
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let (from_client, to_client) = split(client);
    let (from_provider, to_provider) = split(provider);
    let ended = {
        let up = pump_direction(from_client, to_provider, &clock, &sent);
        let down = pump_direction(from_provider, to_client, &clock, &received);
        tokio::pin!(up, down);
        let ended = tokio::select! {
            ended = &mut up => ended.map(|()| CLIENT_CLOSED),
            ended = &mut down => ended.map(|()| PROVIDER_CLOSED),
            () = clock.wait_for_silence(idle) => Ok("idle"),
        };
        // The other side may still send, such as the answer to a close frame.
        let _ = match ended {
            Ok(CLIENT_CLOSED) => timeout(LINGER, down).await,
            Ok(PROVIDER_CLOSED) => timeout(LINGER, up).await,
            _ => Ok(Ok(())),
        };
        ended.unwrap_or("broken")
    };
    TunnelStats {
        sent: sent.into_inner(),
        received: received.into_inner(),
        ended,
    }
}

/// Copies one direction to its end, and shuts down the other side.
async fn pump_direction(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    clock: &IdleClock,
    count: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
        clock.note_progress();
        count.fetch_add(read as u64, Relaxed);
    }
}

impl IdleClock {
    fn note_progress(&self) {
        let elapsed = self.begun.elapsed().as_millis();
        self.moved_ms
            .store(u64::try_from(elapsed).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns when nothing has moved for `limit`.
    async fn wait_for_silence(&self, limit: Duration) {
        loop {
            let due = self.begun + Duration::from_millis(self.moved_ms.load(Relaxed)) + limit;
            if Instant::now() >= due {
                return;
            }
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::{TunnelStats, tunnel_bytes};

    #[tokio::test(start_paused = true)]
    async fn the_end_of_one_side_ends_the_other() {
        let (mut client, client_side) = duplex(8);
        let (provider_side, mut provider) = duplex(8);
        let idle = Duration::from_secs(60);
        let talk = async {
            client.write_all(b"a question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut received = Vec::new();
            provider.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, b"a question");
            provider.write_all(b"an answer").await.unwrap();
            drop(provider);
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, b"an answer");
        };
        let (stats, ()) = tokio::join!(tunnel_bytes(client_side, provider_side, idle), talk);
        let expected = TunnelStats {
            sent: 10,
            received: 9,
            ended: "client_closed",
        };
        assert_eq!(stats, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_does_not_end_is_closed() {
        let (client, client_side) = duplex(8);
        let (provider_side, mut provider) = duplex(8);
        drop(client);
        let stats = tunnel_bytes(client_side, provider_side, Duration::from_secs(60)).await;
        assert_eq!(stats.ended, "client_closed");
        assert_eq!(provider.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_tunnel_ends() {
        let (mut client, client_side) = duplex(8);
        let (provider_side, mut provider) = duplex(8);
        let begun = tokio::time::Instant::now();
        let talk = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            provider.write_all(b"x").await.unwrap();
            client.read_exact(&mut [0]).await.unwrap();
            client.read(&mut [0]).await.unwrap_or(0)
        };
        let (stats, read) = tokio::join!(
            tunnel_bytes(client_side, provider_side, Duration::from_secs(60)),
            talk
        );
        assert_eq!((stats.ended, read), ("idle", 0));
        assert_eq!(begun.elapsed().as_secs(), 100);
    }
}
