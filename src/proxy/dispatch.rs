//! Who is asked, in which order, and when again.
//!
//! The one owner of retries and fallbacks: nothing below it sends a request twice but to heal it
//! (`attempt.rs`), nothing above it sends one at all. All of it happens before a byte of an
//! answer has reached the client, and none of it after an answer began that is the client's own.
//! Every place is sent a request that was fitted to its window and grammar.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, request::Parts};

use super::{
    App,
    begin_summary::begin_compaction,
    candidates::Candidates,
    generation::{Generation, PlanInput},
    outgoing::{outgoing_headers, with_query},
    request_options::RequestOptions,
    send::{ProviderReply, SendError},
};
use crate::{
    config::Auth,
    error::Failure,
    http::body,
    provider::{
        Target, Unsent,
        breaker::{Permit, State},
        retry::{self, Budget, Outcome},
    },
    relay::Spoken,
    session::Inherited,
    telemetry::{Operation, record::Notes},
    wire::chat::Conversation,
};

/// The request of a chat completion, as far as it is understood.
pub struct ParsedRequest {
    /// The body as it came.
    pub bytes: Bytes,
    /// `None`: JSON, but no conversation that we can follow. It goes on as it came.
    pub conversation: Option<Arc<Conversation>>,
    /// Empty if there is none.
    pub model: String,
    pub streams: bool,
}

/// All that is needed to send a request, and to send it again.
pub struct Dispatch {
    pub(super) app: Arc<App>,
    pub(super) asked: ParsedRequest,
    /// Who is asked now.
    pub(super) target: Target,
    /// Who may be asked next.
    candidates: Candidates,
    /// The request has gone to a larger model once.
    widened: bool,
    pub(super) path: String,
    /// As they go to the provider.
    pub(super) headers: HeaderMap,
    /// As they came.
    pub(super) parts: Parts,
    /// What it continues, and who asks; `None` where there is no conversation to follow.
    inherited: Option<(Inherited, RequestOptions)>,
    /// The same.
    pub generation: Option<Box<Generation>>,
    budget: Budget,
    /// For whoever watches: the log, the metrics, the trace.
    pub notes: Notes,
    /// Calls to providers so far, and the time that they took.
    pub(super) calls: u32,
    pub(super) took: Duration,
    /// Times that the request was fitted anew after an overflow, at this place.
    pub(super) refits: u32,
}

/// What came of asking one place.
enum Tried {
    /// The client's answer, or one that began and broke: nobody else is asked for it.
    Final(Result<ProviderReply, SendError>),
    /// Somebody else may do better.
    Failed(Result<ProviderReply, SendError>),
}

impl Dispatch {
    /// Plans the request for the first of `targets` that can be asked; `None` where there is none.
    pub fn new(
        app: &Arc<App>,
        parts: Parts,
        asked: ParsedRequest,
        targets: Vec<Target>,
        inherited: Option<(Inherited, RequestOptions)>,
        notes: Notes,
    ) -> Option<Self> {
        let mut candidates = Candidates::new(targets);
        let target = candidates.next()?;
        let budget = Budget::new(app.config.retry, &parts.headers, Instant::now());
        let mut dispatch = Self {
            path: String::new(),
            headers: HeaderMap::new(),
            app: Arc::clone(app),
            asked,
            target,
            candidates,
            widened: false,
            parts,
            inherited,
            generation: None,
            budget,
            notes,
            calls: 0,
            took: Duration::ZERO,
            refits: 0,
        };
        dispatch.plan();
        Some(dispatch)
    }

    pub const fn streams(&self) -> bool {
        self.asked.streams
    }

    /// The name of the provider that answers.
    pub fn provider(&self) -> &str {
        &self.target.provider.name
    }

    /// The client's headers, as they came.
    pub const fn client_headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Asks one place after the other until an answer is the client's.
    ///
    /// # Errors
    /// No answer began anywhere, or one broke off.
    pub async fn send(&mut self) -> Result<ProviderReply, Failure> {
        loop {
            self.note();
            // Boxed, so that what waits for an answer stays small.
            let tried = Box::pin(self.at_place()).await;
            self.notes.facts().attempts = Some(self.calls);
            let failed = match tried {
                Tried::Final(tried) => return Ok(tried?),
                Tried::Failed(failed) => failed,
            };
            let too_long = failed.as_ref().is_ok_and(|sent| sent.too_long);
            let left = Arc::clone(&self.target.provider);
            if !self.move_on(too_long) {
                return Ok(failed?);
            }
            let fallbacks = &self.app.metrics.fallbacks;
            fallbacks.with_label_values(&[&*left.name]).inc();
            tracing::warn!(
                from = &*left.name,
                to = self.provider(),
                model = self.target.model,
                "a request goes on to another place"
            );
        }
    }

    /// Asks this place, and again as far as that is allowed.
    async fn at_place(&mut self) -> Tried {
        let mut retries = 0;
        loop {
            let provider = Arc::clone(&self.target.provider);
            let permit = provider.breaker.admit(Instant::now());
            let permit = permit.unwrap_or_else(|| provider.breaker.force());
            self.budget.spend();
            let tried = self.attempt().await;
            let (outcome, after) = self.judge(&tried, permit);
            if outcome == Outcome::Final {
                return match tried {
                    Ok(sent) if sent.too_long => Tried::Failed(Ok(sent)),
                    Err(SendError::Unsent(unsent)) => Tried::Failed(Err(unsent.into())),
                    tried => Tried::Final(tried),
                };
            }
            let again = outcome != Outcome::Denied && !self.better_elsewhere();
            let wait = self.budget.wait(retries, after, Instant::now(), chance());
            let Some(wait) = wait.filter(|_| again) else {
                return Tried::Failed(tried);
            };
            drop(tried);
            let name = [&*provider.name];
            self.app.metrics.retries.with_label_values(&name).inc();
            tokio::time::sleep(wait).await;
            retries += 1;
        }
    }

    /// What an attempt means for the next one, and for the breaker; and how long the provider asks
    /// to be left alone.
    fn judge(
        &self,
        tried: &Result<ProviderReply, SendError>,
        permit: Permit<'_>,
    ) -> (Outcome, Option<Duration>) {
        let (now, name) = (Instant::now(), self.provider());
        let metrics = &self.app.metrics;
        let sent = match tried {
            Ok(sent) => sent,
            // The client's own doing.
            Err(SendError::Unsent(
                Unsent::BodyBroken | Unsent::BodySlow { .. } | Unsent::NoModel { .. },
            )) => {
                metrics.count_attempt(name, "unsent");
                return (Outcome::Final, None);
            }
            Err(SendError::Unsent(_)) => {
                permit.failed(now);
                metrics.count_attempt(name, "unsent");
                return (Outcome::Failed, None);
            }
            Err(SendError::Failing(_)) => {
                permit.failed(now);
                metrics.count_attempt(name, "failed");
                return (Outcome::Failed, None);
            }
            Err(SendError::Broken(_)) => {
                permit.failed(now);
                metrics.count_attempt(name, "failed");
                return (Outcome::Final, None);
            }
        };
        let ours = matches!(self.target.provider.config.auth, Auth::Key(_));
        let outcome = match sent.too_long {
            true => Outcome::Final,
            false => retry::outcome(sent.answer.status(), ours),
        };
        let after = retry::retry_after(sent.answer.headers(), SystemTime::now());
        match outcome {
            Outcome::Failed => permit.failed(now),
            _ => permit.succeeded(),
        }
        // A client's own account may have reached its limit: the others have theirs.
        if outcome == Outcome::Busy
            && !matches!(self.target.provider.config.auth, Auth::Client)
            && let Some(length) = after
        {
            self.target.provider.breaker.rest(now, length);
        }
        let word = match outcome {
            Outcome::Final => "answer",
            Outcome::Busy => "busy",
            Outcome::Failed => "failed",
            Outcome::Denied => "denied",
        };
        metrics.count_attempt(name, word);
        (outcome, after)
    }

    /// Whether this place's breaker has opened while somebody else can answer.
    fn better_elsewhere(&self) -> bool {
        let state = self.target.provider.breaker.state(Instant::now());
        state == State::Open && self.candidates.any_admits()
    }

    /// Plans for the next place; `false` where there is none, or no time for it. A request that is
    /// `too_long` for this place goes only to one that can hold more.
    fn move_on(&mut self, too_long: bool) -> bool {
        if !self.budget.may_go_on(Instant::now()) {
            return false;
        }
        if too_long {
            self.candidates.keep_larger(self.target.window.tokens);
            if let Some(larger) = self.larger() {
                self.candidates.put_first(larger);
            }
        }
        let Some(target) = self.candidates.next() else {
            return false;
        };
        self.target = target;
        self.plan();
        true
    }

    /// Fits the request to the place that is asked now.
    fn plan(&mut self) {
        self.refits = 0;
        self.generation = self.planned(&self.target);
        let larger = self.larger().filter(|_| !self.widened);
        if let Some(generation) = &self.generation
            && let Some(larger) = larger
            && generation.wants_room(&larger)
            && larger.provider.breaker.admit(Instant::now()).is_some()
        {
            tracing::info!(
                from = self.target.model,
                to = larger.model,
                "a conversation goes to a larger model instead of being cut"
            );
            // Should that fail, the conversation is cut after all.
            self.widened = true;
            let smaller = std::mem::replace(&mut self.target, larger);
            self.candidates.put_first(smaller);
            self.generation = self.planned(&self.target);
        }
        let (app, provider) = (&self.app, &self.target.provider);
        self.path = with_query(app, "/chat/completions", &self.parts, provider);
        self.headers = outgoing_headers(app, &self.parts, provider, true);
        body::without_encoding(&mut self.headers);
    }

    /// The model to use instead of cutting, unless it would be sent credentials of the client that are
    /// for somebody else.
    fn larger(&mut self) -> Option<Target> {
        let larger = self.app.registry.larger(&self.target)?;
        self.candidates.may_lend_to(&larger).then_some(larger)
    }

    fn planned(&self, target: &Target) -> Option<Box<Generation>> {
        let (inherited, options) = self.inherited.as_ref()?;
        let conversation = self.asked.conversation.as_ref()?;
        let inherited = inherited.clone();
        let app = &self.app;
        // What came of a summary that the request waited for holds at any place.
        let before = self.generation.as_ref();
        let compaction = match before {
            Some(generation) => generation.compaction.clone(),
            None => begin_compaction(app, conversation, &inherited, *options),
        };
        let input = PlanInput {
            inherited,
            options: *options,
            compaction,
            notes: self.notes.clone(),
        };
        let planned = Generation::plan(app, conversation, target, input);
        Some(Box::new(planned))
    }

    /// Who is asked now, and for what.
    fn note(&self) {
        let (provider, model) = (&self.target.provider, &*self.target.model);
        let spelt_out = || self.app.registry.is_spelt_out(provider, model);
        let metrics = &self.app.metrics;
        let labels = metrics.label_model(Operation::Chat, &provider.name, model, spelt_out);
        let mut facts = self.notes.facts();
        facts.provider = Some(provider.name.to_string());
        facts.model_labels = Some(labels);
        drop(facts);
        if let Some(generation) = &self.generation {
            generation.note();
            generation.log_plan();
        }
    }

    /// What is still needed once the request cannot go out again: its body is let go.
    pub fn into_generation(self) -> Option<Box<Generation>> {
        self.generation
    }

    /// Whether the request goes out with anything that recovery added.
    pub fn carries_ours(&self) -> bool {
        let generation = self.generation.as_ref();
        generation.is_some_and(|generation| generation.carries_ours())
    }

    /// Tokens to add to the usage that the client reads.
    pub fn left_out(&self) -> Option<u32> {
        self.generation.as_ref()?.left_out()
    }

    /// The model had its last round without our tools, and called them all the same.
    pub fn exhausted(&self) -> bool {
        self.generation.as_ref().is_none_or(|it| it.exhausted())
    }

    /// An answer was for us alone: plans the request that follows.
    pub fn plan_round(&mut self, spoken: &Spoken) {
        if let (Some(generation), Some(conversation)) =
            (&mut self.generation, &self.asked.conversation)
        {
            generation.round(conversation, spoken);
        }
    }
}

/// A number in 0..1, for waits that differ from client to client.
fn chance() -> f64 {
    let bits = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
