//! Lists of tools, and how short their definitions may be made.

use crate::json::scan::Span;

/// A list of tools: a member of the request, or of the item at `item`.
#[derive(Clone, Copy, Debug)]
pub struct ToolList {
    pub span: Span,
    pub item: Option<usize>,
}

/// How short the definitions of tools are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolBrevity {
    /// Members of schemas that no model needs are removed: `$schema`, `$comment`, `title`, `examples`, an empty
    /// `description`.
    NoAnnotations,
    /// In addition, the descriptions of tools and in schemas keep only their first sentence.
    FirstSentences,
}
