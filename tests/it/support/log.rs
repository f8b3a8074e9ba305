//! What the tests that read the log have in common.

use std::sync::Once;

/// To be called before a thread's own subscriber is set.
///
/// Whether anybody wants a line is remembered for the whole process. So there is one that wants them
/// all, or a line that another test comes by first, on a thread where nobody listens, is never seen.
pub(crate) fn every_line_is_wanted() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let wants_all = tracing_subscriber::registry();
        // Another test may have set one of its own, which is as well.
        let _ = tracing::subscriber::set_global_default(wants_all);
    });
}
