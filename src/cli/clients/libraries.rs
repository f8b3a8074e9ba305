//! Libraries.

use super::Client;

pub(super) const LIBRARIES: &[Client] = &[];
