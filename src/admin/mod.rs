//! The session API, the dashboard, and the endpoints for health and metrics.

pub mod api;
pub mod dashboard;
pub mod probe_endpoints;
