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
    /// Members of schemas go that no model needs: `$schema`, `$comment`, `title`, `examples`, an empty `description`.
    NoAnnotations,
    /// Descriptions of tools and in schemas keep their first sentence, too.
    FirstSentences,
}
