//! What the tests of the library need of formats.

pub(super) mod toy;
