//! How settings are read, checked, shown and read again: from their layers into the types of the sections.

pub(super) mod change;
pub(super) mod environment;
mod explain;
pub(super) mod layer;
pub(super) mod load;
pub(super) mod places;
pub(super) mod problem;
pub(super) mod schema;
pub(super) mod section;
pub(super) mod setting;
pub(super) mod watch;
