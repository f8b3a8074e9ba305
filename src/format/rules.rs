//! What each format fixes for every provider that serves it, as one row per format.

use crate::{
    conversation::{Author, Format},
    format::request::beta_header::Beta,
};

/// What a format fixes. A new format needs a row of its own, and the compiler asks for each field.
#[derive(Debug)]
pub struct FormatRules {
    /// The path of a request.
    pub route: &'static str,
    /// The path behind `/v1` where the tokens of a request are counted.
    pub count_path: Option<&'static str>,
    /// The path behind `/v1` where a conversation is compacted to a list.
    pub compact_path: Option<&'static str>,
    /// A header that every client of the format sends, on any path.
    pub client_header: Option<&'static str>,
    /// Whether clients may open a websocket at the path of a request.
    pub opens_websockets: bool,
    /// Whether servers may demand that user and assistant messages alternate. Servers of Messages join adjacent entries
    /// of one role; in Responses, an answer has many entries.
    pub may_alternate: bool,
    /// Whether a provider may refuse an entry because of the role of the entry before it. In Responses, roles need not
    /// alternate.
    pub pairs_roles: bool,
    /// Whether the parts of an answer are entries of their own, so that adjacent answers are read as one.
    pub joins_answers: bool,
    /// Whether the task may be two user entries: the first says where the client runs, the second what is to be done.
    pub may_split_task: bool,
    /// Whether a result may be separated from its call.
    pub results_may_be_apart: bool,
    /// Whether the server runs a program again from its beginning with the results of its calls, until it has an output.
    pub replays_programs: bool,
    /// Whether the model never reads the results of calls that a program made. Anthropic gives them to the container only,
    /// and counts no tokens for them (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/programmatic-tool-calling>).
    pub hides_program_results: bool,
    /// Whether long results are truncated although the provider manages the context. If the provider holds the history,
    /// they cannot be truncated later.
    pub truncates_managed_history: bool,
    pub reasoning: ReasoningPlace,
    /// The author of an entry that brings tools; `None` where there is no such entry.
    pub tools_entry_author: Option<Author>,
    /// What a request with such an entry needs in its header.
    pub tools_entry_beta: Option<Beta>,
    /// Whether tools in an entry count as a list of tools.
    pub lists_tools_in_entries: bool,
    /// The type of a block that is a document.
    pub document_type: Option<&'static str>,
    /// The value that replaces the content of an answer with calls, if the content is removed.
    pub empty_content: &'static str,
    /// Members of an entry or a block that may change from request to request without a change of meaning. Some clients
    /// do not send them back, so digests leave them out.
    pub bookkeeping: &'static [&'static [u8]],
    /// Bytes that are held of an event that may have to be complete before it is passed on.
    pub max_whole_event: usize,
    /// Whether clients look for an overflow at the end of a stream, and take a 400 for another error.
    pub reports_overflow_in_stream: bool,
}

/// The place of the reasoning in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningPlace {
    /// In members of the message, and of its calls.
    Members,
    /// In blocks among the others.
    Blocks,
    /// In entries before those that the reasoning led to. Entries have ids.
    Entries,
}

impl ReasoningPlace {
    /// Whether the reasoning can be left out without touching the blocks of the answer. The reasoning of hidden tool
    /// rounds before the answer is joined with it.
    pub const fn is_outside_blocks(self) -> bool {
        match self {
            Self::Members => true,
            Self::Blocks | Self::Entries => false,
        }
    }

    /// Whether the provider refuses the reasoning next to blocks other than those it was made with.
    pub const fn needs_neighbours(self) -> bool {
        match self {
            Self::Members => false,
            Self::Blocks | Self::Entries => true,
        }
    }

    /// Whether the reasoning has an id. The entries that the reasoning led to depend on it: the provider refuses them
    /// without the reasoning.
    pub const fn has_id(self) -> bool {
        match self {
            Self::Members | Self::Blocks => false,
            Self::Entries => true,
        }
    }
}

const CHAT: FormatRules = FormatRules {
    route: "/v1/chat/completions",
    count_path: None,
    compact_path: None,
    client_header: None,
    opens_websockets: false,
    may_alternate: true,
    pairs_roles: true,
    joins_answers: false,
    may_split_task: false,
    results_may_be_apart: false,
    replays_programs: false,
    hides_program_results: false,
    truncates_managed_history: false,
    reasoning: ReasoningPlace::Members,
    tools_entry_author: None,
    tools_entry_beta: None,
    lists_tools_in_entries: false,
    document_type: Some("file"),
    empty_content: "null",
    bookkeeping: &[],
    // Far more than such an event has.
    max_whole_event: 16 << 10,
    reports_overflow_in_stream: false,
};

const MESSAGES: FormatRules = FormatRules {
    route: "/v1/messages",
    count_path: Some("/messages/count_tokens"),
    compact_path: None,
    client_header: Some("anthropic-version"),
    opens_websockets: false,
    may_alternate: false,
    pairs_roles: true,
    joins_answers: false,
    may_split_task: false,
    results_may_be_apart: false,
    replays_programs: false,
    hides_program_results: true,
    truncates_managed_history: false,
    reasoning: ReasoningPlace::Blocks,
    tools_entry_author: Some(Author::System),
    tools_entry_beta: Some(Beta::InlineTools),
    lists_tools_in_entries: false,
    document_type: Some("document"),
    empty_content: r#""""#,
    bookkeeping: &[],
    max_whole_event: 16 << 10,
    reports_overflow_in_stream: false,
};

const RESPONSES: FormatRules = FormatRules {
    route: "/v1/responses",
    count_path: Some("/responses/input_tokens"),
    compact_path: Some("/responses/compact"),
    client_header: None,
    opens_websockets: true,
    may_alternate: false,
    pairs_roles: false,
    joins_answers: true,
    may_split_task: true,
    results_may_be_apart: true,
    replays_programs: true,
    hides_program_results: false,
    truncates_managed_history: true,
    reasoning: ReasoningPlace::Entries,
    tools_entry_author: Some(Author::Unknown),
    tools_entry_beta: None,
    lists_tools_in_entries: true,
    document_type: Some("input_file"),
    empty_content: r#""""#,
    bookkeeping: &[b"id", b"status"],
    // The last event repeats the whole answer.
    max_whole_event: 2 << 20,
    reports_overflow_in_stream: true,
};

impl Format {
    pub const fn rules(self) -> &'static FormatRules {
        match self {
            Self::Chat => &CHAT,
            Self::Messages => &MESSAGES,
            Self::Responses => &RESPONSES,
            #[cfg(test)]
            Self::Toy => &super::tests::toy::RULES,
        }
    }
}
