//! Reads one entry of `input`: its kind, and where its texts lie.

use super::{
    kinds::{CallShape, EntryKind, EntryType},
    values::{TextValue, ValueReader},
};
use crate::{
    conversation::{Arguments, Call, Link, LinkKind, annotation},
    format::{
        index::{
            indexing::{IndexFailure, SingleKeys},
            sealed::measure_sealed,
        },
        values::{skip_value, take_caller, take_raw_text, take_text},
    },
    json::{
        scan::{JsonScanner, JsonString, Span},
        text::{self, TextSizes},
    },
};

/// The keys that may occur only once in an entry.
const ENTRY_KEYS: SingleKeys = SingleKeys(
    &[
        "type",
        "role",
        "content",
        "output",
        "call_id",
        "id",
        "name",
        "arguments",
        "input",
        "code",
        "action",
        "operation",
        "encrypted_content",
        "approval_request_id",
        "execution",
        "result",
    ],
    IndexFailure::Twice,
);

#[derive(Default)]
pub(super) struct Entry<'a> {
    pub(super) span: Span,
    pub(super) kind: EntryKind,
    /// `type`, where it is a string.
    type_name: Option<JsonString>,
    pub(super) content: TextValue<'a>,
    pub(super) output: TextValue<'a>,
    pub(super) call_id: Option<JsonString>,
    pub(super) id: Option<JsonString>,
    pub(super) name: Option<JsonString>,
    pub(super) approval_request_id: Option<JsonString>,
    /// The `call_id` of a program.
    caller: Option<JsonString>,
    /// `result`: an image in base64.
    pub(super) result: Option<JsonString>,
    arguments: Option<Arguments>,
    summary: Option<TextValue<'a>>,
    encrypted: Option<JsonString>,
    pub(super) annotated: bool,
}

impl<'a> Entry<'a> {
    pub(super) fn read(
        reader: &ValueReader<'a, '_>,
        scan: &mut JsonScanner<'a>,
    ) -> Result<Self, IndexFailure> {
        let mut kind = EntryType::default();
        let mut entry = Self::default();
        entry.span = ENTRY_KEYS.walk_object(reader.body, scan, |scan, key| {
            match key {
                b"type" => entry.type_name = take_text(scan)?,
                b"role" => kind.role = take_raw_text(reader.body, scan)?,
                b"content" => entry.content = reader.read_value(scan)?,
                b"output" => entry.output = reader.read_value(scan)?,
                b"summary" => entry.summary = Some(reader.read_value(scan)?),
                b"call_id" => entry.call_id = take_text(scan)?,
                b"id" => entry.id = take_text(scan)?,
                b"name" => entry.name = take_text(scan)?,
                b"approval_request_id" => entry.approval_request_id = take_text(scan)?,
                b"caller" => entry.caller = take_caller(reader.body, scan)?,
                b"execution" => kind.execution = take_raw_text(reader.body, scan)?,
                b"result" => entry.result = take_text(scan)?,
                b"encrypted_content" => entry.encrypted = take_text(scan)?,
                b"arguments" | b"input" | b"code" | b"action" | b"actions" | b"operation" => {
                    entry.arguments = Some(read_arguments(scan)?);
                }
                key => {
                    entry.annotated |= key == annotation::ANNOTATION_KEY;
                    skip_value(scan)?;
                }
            }
            Ok(())
        })?;
        kind.name = entry
            .type_name
            .map_or(b"", |name| name.raw_bytes(reader.body));
        kind.has_call_id = entry.call_id.is_some();
        entry.kind = kind.kind();
        Ok(entry)
    }

    /// Returns the call of an entry of this shape. If the call has no name, then the name of the entry's type is used.
    pub(super) fn call(&self, shape: CallShape) -> Call {
        Call {
            span: self.span,
            id: match shape {
                CallShape::Approval => self.id,
                _ => self.call_id,
            },
            name: self.name.or(self.type_name),
            arguments: self.arguments,
            listed: true,
            fixed: !matches!(
                shape,
                CallShape::Function | CallShape::Custom | CallShape::LocalShell
            ),
        }
    }

    /// The program that made the call, or reads the output.
    pub(super) fn caller(&self) -> Option<Link> {
        let kind = LinkKind::Caller;
        self.caller.map(|id| Link { id, kind })
    }

    /// Measures reasoning: its text, or what was encrypted as if it were prose.
    pub(super) fn measure_reasoning(&self, body: &[u8]) -> TextSizes {
        if let Some(encrypted) = self.encrypted {
            return measure_sealed(encrypted);
        }
        let texts = |value: &TextValue<'_>| match value {
            TextValue::Parts(_, parts) => {
                let texts = parts.iter().filter_map(|part| part.any_text());
                let mut sizes = TextSizes::default();
                texts.for_each(|text| sizes += text::measure_text(text.raw_bytes(body)));
                sizes
            }
            _ => TextSizes::default(),
        };
        let full = texts(&self.content);
        match full.total_chars() {
            // The model reads its reasoning, not the summary of it, where there are both.
            0 => self.summary.as_ref().map(texts).unwrap_or_default(),
            _ => full,
        }
    }
}

/// A string, or any other value as it is.
fn read_arguments(scan: &mut JsonScanner<'_>) -> Result<Arguments, IndexFailure> {
    Ok(match scan.peek() {
        Some(b'"') => Arguments::Text(scan.take_string()?),
        _ => Arguments::Json(scan.take_value()?.0),
    })
}
