//! Chat apps and editors.

use super::Client;

pub(super) const APPS: &[Client] = &[];
