//! What follows an answer of a provider: two tables, without socket, clock or store.
//!
//! [`list_remedies`] says how a refused request is changed before it is sent again to the same candidate. What happened is a
//! [`Refusal`] (`judge_error.rs`), what was tried are the [`PastRefusals`] of this attempt. `attempt.rs` makes the first
//! remedy of the list that is possible, and sends the request again. If none is, the attempt ends.
//!
//! [`follow_attempt`] says who is asked after an attempt has ended. `mod.rs` asks.

use super::{
    edit_body::Extras,
    past_refusals::PastRefusals,
    provider_reply::{ProviderReply, SendError},
    refusal::Refusal,
};
use crate::{
    config::profile::AnswerFilling,
    provider::{
        UpstreamError,
        retry::{RetryClass, classify_status},
        size_refusal::SizeRefusal,
        thinking_refusal::ThinkingRefusal,
    },
};

/// A change of a refused request, with which the request is sent again. Three only prepare the next one of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Asks for no usage of a stream.
    LeaveUsageOut,
    /// Adds no cache markers.
    LeaveMarkersOut,
    /// Adds no members to answers.
    LeaveMembersOut,
    /// Only prepares: adds the members again, and goes back to the refusal of the request with them.
    RestoreMembers,
    /// Adds members to all answers that lack them.
    FillAnswers,
    /// Sends the text of a summary in the place of the block that the provider made.
    ReplaceSummary,
    /// Leaves out the beta that the suffix of the model's name asks for, and plans for the smaller window.
    LeaveWindowBetaOut,
    /// Puts the prompt elsewhere than in a message of its own behind a result of a tool.
    MovePrompt,
    /// Leaves out the tool rounds of the proxy.
    LeaveRoundsOut,
    /// Leaves out all that recovery adds.
    LeaveAdditionsOut,
    /// Asks the provider to drop thinking that does not fit.
    AskToDrop,
    /// Asks by the other name of the member.
    RenameDrop,
    /// Leaves out the thinking from the first block on that does not fit.
    LeaveGapOut,
    /// Leaves out all thinking.
    LeaveThinkingOut,
    /// Switches thinking off until the running turn ends.
    SwitchThinkingOff,
    /// Learns the window, and cuts the conversation or lowers the answer cap. Where a larger model can be asked instead, the
    /// attempt ends.
    Refit,
    /// Cuts as after an overflow, and learns only if the smaller request is answered.
    RefitByGuess,
    /// Cuts to a limit of tokens a minute.
    FitToRequestLimit,
    /// Halves the texts, since the words of the refusal are unknown.
    HalveTexts,
    /// Only prepares: takes [`Remedy::HalveTexts`] back.
    RestoreTexts,
    /// Only prepares: the texts stay halved, since the refusal has given its reason after all.
    ConfirmLength,
    /// Keeps few of the older images.
    KeepFewImages,
    /// Keeps none of the older images.
    KeepNoImages,
    /// Halves the prompt.
    HalvePrompt,
}

use Remedy::*;

/// What recovery adds is given up in this order.
const WITHOUT_ADDITIONS: [Remedy; 3] = [MovePrompt, LeaveRoundsOut, LeaveAdditionsOut];

/// What is left out after a refusal of size, in this order. [`HalvePrompt`] is made several times.
const LESS_SIZE: [Remedy; 3] = [KeepFewImages, KeepNoImages, HalvePrompt];

/// What the table needs to know of the refused request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RemedyFacts {
    /// What the request asked for, as far as it could.
    pub(super) extras: Extras,
    /// The request has anything that recovery added.
    pub(super) has_additions: bool,
    /// The guard may change the conversation.
    pub(super) is_guarded: bool,
    /// The first refusal of thinking named the first block that does not fit.
    pub(super) names_gap: bool,
    /// Set after a refusal of thinking.
    pub(super) thinking: ThinkingFacts,
}

/// What the table needs to know of the thinking in the refused request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThinkingFacts {
    /// The proxy may change the request, at least outside the conversation.
    pub(super) is_open: bool,
    /// In this format turns begin with thinking, so that it can be switched off for a turn.
    pub(super) begins_turns: bool,
    /// The request has thinking of earlier answers.
    pub(super) is_sent: bool,
    /// The client asks for the refusal of what it changed, and the proxy changed nothing.
    pub(super) refusal_is_wanted: bool,
    /// The request may ask for thinking to be dropped: neither the client nor the provider rules it out.
    pub(super) may_ask_to_drop: bool,
}

/// Lists how the refused request may be changed: what follows each refusal. The first remedy that is possible is made; if none
/// is, the attempt ends.
pub(super) fn list_remedies(
    past: &PastRefusals,
    refusal: &Refusal,
    facts: &RemedyFacts,
) -> Vec<Remedy> {
    match refusal {
        Refusal::Usage => vec![LeaveUsageOut],
        Refusal::WindowBeta => vec![LeaveWindowBetaOut],
        Refusal::Summary(_) => vec![ReplaceSummary],
        Refusal::Markers => vec![LeaveMarkersOut],
        Refusal::Filling => vec![LeaveMembersOut],
        Refusal::Additions => WITHOUT_ADDITIONS.to_vec(),
        Refusal::MembersDemanded if facts.has_additions => {
            [&[RestoreMembers], &WITHOUT_ADDITIONS[..]].concat()
        }
        Refusal::MembersDemanded => vec![RestoreMembers],
        Refusal::Thinking(refused) => list_for_thinking(past, *refused, facts),
        Refusal::ToDrop { by_name: true, .. } if !past.has_made(RenameDrop) => vec![RenameDrop],
        Refusal::ToDrop { .. } => list_without_thinking(past, facts),
        Refusal::OverWindow { .. } => vec![ConfirmLength, Refit],
        Refusal::WithoutReason => vec![RefitByGuess],
        Refusal::OverMinuteLimit(_) if past.has_made(FitToRequestLimit) => Vec::new(),
        Refusal::OverMinuteLimit(_) => vec![FitToRequestLimit],
        Refusal::OverSize(size) => list_for_size(past, *size),
        Refusal::Unknown { size, .. } => list_for_unknown(past, *size),
    }
}

fn list_for_thinking(
    past: &PastRefusals,
    refused: ThinkingRefusal,
    facts: &RemedyFacts,
) -> Vec<Remedy> {
    let (extras, thinking) = (facts.extras, facts.thinking);
    let may_ask = thinking.may_ask_to_drop
        && extras.drop_by.is_none()
        && !past.has_asked_to_drop()
        && !past.has_made(LeaveThinkingOut);
    match refused {
        _ if !thinking.is_open => Vec::new(),
        ThinkingRefusal::Missing if extras.filling == AnswerFilling::All => Vec::new(),
        ThinkingRefusal::Missing => vec![FillAnswers],
        ThinkingRefusal::Unpaired => list_without_thinking(past, facts),
        ThinkingRefusal::Turn if thinking.begins_turns && extras.thinking_off => Vec::new(),
        ThinkingRefusal::Turn if thinking.begins_turns => vec![SwitchThinkingOff],
        _ if !thinking.is_sent || thinking.refusal_is_wanted => Vec::new(),
        ThinkingRefusal::Conversation { .. } if may_ask => vec![AskToDrop],
        _ => list_without_thinking(past, facts),
    }
}

fn list_without_thinking(past: &PastRefusals, facts: &RemedyFacts) -> Vec<Remedy> {
    if !facts.is_guarded || past.has_made(LeaveThinkingOut) {
        Vec::new()
    } else if facts.names_gap && !past.has_made(LeaveGapOut) {
        vec![LeaveGapOut]
    } else {
        vec![LeaveThinkingOut]
    }
}

/// The prompt is halved once for images, and three times for bytes. What was passed over once does not come again.
fn list_for_size(past: &PastRefusals, size: SizeRefusal) -> Vec<Remedy> {
    let most_halves = match size {
        SizeRefusal::Images => 1,
        SizeRefusal::Bytes => 3,
    };
    let made = LESS_SIZE.iter().rposition(|it| past.has_made(*it));
    let mut left = LESS_SIZE[made.map_or(0, |at| at + 1)..].to_vec();
    left.retain(|it| *it != HalvePrompt);
    if past.count_made(HalvePrompt) < most_halves {
        left.push(HalvePrompt);
    }
    left
}

fn list_for_unknown(past: &PastRefusals, size: Option<SizeRefusal>) -> Vec<Remedy> {
    let mut remedies = Vec::new();
    if !past.has_made(HalveTexts) {
        remedies.push(HalveTexts);
    }
    if let Some(size) = size {
        remedies.push(RestoreTexts);
        remedies.extend(list_for_size(past, size));
    }
    remedies
}

/// How an attempt at a candidate has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Answered,
    /// The answer is an error that no other request to this candidate avoids.
    Refused,
    /// The conversation is too long for this candidate.
    TooLong,
    /// The candidate has too many requests.
    Busy,
    /// The candidate answered with a failure of its own.
    Failed,
    /// The configured key or its account is refused.
    Denied,
    /// No answer began. `arrived`: the provider may have the request.
    Unsent {
        arrived: bool,
    },
    /// The client's request could not be sent as it is.
    ClientFailed {
        arrived: bool,
    },
    /// A failure broke off, or a success is no valid answer.
    Failing,
    /// Another answer broke off.
    Broken,
}

impl AttemptEnd {
    /// `own_key`: the credentials are those of the settings, not the client's.
    pub(super) fn from_result(result: &Result<ProviderReply, SendError>, own_key: bool) -> Self {
        match result {
            Ok(reply) if reply.too_long => Self::TooLong,
            Ok(reply) => match classify_status(reply.status(), own_key) {
                RetryClass::Final if reply.status().is_success() => Self::Answered,
                RetryClass::Final => Self::Refused,
                RetryClass::Busy => Self::Busy,
                RetryClass::Failed => Self::Failed,
                RetryClass::Denied => Self::Denied,
            },
            Err(SendError::Unsent(error)) => Self::from_error(error),
            Err(SendError::Failing(_)) => Self::Failing,
            Err(SendError::Broken(_)) => Self::Broken,
        }
    }

    fn from_error(error: &UpstreamError) -> Self {
        use UpstreamError::{BodyBroken, BodySlow, NoModel};
        let arrived = error.may_have_arrived();
        match error {
            BodyBroken | BodySlow { .. } | NoModel { .. } => Self::ClientFailed { arrived },
            _ => Self::Unsent { arrived },
        }
    }

    /// Whether the provider may have the request.
    const fn may_have_arrived(self) -> bool {
        match self {
            Self::Unsent { arrived } | Self::ClientFailed { arrived } => arrived,
            _ => true,
        }
    }

    /// Whether the provider failed, so that its circuit may open.
    pub(super) const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Failed | Self::Failing | Self::Broken | Self::Unsent { .. }
        )
    }

    /// The name in metrics.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Answered | Self::Refused | Self::TooLong => "answer",
            Self::Busy => "busy",
            Self::Failed | Self::Failing | Self::Broken => "failed",
            Self::Denied => "denied",
            Self::Unsent { .. } | Self::ClientFailed { .. } => "unsent",
        }
    }

    /// Whether this end says less to the client than an error of the candidate that the client named.
    pub(super) const fn is_less_informative(self) -> bool {
        !matches!(self, Self::Answered | Self::Busy | Self::Failed)
    }
}

/// What the table needs to know of the request and its candidates.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CandidateFacts {
    /// The request continues a thread, of which each answer can be continued only once.
    pub(super) continues_thread: bool,
    /// A larger model was asked in place of the candidate that the client names, or that candidate was passed over.
    pub(super) named_one_waits: bool,
}

/// Who is asked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCandidate {
    /// Nobody: the client gets this end.
    None,
    /// The next deployment, or the next model.
    Next,
    /// The next one whose window is larger.
    Larger,
    /// The same one again, as far as the retry budget and its circuit allow that, else the next one.
    SameOrNext,
}

/// Says who is asked after an attempt. If there is no such candidate, the client gets the end of this attempt.
pub(super) const fn follow_attempt(end: AttemptEnd, facts: CandidateFacts) -> NextCandidate {
    use AttemptEnd as End;
    match end {
        _ if facts.continues_thread && end.may_have_arrived() => NextCandidate::None,
        End::Answered | End::Broken => NextCandidate::None,
        End::Refused if !facts.named_one_waits => NextCandidate::None,
        End::Refused | End::Denied | End::ClientFailed { .. } => NextCandidate::Next,
        End::TooLong => NextCandidate::Larger,
        End::Busy | End::Failed | End::Failing | End::Unsent { .. } => NextCandidate::SameOrNext,
    }
}

#[cfg(test)]
mod tests;
