//! HTTP for every handler: client keys, limits, request bodies, the proxy's own answers, tasks. Knows no route and
//! no session.

pub mod admission;
pub mod answer;
pub mod body;
pub mod limit;
pub mod tasks;
