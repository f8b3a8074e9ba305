//! Two providers that check their requests, answer with recognisable texts, and fail by the current
//! storm.

use std::{
    net::SocketAddr,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use super::{checks, conversation::MODELS, faults::PlannedReply, run_state::RunState};
use crate::support::{
    ProviderStep, ReceivedRequest, ScriptedProvider, answer, find_tool_faults,
    generate::Random,
    model::notice::{self, Notice, summary_key},
    parse, refuse,
    render::AnswerWriter,
    strict,
};

/// The profiles of the two, as in the proxy's settings.
pub(crate) const PROFILES: [&str; 2] = ["openai", "template"];

/// Overflow wordings, from the window and the request's tokens.
const REFUSALS: [fn(u32, u64) -> String; 5] = [
    |window, tokens| {
        format!(
            "This model's maximum context length is {window} tokens. However, your messages resulted \
             in {tokens} tokens. Please reduce the length of the messages."
        )
    },
    |window, tokens| format!("prompt is too long: {tokens} tokens > {window} maximum"),
    |window, tokens| {
        format!(
            "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
        )
    },
    |window, tokens| {
        format!(
            "This model's maximum prompt length is {window} but the request contains {tokens} tokens."
        )
    },
    |_, _| "Input is too long for requested model.".to_owned(),
];

pub(crate) struct SoakProviders {
    providers: [ScriptedProvider; 2],
}

/// A request as a provider reads it.
pub(crate) struct ProviderRequest<'a> {
    pub(crate) body: Value,
    pub(crate) marker: &'a str,
    pub(crate) turn: u64,
    /// Which of the two providers.
    pub(crate) which: usize,
    pub(crate) tokens: u64,
    pub(crate) summary: Option<String>,
    pub(crate) notice: Option<Notice>,
    pub(crate) after_own: bool,
    /// The model is asked for a reminder block somewhere in it.
    pub(crate) asked_for_a_block: bool,
    /// Whether the client asked for the stream's usage.
    pub(crate) wants_usage: bool,
}

impl SoakProviders {
    pub(crate) async fn start_both(world: &Arc<RunState>) -> Self {
        let numbers = Arc::new(AtomicU64::new(1));
        let provider = |which| {
            let (world, numbers) = (Arc::clone(world), Arc::clone(&numbers));
            ScriptedProvider::start_forgetful(move |seen| {
                let number = numbers.fetch_add(1, Relaxed);
                answer_request(&world, which, number, seen)
            })
        };
        Self {
            providers: [provider(0).await, provider(1).await],
        }
    }

    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        [self.providers[0].address, self.providers[1].address]
    }

    /// Closes idle connections.
    pub(crate) fn hang_up(&self) {
        self.providers.iter().for_each(ScriptedProvider::hang_up);
    }
}

fn answer_request(
    world: &RunState,
    which: usize,
    number: u64,
    seen: &ReceivedRequest,
) -> Vec<ProviderStep> {
    let ask = match ProviderRequest::read_request(which, seen) {
        Ok(ask) => ask,
        Err(why) => {
            world.report_failure(format!("provider {which} got what it should not: {why}"));
            return refuse(400, "invalid", "not as it should be");
        }
    };
    world.count_event("provider: requests");
    let mut random = world.random_with_salt(number.wrapping_mul(0x9E37) ^ ask.turn);
    if let Some(refusal) = ask.refuse_overflow(&mut random) {
        world.count_event("provider: overflows");
        return refusal;
    }
    let reply = ask.plan_reply(world, number, &mut random);
    let fault = if world.phase().has_faults() {
        let weather = world.weather.lock();
        weather
            .unwrap_or_else(PoisonError::into_inner)
            .draw_fault(which, &mut random)
    } else {
        None
    };
    match fault {
        Some(fault) => {
            world.count_event("provider: faults");
            fault.fault_steps(&reply)
        }
        None => reply.good_steps(),
    }
}

impl<'a> ProviderRequest<'a> {
    /// The request, or its faults.
    fn read_request(which: usize, seen: &'a ReceivedRequest) -> Result<Self, String> {
        let header = |name| seen.header(name).ok_or_else(|| format!("no {name}"));
        let marker = header("x-soak-session")?;
        let turn = header("x-soak-turn")?;
        let wants_usage = header("x-soak-wants-usage")? == "true";
        let body = parse::parse_value(&seen.body).map_err(|error| format!("{marker}: {error}"))?;
        let profile = find_profile(PROFILES[which]).ok_or("no such profile")?;
        let mut faults: Vec<_> = strict::find_violations(&seen.body, profile)
            .iter()
            .map(|found| format!("{found:?}"))
            .collect();
        faults.extend(find_tool_faults(&body));
        let summary = summary_key(&body);
        faults.extend(checks::find_foreign_text(&seen.body, marker));
        if summary.is_none() {
            let stamps = [format!("{marker} turn {turn} "), format!("{marker} task")];
            let missing = stamps
                .iter()
                .filter(|it| memchr::memmem::find(&seen.body, it.as_bytes()).is_none());
            faults.extend(missing.map(|it| format!("{it:?} is missing")));
        }
        if let Some(fault) = faults.first() {
            return Err(format!("{marker}, turn {turn}: {fault}"));
        }
        let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(Self {
            notice: notice::find_notice(&body),
            after_own: notice::answers_proxy_call(messages),
            asked_for_a_block: memchr::memmem::find(&seen.body, b"continuation_package").is_some(),
            tokens: seen.body.len() as u64 / 4,
            turn: turn.parse().map_err(|_| format!("turn {turn:?}"))?,
            body,
            marker,
            which,
            summary,
            wants_usage,
        })
    }

    fn has_tools(&self) -> bool {
        self.body["tools"].is_array()
    }

    fn model_name(&self) -> &str {
        self.body["model"].as_str().unwrap_or("")
    }

    /// The refusal, if the conversation exceeds the model's real window.
    fn refuse_overflow(&self, random: &mut Random) -> Option<Vec<ProviderStep>> {
        let model = MODELS
            .iter()
            .find(|model| model.name == self.model_name())?;
        let asked = self.body["max_tokens"].as_u64().unwrap_or(0);
        if self.tokens + asked <= u64::from(model.holds) {
            return None;
        }
        let message = REFUSALS[random.below(REFUSALS.len())](model.holds, self.tokens + asked);
        let error = json!({"error": {"message": message, "type": "invalid_request_error",
            "param": null, "code": null}});
        let mark = "x-soak-fault: Overflow\r\n";
        Some(vec![answer("400 Bad Request", mark, error.to_string())])
    }

    /// The model's reply as the provider writes it.
    fn plan_reply(&self, world: &RunState, number: u64, random: &mut Random) -> PlannedReply {
        let (text, calls, ours) = self.compose_answer(world.seed, number, random);
        let render = AnswerWriter {
            body: &self.body,
            tokens: self.tokens,
            fragment: 40,
            byte_by_byte: false,
            reports_usage: true,
        };
        let streams = self.body["stream"] == true;
        let body = if streams {
            render.write_events(&text, &calls) + "data: [DONE]\n\n"
        } else {
            render.write_whole(&text, &calls).to_string()
        };
        let told = if self.wants_usage || !streams {
            body.clone()
        } else {
            checks::without_usage(&body)
        };
        // Where the proxy looks for a block, a "<" at the end of an event is sent with the next
        // one: then texts are compared instead of events.
        let moves = self.asked_for_a_block || (!self.has_tools() && body.contains("<\"}"));
        let digest = if ours || self.after_own || (streams && moves) {
            "ours".to_owned()
        } else {
            let digest = checks::digest_body(world.seed, told.as_bytes());
            world.remember_answer(&digest, told);
            digest
        };
        let tokens = self.tokens;
        PlannedReply {
            headers: format!(
                "x-soak-digest: {digest}\r\nx-soak-tokens: {tokens}\r\nx-soak-which: {}\r\n",
                self.which
            ),
            body: body.into_bytes(),
            streams,
            chunked: random.chance(60),
        }
    }
}
