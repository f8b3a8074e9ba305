//! Shared by the tests that read the log.

use std::sync::Once;

/// Call it before setting a thread's own subscriber.
///
/// `tracing` remembers for the whole process whether any subscriber wants a line. Without a
/// subscriber that wants all lines, a line that another test emits first on a thread without one is
/// never seen again.
pub(crate) fn every_line_is_wanted() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let wants_all = tracing_subscriber::registry();
        // Another test may have set one already, which serves as well.
        let _ = tracing::subscriber::set_global_default(wants_all);
    });
}
