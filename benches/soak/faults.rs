//! The faults of a provider.

use std::time::Duration;

use crate::support::{ProviderStep, answer, generate::Random};

/// Faults in a thousand requests outside storms.
const USUAL: usize = 30;
/// The same for the provider in a storm.
const STORM: usize = 850;

/// An event that cannot be parsed.
const ODD: &str = "data: {\"choices\": nonsense\n\n";

/// The good answer that a fault changes.
pub(crate) struct PlannedReply {
    /// The provider's own headers, each with its line end.
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
    pub(crate) streams: bool,
    /// Chunked on a kept connection; otherwise a stream ends with its connection.
    pub(crate) chunked: bool,
}

/// The kind of a storm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultWeather {
    /// The provider in a storm and its fault; `None` for a random one each time.
    storm: Option<(usize, Option<ProviderFault>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderFault {
    Status(&'static str),
    Busy,
    /// A false overflow error.
    TooLong(&'static str),
    SilentBeforeHead,
    ClosedBeforeHead,
    ResetBeforeHead,
    GarbageForHead,
    GarbageForBody,
    EmptyBody,
    LengthTooLong,
    LengthTooShort,
    Trickle,
    SilentMidway,
    ClosedMidway,
    ResetMidway,
    HalfEvent,
    ErrorMidway,
    OddEvent,
    NoDone,
}

use ProviderFault::{
    Busy, ClosedBeforeHead, ClosedMidway, EmptyBody, ErrorMidway, GarbageForBody, GarbageForHead,
    HalfEvent, LengthTooLong, LengthTooShort, NoDone, OddEvent, ResetBeforeHead, ResetMidway,
    SilentBeforeHead, SilentMidway, Status, TooLong, Trickle,
};

const ALL: [ProviderFault; 34] = [
    Status("400 Bad Request"),
    Status("401 Unauthorized"),
    Status("403 Forbidden"),
    Status("404 Not Found"),
    Status("408 Request Timeout"),
    Status("413 Content Too Large"),
    Status("422 Unprocessable Content"),
    Status("500 Oops"),
    Status("502 Bad Gateway"),
    Status("503 Busy"),
    Status("504 Late"),
    Status("529 Overloaded"),
    Busy,
    TooLong("prompt is too long"),
    TooLong("Input is too long for requested model."),
    TooLong("the request exceeds the available context size. try increasing it"),
    TooLong("Your input exceeds the context window of this model."),
    TooLong("Requested token count exceeds the model's maximum context length."),
    SilentBeforeHead,
    ClosedBeforeHead,
    ResetBeforeHead,
    GarbageForHead,
    GarbageForBody,
    EmptyBody,
    LengthTooLong,
    LengthTooShort,
    Trickle,
    SilentMidway,
    ClosedMidway,
    ResetMidway,
    HalfEvent,
    ErrorMidway,
    OddEvent,
    NoDone,
];

/// Faults of a whole provider.
const STORMS: [Option<ProviderFault>; 7] = [
    None,
    Some(Status("503 Busy")),
    Some(Status("500 Oops")),
    Some(Busy),
    Some(SilentBeforeHead),
    Some(ResetBeforeHead),
    Some(ResetMidway),
];

impl FaultWeather {
    pub(crate) fn begin_storm(&mut self, random: &mut Random) {
        let kind = STORMS[random.below(STORMS.len())];
        self.storm = Some((random.below(2), kind));
    }

    pub(crate) fn storm_name(&self) -> String {
        match self.storm {
            None => "-".to_owned(),
            Some((which, None)) => format!("{which}: any"),
            Some((which, Some(fault))) => format!("{which}: {fault:?}"),
        }
    }

    /// The fault for a request to this provider.
    pub(crate) fn draw_fault(&self, which: usize, random: &mut Random) -> Option<ProviderFault> {
        let any = ALL[random.below(ALL.len())];
        let (share, fault) = match self.storm {
            Some((over, fault)) if over == which => (STORM, fault.unwrap_or(any)),
            _ => (USUAL, any),
        };
        (random.below(1_000) < share).then_some(fault)
    }
}

impl ProviderFault {
    /// Whether a streaming client must not take the answer as complete.
    pub(crate) fn breaks_stream(name: &str) -> bool {
        ["SilentMidway", "ClosedMidway", "ResetMidway", "HalfEvent"].contains(&name)
    }

    /// Whether a stream that ended normally contains a fault whose head the client has not seen.
    pub(crate) fn shows_in(events: &str) -> bool {
        !events.ends_with("data: [DONE]\n\n") || events.contains(ODD)
    }

    pub(crate) fn fault_name(self) -> String {
        format!("{self:?}").replace('"', "")
    }

    pub(crate) fn fault_steps(self, reply: &PlannedReply) -> Vec<ProviderStep> {
        let mark = format!("x-soak-fault: {}\r\n", self.fault_name());
        let theirs = |status: &str, more: &str, message: &str| {
            let body = format!(
                "{{\"error\":{{\"message\":\"{message}\",\"type\":\"soak\",\"param\":null,\"code\":null}}}}"
            );
            vec![answer(status, &format!("{mark}{more}"), body)]
        };
        match self {
            Status(status) => theirs(status, "", "as the soak wants it"),
            Busy => theirs("429 Too Many Requests", "retry-after: 1\r\n", "not now"),
            TooLong(message) => theirs("400 Bad Request", "", message),
            SilentBeforeHead => vec![ProviderStep::Stall],
            ClosedBeforeHead => vec![ProviderStep::Close],
            ResetBeforeHead => vec![ProviderStep::Reset],
            GarbageForHead => vec![
                ProviderStep::Send(b"\0\0 garbage\r\n\r\n".to_vec()),
                ProviderStep::Close,
            ],
            GarbageForBody => vec![answer("200 OK", &mark, "<html>")],
            EmptyBody => vec![answer("200 OK", &mark, "")],
            LengthTooLong => with_length(reply, &mark, 99),
            LengthTooShort => with_length(reply, &mark, -9),
            Trickle => reply.trickle_steps(),
            OddEvent if reply.streams => reply.with_mark(&mark).insert_odd_event().good_steps(),
            NoDone if reply.streams => reply
                .with_mark(&mark)
                .cut_before("data: [DONE]")
                .steps_until(reply.end_step()),
            ErrorMidway if reply.streams => reply
                .with_mark(&mark)
                .end_with_error()
                .steps_until(reply.end_step()),
            HalfEvent if reply.streams => reply
                .with_mark(&mark)
                .cut_in_half()
                .steps_until(reply.end_step()),
            SilentMidway => reply
                .with_mark(&mark)
                .cut_in_half()
                .steps_until(ProviderStep::Stall),
            ClosedMidway => reply
                .with_mark(&mark)
                .cut_in_half()
                .steps_until(ProviderStep::Close),
            ResetMidway => reply
                .with_mark(&mark)
                .cut_in_half()
                .steps_until(ProviderStep::Reset),
            HalfEvent | OddEvent | NoDone | ErrorMidway => reply.good_steps(),
        }
    }
}

/// A content length that is off by this much, then the end.
fn with_length(reply: &PlannedReply, mark: &str, wrong: isize) -> Vec<ProviderStep> {
    let length = reply.body.len().saturating_add_signed(wrong);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{mark}content-length: {length}\r\n\r\n"
    );
    vec![
        ProviderStep::Send([head.as_bytes(), &reply.body].concat()),
        ProviderStep::Close,
    ]
}

impl PlannedReply {
    /// As a healthy provider sends it.
    pub(crate) fn good_steps(&self) -> Vec<ProviderStep> {
        if !self.streams {
            return vec![answer("200 OK", &self.headers, &self.body)];
        }
        let mut steps = vec![self.head_step()];
        for (at, piece) in self.body.chunks(self.body.len() / 4 + 1).enumerate() {
            if at > 0 {
                steps.push(ProviderStep::Pause(Duration::from_millis(8)));
            }
            steps.push(self.piece_step(piece));
        }
        steps.push(self.end_step());
        steps
    }

    /// The normal end of a stream.
    fn end_step(&self) -> ProviderStep {
        if self.chunked {
            ProviderStep::Send(b"0\r\n\r\n".to_vec())
        } else {
            ProviderStep::Close
        }
    }

    fn head_step(&self) -> ProviderStep {
        let headers = &self.headers;
        let how = match (self.streams, self.chunked) {
            (true, true) => "content-type: text/event-stream\r\ntransfer-encoding: chunked",
            (true, false) => "content-type: text/event-stream\r\nconnection: close",
            // Longer than the body.
            (false, _) => "content-type: application/json\r\ncontent-length: 9000000",
        };
        ProviderStep::Send(format!("HTTP/1.1 200 OK\r\n{headers}{how}\r\n\r\n").into_bytes())
    }

    fn piece_step(&self, bytes: &[u8]) -> ProviderStep {
        if !self.streams || !self.chunked {
            return ProviderStep::Send(bytes.to_vec());
        }
        let size = format!("{:x}\r\n", bytes.len());
        ProviderStep::Send([size.as_bytes(), bytes, b"\r\n"].concat())
    }

    /// The bytes so far, then this step instead of the end.
    fn steps_until(&self, end: ProviderStep) -> Vec<ProviderStep> {
        vec![self.head_step(), self.piece_step(&self.body), end]
    }

    /// All of it, with its first bytes in small pieces.
    fn trickle_steps(&self) -> Vec<ProviderStep> {
        if !self.streams {
            return self.good_steps();
        }
        let (first, rest) = self.body.split_at(self.body.len().min(100));
        let mut steps = vec![self.head_step()];
        for bytes in first.chunks(5) {
            steps.push(self.piece_step(bytes));
            steps.push(ProviderStep::Pause(Duration::from_millis(40)));
        }
        if !rest.is_empty() {
            steps.push(self.piece_step(rest));
        }
        steps.push(self.end_step());
        steps
    }

    fn with_mark(&self, mark: &str) -> Self {
        Self {
            headers: mark.to_owned(),
            body: self.body.clone(),
            ..*self
        }
    }

    fn cut_in_half(mut self) -> Self {
        self.body.truncate(self.body.len() / 2);
        self
    }

    /// The part before these words.
    fn cut_before(mut self, words: &str) -> Self {
        if let Some(at) = memchr::memmem::rfind(&self.body, words.as_bytes()) {
            self.body.truncate(at);
        }
        self
    }

    /// Half of it, up to the end of an event, then an error event.
    fn end_with_error(self) -> Self {
        let mut half = self.cut_in_half();
        let at = memchr::memmem::rfind(&half.body, b"\n\n").map_or(0, |at| at + 2);
        half.body.truncate(at);
        half.body.extend_from_slice(
            b"data: {\"error\":{\"message\":\"overloaded\",\"code\":\"soak\"}}\n\n",
        );
        half
    }

    /// With an unparsable event in the middle.
    fn insert_odd_event(mut self) -> Self {
        let half = &self.body[..self.body.len() / 2];
        let at = memchr::memmem::rfind(half, b"\n\n").map_or(0, |at| at + 2);
        self.body.splice(at..at, ODD.bytes());
        self
    }
}
