//! HTTP for every handler: client keys, limits, bodies, errors, tasks. Knows no route and no session.

pub mod admission;
pub mod answer;
pub mod body;
pub mod limit;
pub mod tasks;
