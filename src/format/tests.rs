//! A second wire format, for unit tests.

pub(super) mod toy;
