//! What every handler of a request needs of HTTP: who may ask, how much may be under way, bodies of requests,
//! answers of the proxy itself.
//!
//! Knows no route and no session.

pub mod admission;
pub mod answer;
pub mod body;
pub mod limit;
pub mod tasks;
