//! `GET events`: what happens to sessions and providers, as server-sent events, for as long as the
//! reader stays.
//!
//! What this process does is told at once. What other replicas do is found by reading the newest
//! sessions again every three seconds, and only when all that was heard is told, so that nothing older comes
//! after something newer; what was told before is not told again. The stream ends when the
//! proxy does, and when its settings change, since a key may have gone with them: its reader comes
//! again. It is written as fast as it is read, and nothing is kept for a reader that is slow but the
//! word that it missed something.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use lru::LruCache;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
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
    session::SessionId,
    store::Page,
    wire::Body,
};

/// How often providers are looked at, and the newest sessions read for what other replicas did. Each time a
/// comment goes out, so that nobody on the way thinks that the connection is dead.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Sessions that are read at a time.
const POLLED: usize = 100;
/// What changed so shortly before is told at the beginning: a reader that had the list first misses
/// nothing. Seconds.
const SHORTLY: u64 = 60;
/// Sessions of which is remembered what was told last; more than are read at once.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1_000).expect("not zero");

const COMMENT: Bytes = Bytes::from_static(b": still here\n\n");
/// Something was missed: the reader is to read its list anew.
const RESYNC: Bytes = Bytes::from_static(b"event: resync\ndata: {}\n\n");

/// # Errors
/// As many listen as may.
pub(super) fn stream_events(app: &Arc<App>, who: Requester) -> Result<Response<Body>, Failure> {
    let heard = app.session_events.subscribe(who.account);
    let heard = heard.ok_or(Failure::TooManyListeners {
        all: MAX_LISTENERS,
        per_client: MAX_LISTENERS_PER_ACCOUNT,
    })?;
    // Due at once, and then so long after each time that it was looked at.
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener = EventReader {
        ended: app.listener_token(),
        app: Arc::clone(app),
        who,
        subscription: heard,
        sent_digests: LruCache::new(REMEMBERED),
        providers: None,
        others: None,
        begun: false,
        looks,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next_events().await?;
        Some((Ok(Frame::data(event)), listener))
    });
    Ok(answer::event_stream_response(
        StreamBody::new(events).boxed_unsync(),
    ))
}

/// One reader.
struct EventReader {
    app: Arc<App>,
    who: Requester,
    subscription: SessionSubscription,
    ended: CancellationToken,
    /// Digests of what was told last.
    sent_digests: LruCache<SessionId, u64>,
    providers: Option<u64>,
    /// How many sessions other keys have, as it was told last.
    others: Option<u64>,
    /// The newest sessions were read once.
    begun: bool,
    looks: Interval,
}

impl EventReader {
    /// The next events; `None` at the end.
    async fn next_events(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return None,
                // Before anything is read from the store, so that what is read is not older than
                // what was told.
                heard = self.subscription.next_event() => match heard {
                    SessionEvent::Changed(told) => if let Some(event) = self.session_event(&told) {
                        return Some(event);
                    },
                    SessionEvent::Missed => {
                        self.sent_digests.clear();
                        return Some(RESYNC);
                    }
                },
                _ = self.looks.tick() => {
                    let events = [self.poll_providers(), self.poll_sessions().await, self.poll_other_keys().await];
                    self.looks.reset();
                    let events = events.into_iter().flatten();
                    let told: Vec<_> = std::iter::once(COMMENT).chain(events).collect();
                    return Some(told.concat().into());
                }
            }
        }
    }

    /// How many sessions other keys have, where that may be told and is another number.
    async fn poll_other_keys(&mut self) -> Option<Bytes> {
        let counted = session_list::count_others(&self.app, &self.who).await?;
        let changed = self.others.replace(counted) != Some(counted);
        let told = serde_json::json!({ "of_other_keys": counted }).to_string();
        changed.then(|| write_event("others", told.as_bytes()))
    }

    fn poll_providers(&mut self) -> Option<Bytes> {
        let body = serde_json::to_vec(&providers::describe_providers(&self.app, &self.who))
            .unwrap_or_default();
        let digest = xxh3_64(&body);
        let changed = self.providers.replace(digest) != Some(digest);
        changed.then(|| write_event("providers", &body))
    }

    /// What a session is like, unless that was told.
    fn session_event(&mut self, told: &SessionChange) -> Option<Bytes> {
        let digest = xxh3_64(&told.overview);
        let changed = self.sent_digests.put(told.session, digest) != Some(digest);
        changed.then(|| write_event("session", &told.overview))
    }

    /// Reads the newest sessions: what changed of them since it was told.
    async fn poll_sessions(&mut self) -> Option<Bytes> {
        let page = Page {
            skip: 0,
            take: POLLED,
        };
        let found = self
            .app
            .sessions
            .list_sessions(self.who.account.as_ref(), page)
            .await;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(error = %format_error_chain(&error), "the newest sessions could not be read");
                return None;
            }
        };
        let first = !std::mem::replace(&mut self.begun, true);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.map_or(0, |now| now.as_secs().saturating_sub(SHORTLY));
        let mut events = Vec::new();
        // The oldest first, as they happened.
        for known in found.sessions.iter().rev() {
            let news = self.session_event(&SessionChange::from_session(known));
            let news = news.filter(|_| !first || known.state.updated_s >= since);
            events.extend(news);
        }
        if !first && events.len() == POLLED {
            // There may be more behind them.
            return Some(RESYNC);
        }
        (!events.is_empty()).then(|| events.concat().into())
    }
}

/// `data` is on one line.
fn write_event(name: &str, data: &[u8]) -> Bytes {
    [b"event: ", name.as_bytes(), b"\ndata: ", data, b"\n\n"]
        .concat()
        .into()
}
