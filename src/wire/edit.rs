//! Span edits -> a rope of slices.
