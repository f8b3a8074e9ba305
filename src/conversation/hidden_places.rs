//! The places of blocks of an answer that its client does not get.

use serde::{Deserialize, Serialize};

/// Places in an answer, each as the number of blocks after it that the client gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenPlaces {
    /// The places of the calls of the proxy's tools, in their order.
    pub calls: Vec<u32>,
    /// The place of a hidden text that is a block of its own.
    pub text: Option<u32>,
}
