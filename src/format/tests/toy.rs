//! A wire format for tests, and a model of a new one: it has a file for each that every format has. It shares no name and no shape with chat completions. The properties of
//! the guard hold over it too, which shows that nothing outside `format/` knows the JSON of chat.
//!
//! ```json
//! {"engine": "m", "gear": [], "reply_limit": 1024, "log": [
//!   {"who": "owner", "says": {"words": "Be brief."}},
//!   {"who": "person", "says": {"words": [{"line": "What is it?"}, {"sketch": {"at": "https://…", "grain": "coarse"}}]}},
//!   {"who": "machine", "says": {"words": false}, "wants": [{"ticket": "t1", "tool": "look", "with": "{}"}]},
//!   {"who": "report", "for": "t1", "says": {"words": "A boat."}}
//! ]}
//! ```
//!
//! `false` is an empty content. A call outside a list has no ticket, and neither has its report.
//!
//! An answer is a list of pieces. A stream has its events without names; the last one has the counts of tokens:
//!
//! ```json
//! {"tag": "a1", "engine": "m"}
//! {"piece": 0, "line": ""}
//! {"piece": 0, "more": "A boat."}
//! {"piece": 0, "shut": true}
//! {"piece": 1, "want": {"ticket": "t1", "tool": "look", "with": "{}"}}
//! {"piece": 1, "shut": true}
//! {"over": "wants", "spent": {"read": 9, "wrote": 3}}
//! ```
//!
//! A whole answer is one object: `tag`, `engine`, `pieces` (each a `line` or a `want`), `over` and `spent`.

pub(in crate::format) mod answer;
pub(in crate::format) mod index;
pub(in crate::format) mod request;
pub(in crate::format) mod summary;
pub(in crate::format) mod tools;
pub(in crate::format) mod write;

use crate::format::rules::{FormatRules, ReasoningPlace};

pub(in crate::format) const RULES: FormatRules = FormatRules {
    route: "/v1/toy",
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
    reasoning: ReasoningPlace::Blocks,
    tools_entry_author: None,
    tools_entry_beta: None,
    lists_tools_in_entries: false,
    document_type: None,
    empty_content: "false",
    bookkeeping: &[],
    max_whole_event: 16 << 10,
    reports_overflow_in_stream: false,
};
