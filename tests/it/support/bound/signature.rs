//! What a signature holds: all that is compared when the reasoning comes back.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub(super) struct Signature {
    /// Family and version of the model.
    pub(super) model: String,
    pub(super) organization: u64,
    pub(super) end_user: u64,
    /// Digest of the reasoning itself.
    pub(super) content: u64,
    pub(super) system: u64,
    pub(super) tools: u64,
    /// Digest of all blocks before the recent ones.
    pub(super) older: u64,
    /// Digests of the blocks directly before it, oldest first.
    pub(super) recent: Vec<u32>,
    /// The reasoning before it that the model has read.
    pub(super) previous: Option<u64>,
    /// How many of them there were.
    pub(super) run: usize,
    /// The id of a reasoning item, and what followed it.
    pub(super) item: Option<String>,
    pub(super) follower: Option<String>,
    /// Digest of all the others.
    pub(super) seal: u64,
}

impl Signature {
    fn digest(&self) -> u64 {
        let unsealed = Self {
            seal: 0,
            ..self.clone()
        };
        xxh3_64(serde_json::to_string(&unsealed).unwrap().as_bytes())
    }

    pub(super) fn write(mut self) -> String {
        self.seal = self.digest();
        STANDARD.encode(serde_json::to_string(&self).unwrap())
    }

    /// `None` for one that was tampered with, or that another made.
    pub(super) fn read(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        let found: Self = serde_json::from_slice(&bytes).ok()?;
        (found.seal == found.digest()).then_some(found)
    }

    pub(super) fn id(&self) -> u64 {
        self.digest()
    }
}
