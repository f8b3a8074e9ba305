//! Settings of OpenAI's Responses.

use serde::{Deserialize, Serialize};

use super::loading::section::settings;

settings! {
    #[derive(Copy, Eq)]
    pub struct ResponsesConfig read from s {
        pub websocket: ResponsesWebsocket = s.read_plain("websocket", ResponsesWebsocket::Refuse);
        pub compaction: ClientCompaction = s.read_plain("compaction", ClientCompaction::Forward);
    }
}

/// What becomes of a client that opens a websocket for Responses. Its messages are not read, so they cannot be guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponsesWebsocket {
    /// It is told to use HTTP.
    Refuse,
    /// It is relayed like any other websocket.
    Pass,
}

/// Who answers a client that asks for its conversation to be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCompaction {
    /// The provider.
    Forward,
    /// The proxy, with a summary or a ledger.
    Answer,
}
