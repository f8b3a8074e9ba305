//! The request, its budget, and the weights of texts: read by the other modules of the guard.

pub(in crate::guard) mod answer_cap;
pub(in crate::guard) mod answer_place;
pub mod budget;
pub mod estimate;
pub(in crate::guard) mod measured_request;
pub(in crate::guard) mod policy;
pub mod recall_id;
pub(in crate::guard) mod refusal_lessons;
pub(in crate::guard) mod short_tools;
pub(in crate::guard) mod view;
