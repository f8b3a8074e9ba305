//! Steps over single values of a JSON text, shared by the readers of all formats.

use crate::json::scan::{JsonScanner, JsonString, MalformedJson, Span};

pub(super) type ReadResult = Result<(), MalformedJson>;

pub(super) fn skip_value(scan: &mut JsonScanner<'_>) -> ReadResult {
    scan.take_value().map(drop)
}

/// Takes any value; gives it if it is a string.
pub(super) fn take_text(scan: &mut JsonScanner<'_>) -> Result<Option<JsonString>, MalformedJson> {
    match scan.peek() {
        Some(b'"') => scan.take_string().map(Some),
        _ => skip_value(scan).map(|()| None),
    }
}

/// Walks an object, or skips any other value.
pub(super) fn walk_if_object<'a>(
    scan: &mut JsonScanner<'a>,
    member: impl FnMut(&mut JsonScanner<'a>, JsonString) -> ReadResult,
) -> Result<Option<Span>, MalformedJson> {
    match scan.peek() {
        Some(b'{') => scan.walk_object(member).map(Some),
        _ => skip_value(scan).map(|()| None),
    }
}
