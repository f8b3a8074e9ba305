//! Beginning a summary with a request: before the request is sent, or after its answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};

use super::{
    App,
    dispatch::Dispatch,
    generation::{Generation, reported},
    request_options::{GuardMode, RequestOptions},
    traced_send,
};
use crate::{
    compaction::{
        self, BackoffSubject, CompactionStep, JobRequest, JobStart, Outcome, Summariser,
        SummaryClient, SummaryJob, choose_summary_model,
    },
    guard::{
        self, Policy, Recall,
        estimate::{Calibration, SLOPES},
    },
    http::{body, limit::Hold},
    provider::{Outgoing, Payload, Target, Unsent},
    proxy::outgoing::{outgoing_headers, with_query},
    relay::Heard,
    session::{Account, Inherited, SessionId},
    telemetry::{Operation, trace::Trace},
    wire::{
        Body,
        chat::Conversation,
        edit::{Edits, Rope},
    },
};

/// How long the store may take for an outcome.
const STORE_WITHIN: Duration = Duration::from_secs(5);
/// Names a request, so that the same one is not carried out twice: the request for a summary is another.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What a summary needs of a request, without the client's connection.
pub struct SummarySource {
    conversation: Arc<Conversation>,
    /// The summary model, and how it is asked.
    target: Target,
    path: String,
    headers: HeaderMap,
    /// Room for the body.
    _hold: Hold,
}

impl SummaryClient for SummarySource {
    async fn send(&self, trace: &Trace, body: Bytes) -> Result<Response<Body>, Unsent> {
        let outgoing = Outgoing {
            method: Method::POST,
            path: self.path.clone(),
            headers: self.headers.clone(),
            body: Payload::Whole(Rope::from(body)),
            model: Some(self.target.model.clone()),
        };
        traced_send::send(
            trace,
            &self.target.provider,
            Some(Operation::Chat),
            outgoing,
        )
        .await
    }
}

impl Dispatch {
    /// Keeps what a summary needs, where one may be begun after the answer to this request.
    pub fn keep_for_summary(&self) -> Option<SummarySource> {
        let generation = self.generation.as_ref()?;
        generation
            .may_begin_after()
            .then(|| self.summary_source())?
    }

    /// `None` where there is no room for the body among the bytes in flight.
    ///
    /// SECURITY: what a client sends in its headers and its query is for the provider of its
    /// conversation, whose key may stand under any name there. No other provider gets it.
    pub(super) fn summary_source(&self) -> Option<SummarySource> {
        let conversation = self.asked.conversation.as_ref()?;
        let (app, own) = (&self.app, &self.target);
        let mut hold = app.flight.hold();
        if !hold.grow(conversation.body.len()) {
            return None;
        }
        let seed = self.generation.as_ref()?.inherited.session.seed();
        let target = choose_summary_model(&app.registry, &app.config.compaction, own, seed);
        let provider = &target.provider;
        let (mut bare, ()) = Request::new(()).into_parts();
        if let Some(agent) = self.parts.headers.get(USER_AGENT) {
            bare.headers.insert(USER_AGENT, agent.clone());
        }
        let same = provider.config.base_url == own.provider.config.base_url;
        let parts = if same { &self.parts } else { &bare };
        let path = with_query(app, "/chat/completions", parts, provider);
        let mut headers = outgoing_headers(app, parts, provider, true);
        body::without_encoding(&mut headers);
        headers.remove(IDEMPOTENCY_KEY);
        let json = HeaderValue::from_static("application/json");
        headers.insert(ACCEPT, json.clone());
        headers.insert(CONTENT_TYPE, json);
        Some(SummarySource {
            conversation: Arc::clone(conversation),
            target,
            path,
            headers,
            _hold: hold,
        })
    }
}

/// Begins compaction's part in a request. Whether summaries are automatic is decided by the request,
/// else by its session, else by the settings.
pub fn begin_compaction(
    app: &App,
    conversation: &Conversation,
    inherited: &Inherited,
    options: RequestOptions,
) -> CompactionStep {
    let state = inherited.state.as_ref();
    if inherited.compacted {
        app.summary_jobs.mark_used(&summary_user(inherited));
        app.summary_jobs.mark_used(&account_of(inherited));
    }
    let switch = options.auto_compact.or(inherited.orders.auto_compact);
    let keys = inherited.lineage.keys(0);
    CompactionStep {
        memory: state.map_or_else(Default::default, |state| state.compaction.clone()),
        generations: state.map_or(0, |state| state.generations).saturating_add(1),
        key: keys.filter(|_| !inherited.lost).map(|keys| keys.bare),
        guards: options.mode == GuardMode::Guard && !conversation.is_auxiliary(),
        auto: switch.unwrap_or(app.config.compaction.auto),
        ordered: inherited
            .compact_ordered
            .then_some(inherited.orders.compacts),
        fresh: inherited.compacted,
        left_out: false,
    }
}

/// Whose requests are to use a summary of the conversation.
pub(super) fn summary_user(inherited: &Inherited) -> BackoffSubject {
    match inherited.state {
        Some(_) => BackoffSubject::Session(*inherited.session.bytes()),
        None => account_of(inherited),
    }
}

fn account_of(inherited: &Inherited) -> BackoffSubject {
    BackoffSubject::Account(*inherited.lineage.tenant().account().bytes())
}

impl Generation {
    /// Whether summaries are made without an order: only where a source names the window.
    pub(super) fn compacts_automatically(&self) -> bool {
        let wanted = self.compaction.auto && self.compaction.guards && self.guards();
        let known = self.target.window.known().is_some();
        if wanted && !known {
            self.app.summary_jobs.warn_unknown_window(&self.target);
        }
        wanted && known
    }

    /// Whether a summary may be begun with this request.
    pub(super) fn may_begin_summary(&self) -> bool {
        self.guards() && self.compaction.may_begin(self.compacts_automatically())
    }

    /// Whether a summary may be begun after the answer to this request, so that its body is kept. The
    /// estimate may be far off: where half of it is not past the threshold, no answer is expected to be.
    fn may_begin_after(&self) -> bool {
        let near = self.expected() >= self.threshold() / 2;
        self.may_begin_summary() && (self.compaction.is_ordered() || near)
    }

    fn threshold(&self) -> u32 {
        compaction::threshold(&self.plan.report.budget, &self.app.config.compaction)
    }

    /// Begins a summary after an answer, where one is due. The job is to be run once the state that
    /// names it is stored.
    pub(super) fn begin_summary_after(
        &mut self,
        heard: &Heard,
        source: Option<SummarySource>,
    ) -> Option<SummaryJob<SummarySource>> {
        let source = source.filter(|_| self.may_begin_summary())?;
        if !self.compaction.is_ordered() && !self.answer_passes(heard, &source.conversation) {
            return None;
        }
        let memory = self.plan.memory.clone();
        self.begin_summary(source, self.edits(), &memory)
    }

    /// Begins a summary before the request is sent. The conversation is summarised as it would go out
    /// uncut, since the summary is to tell what a cut would take away.
    pub(super) fn begin_summary_first(
        &mut self,
        source: SummarySource,
    ) -> Option<SummaryJob<SummarySource>> {
        let recall = Recall {
            calibration: Calibration::of_ratio(*SLOPES.start()),
            ours: self.ours(),
            ..self.recall.clone()
        };
        let uncut = guard::plan(&source.conversation, &self.policy(), &recall);
        self.begin_summary(source, uncut.edits, &uncut.memory)
    }

    /// Whether the request and its answer are past the threshold together, as the next request will be:
    /// by the provider's count, or by the estimate where the provider reports none.
    fn answer_passes(&self, heard: &Heard, conversation: &Conversation) -> bool {
        // The provider did not count all that was sent.
        if self.cut_in_silence {
            return false;
        }
        let prompt = reported(heard).unwrap_or_else(|| self.expected());
        let answer = heard.usage.and_then(|usage| usage.completion_tokens);
        self.is_past_threshold(prompt.saturating_add(answer.unwrap_or(0)), conversation)
    }

    /// Whether so many tokens of this conversation are past the threshold, also without the old tool
    /// rounds that can be cleared: they need no summary.
    pub(super) fn is_past_threshold(&self, tokens: u32, conversation: &Conversation) -> bool {
        let past = |tokens: u32| tokens >= self.threshold();
        past(tokens) && past(tokens.saturating_sub(self.clearable_tokens(conversation)))
    }

    /// Tokens that clearing would free of the conversation as it went out.
    fn clearable_tokens(&self, conversation: &Conversation) -> u32 {
        let mut settings = self.app.config.guard.clone();
        settings.clear.at = 0.0;
        let policy = Policy {
            settings: &settings,
            ..self.policy()
        };
        let recall = Recall {
            memory: self.plan.memory.clone(),
            ours: self.ours(),
            ..self.recall.clone()
        };
        let cleared = guard::plan(conversation, &policy, &recall).report.raw_after;
        let freed = self.plan.report.raw_after.saturating_sub(cleared);
        (f64::from(freed) * self.recall.calibration.slope()) as u32
    }

    /// Begins a summary of a conversation with these edits, of which the guard remembers this.
    fn begin_summary(
        &mut self,
        source: SummarySource,
        edits: Edits,
        memory: &guard::Memory,
    ) -> Option<SummaryJob<SummarySource>> {
        let conversation = Arc::clone(&source.conversation);
        let due = compaction::due(&conversation, &self.policy(), memory, &self.ours());
        let Some(due) = due else {
            if self.compaction.is_ordered() {
                tracing::info!(
                    session = %self.inherited.session,
                    "a summary was ordered, but there is too little to summarise"
                );
            }
            self.compaction.settle_order();
            return None;
        };
        let (app, target) = (&self.app, source.target.clone());
        let start = app.summary_jobs.begin(JobRequest {
            key: self.compaction.key?,
            id: app.sessions.job(),
            model: BackoffSubject::of_model(&target),
            user: summary_user(&self.inherited),
            ordered: self.compaction.is_ordered(),
            max_running: app.config.compaction.max_running,
        });
        let ticket = match start {
            JobStart::New(ticket) => ticket,
            JobStart::Joined(id) => {
                self.compaction.set_job(id);
                return None;
            }
            JobStart::Failed => {
                self.compaction.record_failure();
                return None;
            }
            JobStart::Skipped => return None,
        };
        self.compaction.set_job(ticket.id());
        let own = target.provider.place == self.target.provider.place
            && target.model == self.target.model;
        let calibration = match own {
            true => self.recall.calibration,
            false => app.ratios.of(&target.provider.name, &target.model),
        };
        let language = self.recovering.language();
        // Drawn after the conversation was written, and shown to nobody.
        let nonce = ticket.id().bytes();
        Some(SummaryJob {
            ticket,
            client: source,
            conversation,
            edits,
            due,
            summariser: Summariser::for_model(
                &target,
                own,
                calibration,
                language,
                &app.config,
                nonce,
            ),
            target,
            timeout: app.config.compaction.timeout,
            session: self.inherited.session.to_string(),
            trace: self.noted.trace.clone(),
        })
    }

    /// Runs the job that was begun after the answer. Stores the outcome of the job that this request
    /// has begun or joined, also before its answer, beside its session. To be called once the state
    /// that names the job is stored: before that there may be no session to store the outcome beside.
    pub(super) fn run_summary(&self, job: Option<SummaryJob<SummarySource>>) {
        let app = &self.app;
        if let Some(job) = job {
            app.jobs.spawn(job.run());
        }
        let new = self.compaction.new_job();
        if let Some(result) = new.and_then(|id| app.summary_jobs.follow(id)) {
            let (app, session) = (Arc::clone(app), self.inherited.session);
            let account = self.inherited.lineage.tenant().account();
            self.app.jobs.spawn(async move {
                if let Ok(outcome) = result.await {
                    store_outcome(&app, &account, session, outcome).await;
                }
            });
        }
    }
}

/// Stores an outcome beside a session, where the next request of the branch finds it.
async fn store_outcome(app: &App, account: &Account, session: SessionId, outcome: Outcome) {
    let stored = app.sessions.conclude(account, session, outcome);
    match tokio::time::timeout(STORE_WITHIN, stored).await {
        Ok(Ok(Some(known))) => app.news.tell(&known),
        // The session has expired.
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::warn!(
            %session, error = crate::error::chain(&error),
            "the outcome of a summary was not stored"
        ),
        Err(_) => tracing::warn!(%session, "the outcome of a summary was not stored in time"),
    }
}
