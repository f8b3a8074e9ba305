//! One request from its first byte to its last. Read this file first.
//!
//! `server/handle.rs` finds the client and the route (step 1). For a request with a conversation it calls
//! [`exchange_conversation`], which has these steps:
//!
//! 1. the client and the route
//! 2. the body, within limits
//! 3. the index: where every field and message lies in the body
//! 4. the model: its candidates and their windows
//! 5. the session that the conversation continues
//! 6. the plan: what recovery adds, and what the guard cuts. If the client asks for its conversation to be compacted, and
//!    the proxy does that, the request is answered here
//! 7. the summary of the older part, if the request waits for one; back to 6 with it
//! 8. the provider; again if it refuses what the proxy added
//! 9. the answer, relayed as it comes. Calls of the proxy's tools are taken out of it; if the model calls nothing else, back
//!    to 6 for the next tool round. At the end of the answer its usage is judged, recovery's clock advances, and the new
//!    state is stored
//!
//! Each step passes its values to the next: a [`ClientRequest`], made ready for one candidate as a
//! [`ProviderRequest`], with a [`PlannedRequest`](super::PlannedRequest) in it. An edited body is
//! a rope of the client's bytes and new ones. Before an answer begins nothing has reached the client, so a step may
//! still fail with an error of the proxy. The exception is a stream that waits for its summary (step 7).

use std::sync::Arc;

use http::{Response, request::Parts};

use super::{
    App, ClientRequest, CompactionShape, GuardMode, ProviderRequest, SessionContext,
    answer::{answer_compaction, answer_while_waiting, relay_answer},
    client_request::{ParsedRequest, parse_request},
    dispatch::{fallbacks::Fallbacks, send_with_fallbacks},
    logins::find_login_account,
    outgoing::{check_credentials, choose_provider},
    plan::LastRequest,
    request_options::{RequestClass, RequestOptions},
    summary::{begin_summary_wait, wait_for_summary},
};
use crate::{
    config::{ClientCompaction, Threads},
    conversation::Format,
    error::Failure,
    http::{
        admission::Client,
        body::{ReceivedBody, RequestBody},
        model_access::{no_such_model, retain_allowed},
        tasks::run_beside_tasks,
    },
    provider::{ModelCandidates, Target},
    session::{ClientIdentity, InheritedSession, SessionHint},
    store::Account,
    telemetry::record::{RequestNotes, RequestRecord},
    wire::{
        Body,
        model::{find_model_in_query, shallow_parse},
    },
};

/// A request with a conversation, before its body is read.
pub struct IncomingRequest<'a> {
    pub format: Format,
    pub parts: Parts,
    pub client: &'a Client,
    /// The provider that the path names.
    pub provider: Option<&'a str>,
    /// The shape of the answer, if the client asks for its conversation to be compacted and the proxy does that.
    pub compaction: CompactionShape,
}

/// Answers a request with a conversation.
///
/// # Errors
/// The exchange fails before an answer began.
pub async fn exchange_conversation(
    app: &Arc<App>,
    incoming: IncomingRequest<'_>,
    body: &mut RequestBody,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    // 2. The body, within limits.
    let (headers, limits) = (&incoming.parts.headers, &app.config.server);
    let read = body.read_unpacked(headers, limits, &app.inflight_bytes);
    let received = read.await?;
    exchange_body(app, incoming, received, record).await
}

/// Answers a request with a conversation whose body was read already.
///
/// # Errors
/// The exchange fails before an answer began.
pub async fn exchange_body(
    app: &Arc<App>,
    incoming: IncomingRequest<'_>,
    received: ReceivedBody,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Failure> {
    let ReceivedBody { bytes, hold } = received;

    // 3. The index.
    let (size, format) = (bytes.len(), incoming.format);
    let sender = identify_client(&incoming);
    let sender = app.sessions.tenants.derive_account(sender);
    let prefixes = Some((&*app.known_prefixes, *sender.as_bytes()));
    let mut parsed = run_beside_tasks(size, || parse_request(format, bytes, prefixes))?;
    record.set_model(&parsed.model);

    // 4. The model.
    let candidates = choose_candidates(app, &incoming, &parsed)?;
    leave_out_forgotten(&mut parsed, &candidates);

    // 5. The session, and what other replicas learnt.
    let headers = &incoming.parts.headers;
    let options = RequestOptions::from_headers(headers, incoming.client.has_recovery());
    let notes = &record.notes;
    let inherit = inherit_session(app, &incoming, &parsed, &candidates, sender, options, notes);
    let inherited = inherit.await;

    // 6. The plan, for the first candidate; for the others only when they are asked.
    let shape = incoming.compaction;
    let request = join_request(app, incoming, parsed, options, inherited, &record.notes);
    let mut fallbacks = Fallbacks::new(&request, candidates);
    let prepared = fallbacks.plan_first_candidate(&request);
    let mut prepared = prepared.ok_or_else(|| no_such_model(&request.parsed.model))?;

    if refuses_thread(&request, &prepared) {
        let provider = prepared.target.provider.name.to_string();
        return Err(Failure::ThreadRefused { provider });
    }

    // A compaction is answered here, and by no provider.
    if answers_compaction(&request) {
        return Ok(Box::pin(answer_compaction(request, prepared, shape, hold)).await);
    }

    // 7. The summary, if the request waits for one. A stream begins at once.
    if let Some(wait) = begin_summary_wait(&request, &mut prepared) {
        if request.parsed.streams {
            return Ok(answer_while_waiting(
                request, prepared, fallbacks, wait, hold,
            ));
        }
        wait_for_summary(&request, &mut prepared, wait).await;
    }

    // 8. The provider.
    let answered = Box::pin(send_with_fallbacks(&request, prepared, fallbacks)).await?;

    // 9. The answer.
    relay_answer(request, answered, hold).await
}

fn identify_client<'a>(incoming: &'a IncomingRequest<'_>) -> ClientIdentity<'a> {
    ClientIdentity::from_headers(incoming.client.name.as_deref(), &incoming.parts.headers)
}

/// Step 4: chooses the candidates that the client may use, and whose provider supports the format of the request.
///
/// SECURITY: a limited key needs exactly one model name, in the body. Parsers differ in which of two names they take,
/// and some gateways prefer a name in the query.
fn choose_candidates(
    app: &App,
    incoming: &IncomingRequest<'_>,
    parsed: &ParsedRequest,
) -> Result<ModelCandidates, Failure> {
    let (parts, client, model) = (&incoming.parts, incoming.client, &*parsed.model);
    let chosen = choose_provider(app, parts, incoming.provider, model);
    let mut candidates = app.registry.choose_candidates(model, chosen)?;
    let names_one = || {
        let in_query = find_model_in_query(parts.uri.query().unwrap_or_default());
        let parse = || shallow_parse(&parsed.bytes).named.names;
        in_query.names == 0 && run_beside_tasks(parsed.bytes.len(), parse) == 1
    };
    let is_certain = client.is_unlimited() || names_one();
    if !is_certain || !retain_allowed(&mut candidates, &app.registry, client) {
        return Err(no_such_model(model));
    }
    candidates.retain_checked(|target| check_credentials(parts, &target.provider))?;
    candidates.retain_speakers(parsed.format)?;
    Ok(candidates)
}

/// Leaves reasoning of earlier turns out of the sizes of the conversation, if all candidates are known not to read it, and
/// the request does not say which reasoning the model reads.
fn leave_out_forgotten(parsed: &mut ParsedRequest, candidates: &ModelCandidates) {
    let forgets = |target: &Target| target.provider.find_notes(&target.model).forgets_turns;
    let conversation = parsed.conversation.as_mut().and_then(Arc::get_mut);
    if let Some(conversation) = conversation.filter(|it| !it.names_reasoning_context())
        && candidates.targets().all(forgets)
    {
        conversation.leave_out_earlier_reasoning();
    }
}

/// Step 5: finds the session and, for a repeat, the request that it repeats; and takes over what other replicas learnt.
/// `None` if there is no conversation to follow.
async fn inherit_session(
    app: &App,
    incoming: &IncomingRequest<'_>,
    parsed: &ParsedRequest,
    candidates: &ModelCandidates,
    sender: Account,
    options: RequestOptions,
    notes: &RequestNotes,
) -> Option<(InheritedSession, Option<Arc<LastRequest>>)> {
    let span = notes.trace.begin_child("plimsoll.store.find");
    let conversation = parsed.conversation.as_ref()?;
    let (headers, sessions) = (&incoming.parts.headers, &app.sessions);
    let is_passed_on = matches!(identify_client(incoming), ClientIdentity::PassedOn(_));
    let login = || find_login_account(app, &incoming.parts, candidates);
    let account = if is_passed_on { login() } else { None }.unwrap_or(sender);
    let tenants = &sessions.tenants;
    let tenant = tenants.derive_tenant_of(account, headers, Some(conversation));
    let hint = SessionHint::from_request(headers, Some(conversation));
    let inherit = sessions.inherit_session(conversation, &tenant, hint.as_ref());
    let mut inherited = inherit.await;
    drop(span);
    let redeems = conversation.redeems_credit();
    let may_repeat =
        redeems || options.class == RequestClass::WarmsCache || conversation.may_fill_cache();
    let repeated = may_repeat.then(|| {
        let digest = inherited.lineage.digest_prompt(conversation);
        app.last_requests.find(digest)
    });
    let repeated = repeated.flatten();
    if let Some(last) = &repeated {
        inherited.session = last.session;
    }
    let is_auxiliary = [RequestClass::Auxiliary, RequestClass::WarmsCache].contains(&options.class);
    if repeated.is_some() && !redeems || is_auxiliary {
        inherited.store_nothing();
    }
    if inherited.lineage.stores_state() {
        sessions
            .names
            .note_request(inherited.session, headers, conversation);
    }
    // A store that just failed is not waited for again.
    if !inherited.store_failed {
        let passed = !inherited.lineage.probes.is_empty();
        app.replica_sync.pull(&app.registry, passed).await;
    }
    Some((inherited, repeated))
}

/// The request with the session that it continues.
fn join_request(
    app: &Arc<App>,
    incoming: IncomingRequest<'_>,
    parsed: ParsedRequest,
    options: RequestOptions,
    inherited: Option<(InheritedSession, Option<Arc<LastRequest>>)>,
    notes: &RequestNotes,
) -> ClientRequest {
    let parts = incoming.parts;
    let names_reasoning = || {
        let conversation = parsed.conversation.as_ref();
        conversation.is_some_and(|it| it.names_reasoning_context())
    };
    let session = inherited.map(|(inherited, repeated)| SessionContext {
        names_reasoning: names_reasoning(),
        app: Arc::clone(app),
        inherited,
        options,
        repeated,
        notes: notes.clone(),
    });
    ClientRequest {
        app: Arc::clone(app),
        parts,
        parsed,
        session,
        notes: notes.clone(),
    }
}

/// Whether the client leaves a conversation to a thread at the provider, although the guard could fit the conversation, and
/// the settings refuse such threads.
fn refuses_thread(request: &ClientRequest, prepared: &ProviderRequest) -> bool {
    let conversation = request.parsed.conversation.as_ref();
    conversation.is_some_and(|it| it.is_managed_by_thread())
        && prepared.target.provider.config.threads == Threads::Refuse
        && prepared
            .planned
            .as_ref()
            .is_some_and(|it| it.is_open_to_changes())
}

/// Whether the client asks for its conversation to be compacted, and the proxy compacts it in place of a provider.
fn answers_compaction(request: &ClientRequest) -> bool {
    let config = &request.app.config;
    config.responses.compaction == ClientCompaction::Answer
        && config.guard.enabled
        && request.followed_conversation().is_some_and(|followed| {
            followed.session.options.mode == GuardMode::Guard
                && followed.conversation.can_be_compacted()
        })
}
