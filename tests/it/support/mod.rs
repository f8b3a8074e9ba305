//! What the tests stand on.

pub(crate) mod client;
#[allow(
    dead_code,
    reason = "shared with the benches, which use other parts of it"
)]
pub(crate) mod count;
#[allow(
    dead_code,
    reason = "shared with the benches, which use other parts of it"
)]
pub(crate) mod data;
#[allow(
    dead_code,
    reason = "shared with the benches, which use other parts of it"
)]
pub(crate) mod generate;
pub(crate) mod parse;
pub(crate) mod provider;
pub(crate) mod proxy;
pub(crate) mod reading;
#[allow(
    dead_code,
    reason = "shared with the benches, which use other parts of it"
)]
pub(crate) mod strict;
