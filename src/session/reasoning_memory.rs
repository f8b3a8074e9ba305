//! What a session's model taught about the reasoning that clients send back.

use serde::{Deserialize, Serialize};

use crate::format::block_binding::MismatchField;

/// Holds for the model of the state that it stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasoningMemory {
    /// The model refused reasoning, mostly for what was changed before it. Its name may not say so.
    pub is_bound: bool,
    /// Each request asks the provider to drop such reasoning, since the provider does not remember it.
    pub drop_by: Option<MismatchField>,
    /// The running turn, as [`find_running_turn`](crate::guard::running_turn::find_running_turn) counts it, whose
    /// thinking was refused where the client asks for a turn that begins with it: the model does not think in it.
    pub turn_without_thinking: Option<u32>,
    /// Reasoning was left out again after it had been: the client changes its history in each request, so that no
    /// reasoning goes out at all.
    pub leaves_out_all: bool,
}
