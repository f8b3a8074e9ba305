//! The request, its budget, and what text weighs: what every later room reads.

pub(in crate::guard) mod answer_cap;
pub(in crate::guard) mod answer_place;
pub mod budget;
pub mod estimate;
pub(in crate::guard) mod measured_request;
pub(in crate::guard) mod policy;
pub mod recall_id;
pub(in crate::guard) mod short_tools;
pub(in crate::guard) mod view;
