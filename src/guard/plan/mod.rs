//! The plan of a request: everything put together, reported and checked.

pub(in crate::guard) mod assemble;
pub(in crate::guard) mod compaction_request;
pub(in crate::guard) mod course;
pub mod explain;
pub(in crate::guard) mod make_plan;
pub(in crate::guard) mod old_media;
pub(in crate::guard) mod provider_summary;
pub(in crate::guard) mod questions;
pub(in crate::guard) mod report;
