//! `GET events`: changes of sessions and providers as server-sent events, until the reader leaves.
//!
//! Changes by this process are sent at once. Changes by other replicas are found by a poll of the newest sessions every
//! three seconds. A poll runs only after all pending changes were sent, so that no older state of a session follows a
//! newer one. Unchanged sessions are not sent again.
//!
//! The stream ends when the proxy ends, and when the settings change, since they may have removed the reader's key;
//! then readers connect again. Nothing is buffered for a slow reader: it gets a `resync` event.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use lru::LruCache;
use tokio::time::{Interval, MissedTickBehavior, interval};
use xxhash_rust::xxh3::xxh3_64;

use super::{Requester, providers, session_list};
use crate::{
    error::{Failure, format_error_chain},
    http::answer,
    proxy::{
        App,
        session_events::{
            MAX_LISTENERS, MAX_LISTENERS_PER_ACCOUNT, SessionChange, SessionEvent,
            SessionSubscription,
        },
    },
    session::{SessionError, SessionId},
    store::Page,
    unix_time::unix_seconds_now,
    wire::Body,
};

/// Interval of the polls of providers and of the newest sessions. Each sends a comment, so that
/// intermediaries keep the connection open.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Sessions per poll.
const POLLED: usize = 100;
/// The first poll sends changes of this many last seconds, for readers that got the list before.
const RECENT_SECONDS: u64 = 60;
/// Sessions whose last event is remembered; more than one poll reads.
const MAX_REMEMBERED: NonZeroUsize = NonZeroUsize::new(1_000).expect("not zero");

const COMMENT: Bytes = Bytes::from_static(b": still here\n\n");
/// Events were missed; the reader must read its list again.
const RESYNC: Bytes = Bytes::from_static(b"event: resync\ndata: {}\n\n");

pub(super) fn stream_events(
    app: &Arc<App>,
    requester: Requester,
) -> Result<Response<Body>, Failure> {
    let subscription = app.session_events.subscribe(requester.account);
    // The first tick comes at once.
    let mut poll_timer = interval(POLL_INTERVAL);
    poll_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let reader = EventReader {
        app: Arc::clone(app),
        requester,
        subscription: subscription.ok_or(Failure::TooManyListeners {
            all: MAX_LISTENERS,
            per_client: MAX_LISTENERS_PER_ACCOUNT,
        })?,
        sent_digests: LruCache::new(MAX_REMEMBERED),
        providers_digest: None,
        other_keys: None,
        has_polled: false,
        poll_timer,
    };
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next_events().await?;
        Some((Ok(Frame::data(event)), reader))
    });
    let body = StreamBody::new(events).boxed_unsync();
    Ok(answer::event_stream_response(body))
}

struct EventReader {
    app: Arc<App>,
    requester: Requester,
    subscription: SessionSubscription,
    /// The digest of the last event of each session.
    sent_digests: LruCache<SessionId, u64>,
    /// The digest of the last event of the providers.
    providers_digest: Option<u64>,
    /// Sessions of other keys in the last event.
    other_keys: Option<u64>,
    has_polled: bool,
    poll_timer: Interval,
}

impl EventReader {
    /// The next events; `None` at the end.
    async fn next_events(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                () = self.app.listening.cancelled() => return None,
                // Before a poll, so that the store is not older than the last event.
                event = self.subscription.next_event() => match event {
                    SessionEvent::Changed(change) => if let Some(event) = self.write_session_event(&change) {
                        return Some(event);
                    },
                    SessionEvent::Missed => {
                        self.sent_digests.clear();
                        return Some(RESYNC);
                    }
                },
                _ = self.poll_timer.tick() => {
                    let events = [self.poll_providers(), self.poll_sessions().await, self.poll_other_keys().await];
                    self.poll_timer.reset();
                    let events = events.into_iter().flatten();
                    let sent: Vec<_> = std::iter::once(COMMENT).chain(events).collect();
                    return Some(sent.concat().into());
                }
            }
        }
    }

    /// The number of sessions of other keys, if the reader may know it and it changed.
    async fn poll_other_keys(&mut self) -> Option<Bytes> {
        let count = session_list::count_others(&self.app, &self.requester).await?;
        let changed = self.other_keys.replace(count) != Some(count);
        let data = serde_json::json!({ "of_other_keys": count }).to_string();
        changed.then(|| write_event("others", data.as_bytes()))
    }

    fn poll_providers(&mut self) -> Option<Bytes> {
        let providers = providers::describe_providers(&self.app, &self.requester);
        let data = serde_json::to_vec(&providers).unwrap_or_default();
        let digest = xxh3_64(&data);
        let changed = self.providers_digest.replace(digest) != Some(digest);
        changed.then(|| write_event("providers", &data))
    }

    /// The overview of a session, unless it was sent before.
    fn write_session_event(&mut self, change: &SessionChange) -> Option<Bytes> {
        let reader = self
            .requester
            .choose_reader(&self.app, Some(&change.account));
        let overview = change.overview_for(reader);
        let digest = xxh3_64(overview);
        let changed = self.sent_digests.put(change.session, digest) != Some(digest);
        changed.then(|| write_event("session", overview))
    }

    /// Changes of the newest sessions.
    async fn poll_sessions(&mut self) -> Option<Bytes> {
        let page = Page {
            skip: 0,
            take: POLLED,
        };
        let account = self.requester.account.as_ref();
        let found = self.app.sessions.list_sessions(account, page).await;
        let log_failure = |error: &SessionError| {
            let error = format_error_chain(error);
            tracing::debug!(%error, "the newest sessions could not be read");
        };
        let found = found.inspect_err(log_failure).ok()?;
        let first = !std::mem::replace(&mut self.has_polled, true);
        let since = unix_seconds_now().saturating_sub(RECENT_SECONDS);
        let mut events = Vec::new();
        // The oldest first, in the order of the changes.
        for view in found.sessions.iter().rev() {
            let event = self.write_session_event(&SessionChange::from_session(view));
            events.extend(event.filter(|_| !first || view.state.updated_s >= since));
        }
        if !first && events.len() == POLLED {
            // Further sessions may have changed.
            return Some(RESYNC);
        }
        (!events.is_empty()).then(|| events.concat().into())
    }
}

/// `data` must be a single line.
fn write_event(name: &str, data: &[u8]) -> Bytes {
    [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"]
        .concat()
        .into()
}
