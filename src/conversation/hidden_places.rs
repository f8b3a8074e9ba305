//! Where blocks of an answer stood that its client does not get.

use serde::{Deserialize, Serialize};

/// Places in an answer, each as the number of blocks behind it that the client gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenPlaces {
    /// Of each call of the proxy, in their order.
    pub calls: Vec<u32>,
    /// Of a text that is a block of its own.
    pub text: Option<u32>,
}
