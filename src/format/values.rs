//! Single values of a JSON text, shared by the readers of all formats.

use serde_json::Value;
use smallvec::SmallVec;

use super::FinishKind;
use crate::{
    conversation::{Conversation, Field, edit::Edits},
    json::scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
};

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

/// Takes any value. Returns the raw content of a string, which is empty for any other value.
pub(super) fn take_raw_text<'a>(
    json: &'a [u8],
    scan: &mut JsonScanner<'_>,
) -> Result<&'a [u8], MalformedJson> {
    Ok(take_text(scan)?.map_or(b"", |text| text.raw_bytes(json)))
}

/// Takes any value; gives it if it is a string that is not empty.
pub(super) fn take_nonempty_text(
    scan: &mut JsonScanner<'_>,
) -> Result<Option<JsonString>, MalformedJson> {
    Ok(take_text(scan)?.filter(|text| !text.span.is_empty()))
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

/// The spans of an object and of its members.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectSpans {
    pub(super) span: Span,
    pub(super) members: SmallVec<[Field; 4]>,
}

impl ObjectSpans {
    pub(super) fn read(scan: &mut JsonScanner<'_>) -> Result<Self, MalformedJson> {
        let mut members = SmallVec::new();
        let span = scan.walk_object(|scan, key| {
            let (value, kind) = scan.take_value()?;
            members.push(Field { key, value, kind });
            Ok::<_, MalformedJson>(())
        })?;
        Ok(Self { span, members })
    }

    /// The first member of this name.
    pub(super) fn find_member(&self, json: &[u8], name: &[u8]) -> Option<&Field> {
        let mut members = self.members.iter();
        members.find(|member| &json[member.key.span.range()] == name)
    }

    pub(super) fn find_text(&self, json: &[u8], name: &[u8]) -> Option<JsonString> {
        let value = self.find_member(json, name)?.value;
        JsonScanner::new(json, value.start as usize)
            .take_string()
            .ok()
    }

    /// Returns the raw content of a string member; empty if the member is absent or not a string.
    pub(super) fn text_bytes<'a>(&self, json: &'a [u8], name: &[u8]) -> &'a [u8] {
        let member = self.find_member(json, name);
        let text = member.and_then(|it| json[it.value.range()].strip_prefix(b"\""));
        text.map_or(b"", |text| &text[..text.len() - 1])
    }

    /// The value of its `type`, as spelt.
    pub(super) fn type_name<'a>(&self, json: &'a [u8]) -> &'a [u8] {
        self.text_bytes(json, b"type")
    }
}

/// Elements of a list in an answer that are read; an answer has far fewer.
const MAX_ELEMENTS: usize = 4_096;

/// Reads the elements of a list. Returns `None` if it has more than [`MAX_ELEMENTS`].
pub(super) fn read_list<'a, T>(
    scan: &mut JsonScanner<'a>,
    mut read_element: impl FnMut(&mut JsonScanner<'a>) -> Result<T, MalformedJson>,
) -> Result<Option<(Span, Vec<T>)>, MalformedJson> {
    let mut elements = Vec::new();
    let span = scan.walk_array(|scan| {
        elements.push(read_element(scan)?);
        Ok::<_, MalformedJson>(())
    })?;
    Ok((elements.len() <= MAX_ELEMENTS).then_some((span, elements)))
}

/// Takes a `caller`. Returns the id of the program that it names; `None` if the model itself made the call. If the caller
/// is of an unknown kind, then its kind is returned in place of an id: no program has this id, so the call stays.
pub(super) fn take_caller(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
) -> Result<Option<JsonString>, MalformedJson> {
    let (mut program, mut kind) = (None, None);
    walk_if_object(scan, |scan, key| match key.raw_bytes(json) {
        b"caller_id" | b"tool_id" => take_text(scan).map(|id| program = id),
        b"type" => take_text(scan).map(|it| kind = it),
        _ => skip_value(scan),
    })?;
    Ok(program.or(kind.filter(|kind| kind.raw_bytes(json) != b"direct")))
}

/// The last value of the member `name` in the object that begins at `start`; `None` if there is no
/// such member, or no object.
pub(super) fn find_member(json: &[u8], start: u32, name: &[u8]) -> Option<(Span, JsonKind)> {
    let mut found = None;
    let walked = walk_if_object(&mut JsonScanner::new(json, start as usize), |scan, key| {
        let value = scan.take_value()?;
        if key.raw_bytes(json) == name {
            found = Some(value);
        }
        Ok(())
    });
    walked.ok().and(found)
}

/// Whether an object begins at `start`, with this `type`.
pub(super) fn has_type(json: &[u8], start: u32, name: &str) -> bool {
    let kind = find_member(json, start, b"type");
    let kind = kind.map(|(kind, _)| json[kind.range()].trim_ascii());
    let text = kind.and_then(|kind| kind.strip_prefix(b"\"")?.strip_suffix(b"\""));
    text == Some(name.as_bytes())
}

/// The value of a small top-level member of a request; null where it is missing.
pub(super) fn parse_field(conversation: &Conversation, name: &str) -> Value {
    let field = conversation.find_field(name);
    let value =
        field.and_then(|field| serde_json::from_slice(conversation.span_bytes(field.value)).ok());
    value.unwrap_or_default()
}

/// Removes members of an object. `members` are all of them, in their order.
pub(super) fn remove_members(
    members: &[Field],
    edits: &mut Edits,
    is_removed: impl Fn(&Field) -> bool,
) {
    let spans: Vec<Span> = members.iter().map(Field::full_span).collect();
    edits.remove_items(&spans, |at| is_removed(&members[at]));
}

/// Inserts a member into an object, before its others.
pub(super) fn insert_first_member(
    conversation: &Conversation,
    object: Span,
    member: &str,
    edits: &mut Edits,
) {
    let inside = conversation.span_bytes(object)[1..].trim_ascii_start();
    let comma = if inside == b"}" { "" } else { "," };
    edits.insert(object.start + 1, format!("{member}{comma}"));
}

/// Takes any value; gives it if it is a whole number that is not negative.
pub(super) fn take_index(
    json: &[u8],
    scan: &mut JsonScanner<'_>,
) -> Result<Option<(u64, Span)>, MalformedJson> {
    let (value, _) = scan.take_value()?;
    let digits = std::str::from_utf8(&json[value.range()]).ok();
    let index = digits.and_then(|digits| digits.parse().ok());
    Ok(index.map(|index| (index, value)))
}

/// Returns the kind of a finish reason. Every provider has its own words for an answer that was cut off. If another
/// reason is wrongly taken for one of these, then the client's loop ends.
pub(super) fn finish_kind(reason: &[u8]) -> FinishKind {
    const CUT_OFF: [&str; 7] = [
        "length",
        "max",
        "filter",
        "safety",
        "sensitive",
        "error",
        "window",
    ];
    let reason = String::from_utf8_lossy(reason).to_ascii_lowercase();
    match &*reason {
        "tool_calls" | "function_call" | "tool_use" => FinishKind::Calls,
        "refusal" | "recitation" | "insufficient_system_resource" | "cancelled" => {
            FinishKind::CutOff
        }
        _ if CUT_OFF.iter().any(|word| reason.contains(word)) => FinishKind::CutOff,
        _ => FinishKind::Other,
    }
}
