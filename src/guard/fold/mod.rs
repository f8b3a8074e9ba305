//! Which units are left out (folded), which note takes their place, and what a session remembers of the cuts.

pub(in crate::guard) mod basis;
pub(in crate::guard) mod compaction_note;
pub(in crate::guard) mod cut_state;
pub mod ledger;
pub(in crate::guard) mod memory;
pub(in crate::guard) mod note;
pub(in crate::guard) mod preface;
pub(in crate::guard) mod replay;
pub(in crate::guard) mod sent_history;
pub(in crate::guard) mod vocabulary;
