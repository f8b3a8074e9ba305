//! HTTP for every handler: origins, client keys, limits, bodies, errors, tasks. Knows no route and no session.

pub mod admission;
pub mod answer;
pub mod body;
pub mod cors;
pub mod lease;
pub mod limit;
pub mod model_access;
pub mod origin;
pub mod page_link;
pub mod tasks;
