//! Requests to providers: path, query and headers, without the client's keys and without hop-by-hop headers.

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderName, Method, Response,
    header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL},
    request::Parts,
};
use memchr::memmem;

use super::App;
use crate::{
    config::{
        Auth,
        profile::{name_window_betas, read_window_betas},
    },
    conversation::{Api, Format},
    error::Failure,
    format::beta_header::{BETA_HEADER, Beta, add_beta, add_beta_value},
    http::{
        admission::{self, KEY_PROTOCOL},
        body,
    },
    provider::{
        OutgoingRequest, Payload, Provider, Target, UpstreamError, headers,
        learnt_windows::LessonScope,
    },
    session::ClientIdentity,
    telemetry::{Operation, trace::Trace},
    wire::{Body, parse_bearer, split_header_list},
};

/// Names a provider for one request.
const PROVIDER_HEADER: HeaderName = HeaderName::from_static("x-plimsoll-provider");

/// Names of keys in a query: at Azure, at its gateways, and at Google.
const KEYS: [&str; 4] = ["api-key", "api_key", "subscription-key", "key"];

/// A key has at least this many bytes, in headers and query members that may hold any text: `sk-SK` there is a language.
const LEAST_KEY: usize = 16;

/// Returns the query with its `?`, without keys of the client that the provider must not get.
pub fn strip_query_keys(app: &App, parts: &Parts, provider: &Provider, query: &str) -> String {
    let (clients, passes) = (&app.clients, passes_credentials(app, parts, provider));
    if passes && !clients.have_keys() {
        return format!("?{query}");
    }
    let is_key = |pair: &&str| {
        let pair = form_urlencoded::parse(pair.as_bytes()).next();
        pair.is_some_and(|(name, value)| {
            !passes && KEYS.iter().any(|it| name.eq_ignore_ascii_case(it))
                || clients.is_key(value.as_bytes())
        })
    };
    let kept: Vec<_> = query.split('&').filter(|pair| !is_key(pair)).collect();
    format!("?{}", kept.join("&"))
}

/// Whether a provider gets what the client sends as its own credentials. The key of `plimsoll run`, which some clients send
/// as the key of an API, is sent to no provider.
fn passes_credentials(app: &App, parts: &Parts, provider: &Provider) -> bool {
    let mut all = list_credentials(&parts.headers, parts.uri.query(), provider);
    matches!(provider.config.auth, Auth::Client)
        && app.clients.may_pass_credentials(&parts.headers)
        && !all.any(|it| app.sessions.tenants.is_run_key(&it))
}

/// Looks a window up as it is for the client's account in requests of this format.
pub fn look_up_for_client(app: &App, parts: &Parts, target: &mut Target, format: Format) {
    target.scope = find_lesson_scope(app, parts, target, format);
    target.window = app.registry.current_window(target);
}

/// Finds the account and the betas by which a provider decides how long the prompt of a request may be; the scope names no
/// session. The betas are those of the client, and in Messages also those that the suffix of the model's name asks for.
pub fn find_lesson_scope(app: &App, parts: &Parts, target: &Target, format: Format) -> LessonScope {
    let mut scope = find_plain_scope(app, parts, &target.provider);
    if target.asks_long_window && format.api() == Api::Anthropic {
        scope.betas |= app.registry.find_long_window_betas(target, scope);
    }
    scope
}

/// Finds such a scope without the betas that the suffix of the model's name asks for.
///
/// SECURITY: what is learnt of one client's account is not applied to another's. Only a keyed digest of the credential is
/// kept.
pub fn find_plain_scope(app: &App, parts: &Parts, provider: &Provider) -> LessonScope {
    let config = &provider.config;
    let set = config.headers.contains_key(&BETA_HEADER);
    let headers = if set { &config.headers } else { &parts.headers };
    let credential = find_credential(app, parts, provider);
    let account = credential.map(|credential| {
        let identity = ClientIdentity::PassedOn(&credential);
        app.sessions.tenants.derive_account(identity)
    });
    LessonScope {
        account,
        betas: read_window_betas(split_header_list(headers, &BETA_HEADER)),
        session: None,
    }
}

/// The client's credential that the provider gets.
fn find_credential(app: &App, parts: &Parts, provider: &Provider) -> Option<Vec<u8>> {
    if !passes_credentials(app, parts, provider) {
        return None;
    }
    let mut all = list_credentials(&parts.headers, parts.uri.query(), provider);
    all.find(|credential| !app.clients.is_key(credential))
}

/// Refuses a request for a provider that the proxy chose by itself, if the request has no credential, or one that is for
/// another provider.
pub fn check_credentials(parts: &Parts, provider: &Provider) -> Result<(), Failure> {
    if !provider.config.is_known {
        return Ok(());
    }
    let headers = headers::filter_for_provider(&parts.headers, &provider.config, true, false);
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let protocols = protocols.map(|value| value.as_bytes().to_ascii_lowercase());
    let protocols = protocols.filter(|it| memmem::find(it, KEY_PROTOCOL.as_bytes()).is_some());
    let query = parts.uri.query();
    let listed = list_credentials(&headers, query, provider);
    let all: Vec<_> = listed.chain(protocols).collect();
    let name = provider.name.to_string();
    // SECURITY: the model name `anthropic/NAME` chooses Anthropic, which must not get a ChatGPT login. OpenAI may get the
    // login, which is OpenAI's own.
    if has_chatgpt_login(&parts.headers) && provider.config.is_for_anthropic() {
        return Err(Failure::CredentialElsewhere { provider: name });
    }
    // White space at the end of a header's value is lost, so a scheme without a credential is the word alone.
    let is_none = |it: &Vec<u8>| it.is_empty() || it.eq_ignore_ascii_case(b"bearer");
    if all.iter().all(is_none) {
        return Err(Failure::CredentialMissing { provider: name });
    }
    // Other headers and query members are forwarded too, and may also hold a key.
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut pairs = pairs.flat_map(|(name, value)| [name, value]);
    let may_get = |text: &[u8], least| provider.config.may_get(text, least);
    let fits = all.iter().all(|credential| may_get(credential, 0))
        && headers.values().all(|it| may_get(it.as_bytes(), LEAST_KEY))
        && pairs.all(|it| may_get(it.as_bytes(), LEAST_KEY));
    if fits {
        Ok(())
    } else {
        Err(Failure::CredentialElsewhere { provider: name })
    }
}

/// Returns the client's bearer token, if the provider gets it and no other credential.
pub fn read_only_token<'a>(app: &App, parts: &'a Parts, provider: &Provider) -> Option<&'a [u8]> {
    let sent = parts.headers.get(AUTHORIZATION)?;
    let token = parse_bearer(sent.as_bytes())?;
    let mut all = list_credentials(&parts.headers, parts.uri.query(), provider);
    let is_only = all.next().is_some_and(|it| it == token) && all.next().is_none();
    let passes = passes_credentials(app, parts, provider) && !app.clients.is_key(token);
    (is_only && passes).then_some(token)
}

/// Lists everything in the headers and the query of a request that may be a credential for a provider.
fn list_credentials<'a>(
    headers: &'a HeaderMap,
    query: Option<&'a str>,
    provider: &'a Provider,
) -> impl Iterator<Item = Vec<u8>> + 'a {
    let in_headers = headers::list_credentials(headers, &provider.config);
    let in_headers = in_headers.map(|value| value.trim_ascii().to_vec());
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let in_query = pairs.filter(|(name, _)| KEYS.iter().any(|it| name.eq_ignore_ascii_case(it)));
    let in_query = in_query.map(|(_, value)| value.into_owned().into_bytes());
    in_headers.chain(in_query)
}

/// The header that marks requests with a ChatGPT login. Such a login is not valid for OpenAI's API, which takes keys.
pub const CHATGPT_ACCOUNT: HeaderName = HeaderName::from_static("chatgpt-account-id");

/// Chooses the provider that a request names: in its path (`named`), in a header, or by a ChatGPT login. `model` is empty if
/// the request names none.
///
/// SECURITY: the proxy has not verified the login. It is sent to its own host, which verifies it.
pub fn choose_provider<'a>(
    app: &'a App,
    parts: &'a Parts,
    named: Option<&'a str>,
    model: &str,
) -> Option<&'a str> {
    let by_login = || {
        let config = &app.config;
        // The settings, or the client by a `/` in the name, choose another provider for this model.
        let is_elsewhere = model.contains('/')
            || config.models.contains_key(model)
            || config.aliases.contains_key(model);
        if is_elsewhere || !has_chatgpt_login(&parts.headers) {
            return None;
        }
        let mut providers = config.providers.iter();
        let found = providers.find(|(_, it)| it.takes_chatgpt_login());
        let may_pass = app.clients.may_pass_credentials(&parts.headers);
        found.map(|(name, _)| &**name).filter(|_| may_pass)
    };
    named
        .or_else(|| chosen_provider(&parts.headers))
        .or_else(by_login)
}

fn has_chatgpt_login(headers: &HeaderMap) -> bool {
    let credential = headers.get(AUTHORIZATION);
    let token = credential.and_then(|it| parse_bearer(it.as_bytes()));
    headers.contains_key(CHATGPT_ACCOUNT) && token.is_some_and(|token| !token.starts_with(b"sk-"))
}

/// The provider that a request names in a header.
pub fn chosen_provider(headers: &HeaderMap) -> Option<&str> {
    headers.get(PROVIDER_HEADER)?.to_str().ok()
}

/// Path and headers of a request with a conversation at one provider.
pub struct RequestHead {
    path: String,
    pub headers: HeaderMap,
}

impl RequestHead {
    /// Makes the head of a request whose body is sent without its content encoding.
    pub fn new(app: &App, parts: &Parts, provider: &Provider, format: Format) -> Self {
        let mut headers = outgoing_headers(app, parts, provider, true);
        headers::place_key(&mut headers, &provider.config, format);
        body::strip_encoding(&mut headers);
        let query = parts.uri.query();
        let query = query.map(|query| strip_query_keys(app, parts, provider, query));
        let path = format!("{}{}", format.path(), query.unwrap_or_default());
        Self { path, headers }
    }

    /// The betas of larger windows that the proxy adds to the client's, one bit for each.
    pub fn added_window_betas(&self, target: &Target) -> u8 {
        target.scope.betas & !read_window_betas(split_header_list(&self.headers, &BETA_HEADER))
    }

    /// Makes the request for a model. `betas`: the features in the body that a header must name too.
    pub fn to_request(&self, target: &Target, body: Payload, betas: &[Beta]) -> OutgoingRequest {
        let mut headers = self.headers.clone();
        add_window_betas(&mut headers, self.added_window_betas(target));
        betas.iter().for_each(|beta| add_beta(&mut headers, *beta));
        OutgoingRequest {
            method: Method::POST,
            path: self.path.clone(),
            headers,
            body,
            model: Some(target.model.clone()),
        }
    }
}

/// Adds betas of larger windows, one bit for each, behind those of the client.
pub fn add_window_betas(headers: &mut HeaderMap, betas: u8) {
    for beta in name_window_betas(betas) {
        add_beta_value(headers, beta);
    }
}

/// Builds the headers for a provider. `identity`: the provider's answer must come without a content encoding.
pub fn outgoing_headers(
    app: &App,
    parts: &Parts,
    provider: &Provider,
    identity: bool,
) -> HeaderMap {
    let (clients, passes) = (&app.clients, passes_credentials(app, parts, provider));
    let mut sent = Cow::Borrowed(&parts.headers);
    if clients.have_keys() {
        // Keys are removed before the provider's own headers are added, since one of these may have the same value.
        clients.strip_keys(sent.to_mut());
    }
    let mut out = headers::filter_for_provider(&sent, &provider.config, passes, identity);
    if clients.have_keys() || !passes {
        admission::strip_protocol_keys(&mut out);
    }
    out
}

/// Removes all headers from an answer that the client must not get.
pub fn clean_answer_headers(mut answer: Response<Body>) -> Response<Body> {
    *answer.headers_mut() = headers::filter_for_client(answer.headers());
    answer
}

/// Sends a request and waits for the head of its answer.
///
/// # Errors
/// No answer began.
pub async fn send_traced(
    trace: &Trace,
    provider: &Provider,
    operation: Option<Operation>,
    mut outgoing: OutgoingRequest,
) -> Result<Response<Body>, UpstreamError> {
    let (base_url, model) = (
        provider.config.base_url.as_deref(),
        outgoing.model.as_deref(),
    );
    let attempt = trace.begin_attempt(&provider.name, base_url, operation, model);
    attempt.inject_headers(&mut outgoing.headers);
    let sent = provider.send_request(outgoing).await;
    match &sent {
        Ok(answer) => attempt.record_answer(answer.status()),
        Err(error) => attempt.record_failure(error.as_str()),
    }
    sent
}
