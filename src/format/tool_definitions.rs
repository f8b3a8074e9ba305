//! Makes the definitions of a request's tools shorter.
//!
//! Members are removed, and texts are cut, only where JSON Schema has a keyword: in `properties`, `title` may be the name
//! of a property, and the values of `enum`, `const`, `default` and all other members are data. What a schema accepts
//! stays the same.

use smallvec::SmallVec;

use crate::{
    conversation::{Conversation, Format, ToolBrevity, ToolList, edit::Edits},
    format::{
        responses,
        values::{ReadResult, find_member, skip_value, take_text},
    },
    json::{
        scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
        text::{Character, TextWalk},
    },
};

/// Nesting that is followed; what lies deeper stays as it is.
const MAX_DEPTH: u32 = 64;

/// How the value of a keyword is read.
enum Keyword {
    /// A schema, or a list of them.
    Schema,
    /// Schemas by names.
    NamedSchemas,
    Description,
    /// A text that no model needs.
    Annotation,
    /// A list that no model needs.
    Examples,
    Other,
}

impl Keyword {
    fn from_name(name: &[u8]) -> Self {
        match name {
            b"additionalItems"
            | b"additionalProperties"
            | b"allOf"
            | b"anyOf"
            | b"contains"
            | b"contentSchema"
            | b"else"
            | b"if"
            | b"items"
            | b"not"
            | b"oneOf"
            | b"prefixItems"
            | b"propertyNames"
            | b"then"
            | b"unevaluatedItems"
            | b"unevaluatedProperties" => Self::Schema,
            b"$defs" | b"definitions" | b"dependencies" | b"dependentSchemas"
            | b"patternProperties" | b"properties" => Self::NamedSchemas,
            b"description" => Self::Description,
            b"$schema" | b"$comment" | b"title" => Self::Annotation,
            b"examples" => Self::Examples,
            _ => Self::Other,
        }
    }
}

impl Conversation {
    /// The lists of the client's tools.
    pub fn tool_lists(&self) -> Vec<ToolList> {
        let members = self
            .tool_members()
            .map(|span| ToolList { span, item: None });
        let in_entries = by_format!(self.format,
            Responses => self.entry_lists();
            else Chat | Messages => Vec::new());
        members.chain(in_entries).collect()
    }

    fn entry_lists(&self) -> Vec<ToolList> {
        let entries = responses::request::tool_entries(self);
        let lists = entries.filter_map(|item| {
            let (span, kind) = find_member(&self.body, item.span.start, b"tools")?;
            let item = Some(self.find_item_at(item.span.start));
            (kind == JsonKind::Array).then_some(ToolList { span, item })
        });
        lists.collect()
    }

    /// Makes the tools of a list shorter. Returns how many get shorter. Tools that the model does not see before
    /// something names them (`defer_loading`) stay as they are, since a search uses their texts.
    pub fn shorten_tools(&self, list: Span, brevity: ToolBrevity, edits: &mut Edits) -> usize {
        let body = &*self.body;
        let mut scan = JsonScanner::new(body, list.start as usize);
        // A list that cannot be read stays.
        ToolShortener { body, brevity }
            .shorten_list(&mut scan, MAX_DEPTH, edits)
            .unwrap_or(0)
    }
}

struct ToolShortener<'a> {
    body: &'a [u8],
    brevity: ToolBrevity,
}

impl<'a> ToolShortener<'a> {
    fn shorten_list(
        &self,
        scan: &mut JsonScanner<'a>,
        depth: u32,
        edits: &mut Edits,
    ) -> Result<usize, MalformedJson> {
        let mut count = 0;
        if scan.peek() != Some(b'[') || depth == 0 {
            return skip_value(scan).map(|()| count);
        }
        scan.walk_array(|scan| {
            count += self.shorten_tool(scan, depth - 1, edits)?;
            Ok::<_, MalformedJson>(())
        })?;
        Ok(count)
    }

    /// Makes a tool shorter. Returns how many tools get shorter, since a tool may hold others.
    fn shorten_tool(
        &self,
        scan: &mut JsonScanner<'a>,
        depth: u32,
        edits: &mut Edits,
    ) -> Result<usize, MalformedJson> {
        if scan.peek() != Some(b'{') || depth == 0 {
            return skip_value(scan).map(|()| 0);
        }
        let (mut own, mut inner) = (Edits::default(), Edits::default());
        let (mut count, mut is_deferred) = (0, false);
        scan.walk_object(|scan, key| match key.raw_bytes(self.body) {
            // The schema of the arguments, by the name that the format has for it.
            b"parameters" | b"input_schema" => self.shorten_schema(scan, depth - 1, &mut own),
            b"description" => self.shorten_description(scan, &mut own).map(drop),
            b"function" => {
                count += self.shorten_tool(scan, depth - 1, &mut inner)?;
                Ok(())
            }
            b"tools" => {
                count += self.shorten_list(scan, depth - 1, &mut inner)?;
                Ok(())
            }
            b"defer_loading" => {
                is_deferred = scan.take_value()?.1 == JsonKind::True;
                Ok(())
            }
            _ => skip_value(scan),
        })?;
        if is_deferred {
            return Ok(0);
        }
        count += usize::from(!own.is_empty());
        edits.merge(own);
        edits.merge(inner);
        Ok(count)
    }

    /// Takes any value, and shortens it if it is a schema or a list of schemas.
    fn shorten_schema(
        &self,
        scan: &mut JsonScanner<'a>,
        depth: u32,
        edits: &mut Edits,
    ) -> ReadResult {
        let next = scan.peek();
        match next {
            Some(b'[') if depth > 0 => scan
                .walk_array(|scan| self.shorten_schema(scan, depth - 1, edits))
                .map(drop),
            Some(b'{') if depth > 0 => self.shorten_members(scan, depth - 1, edits),
            _ => skip_value(scan),
        }
    }

    fn shorten_members(
        &self,
        scan: &mut JsonScanner<'a>,
        depth: u32,
        edits: &mut Edits,
    ) -> ReadResult {
        let mut members = SmallVec::<[Span; 8]>::new();
        let mut removed = SmallVec::<[bool; 8]>::new();
        scan.walk_object(|scan, key| {
            let next = scan.peek();
            let is_removed = match Keyword::from_name(key.raw_bytes(self.body)) {
                Keyword::Schema => self.shorten_schema(scan, depth, edits).map(|()| false),
                Keyword::NamedSchemas if next == Some(b'{') && depth > 0 => scan
                    .walk_object(|scan, _| self.shorten_schema(scan, depth - 1, edits))
                    .map(|_| false),
                Keyword::Description => self
                    .shorten_description(scan, edits)
                    .map(|text| text.is_some_and(|text| text.span.is_empty())),
                Keyword::Annotation => take_text(scan).map(|text| text.is_some()),
                Keyword::Examples => scan.take_value().map(|(_, kind)| kind == JsonKind::Array),
                Keyword::NamedSchemas | Keyword::Other => skip_value(scan).map(|()| false),
            }?;
            members.push(Span {
                start: key.quoted_span().start,
                end: scan.position() as u32,
            });
            removed.push(is_removed);
            Ok::<_, MalformedJson>(())
        })?;
        edits.remove_items(&members, |at| removed[at]);
        Ok(())
    }

    /// Takes any value, and returns it if it is a text. Cuts the text behind its first sentence.
    fn shorten_description(
        &self,
        scan: &mut JsonScanner<'a>,
        edits: &mut Edits,
    ) -> Result<Option<JsonString>, MalformedJson> {
        let text = take_text(scan)?;
        if let Some(text) = text.filter(|_| self.brevity == ToolBrevity::FirstSentences)
            && let Some(end) = find_sentence_end(text.raw_bytes(self.body))
        {
            edits.remove(text.span.part(end..text.span.len()));
        }
        Ok(text)
    }
}

/// Finds the byte behind the first sentence of a text. Returns `None` if no other sentence follows, or if the text cannot
/// be decoded. A sentence ends before a blank line, or with a mark that is followed by white space and then no small
/// letter (a Chinese mark needs neither). A mark behind the first word, and a full stop behind a single letter, end no
/// sentence: they belong to a number of a list, or to an abbreviation.
fn find_sentence_end(raw: &[u8]) -> Option<usize> {
    let mut walk = TextWalk::new(raw);
    let characters: Vec<Character> = walk.by_ref().collect();
    if !walk.is_sound() {
        return None;
    }
    let chars: Vec<char> = characters.iter().map(|it| it.to_char()).collect();
    let first = chars.iter().position(|char| !char.is_whitespace())?;
    let mut has_words = false;
    for at in first..chars.len() {
        let behind = &chars[at + 1..];
        let next = behind.iter().find(|char| !char.is_whitespace())?;
        let is_apart = behind[0].is_whitespace();
        let is_abbreviated = at < first + 2 || !chars[at - 2].is_alphanumeric();
        let ends = match chars[at] {
            '。' | '！' | '？' => true,
            '!' | '?' => has_words && is_apart && !next.is_lowercase(),
            '.' => has_words && is_apart && !next.is_lowercase() && !is_abbreviated,
            _ => false,
        };
        if ends || !chars[at].is_whitespace() && begins_blank_line(behind) {
            return Some(characters[at + 1].at);
        }
        has_words |= is_apart;
    }
    None
}

/// Whether only white space comes before the second line end.
fn begins_blank_line(chars: &[char]) -> bool {
    let blanks = chars.iter().take_while(|char| char.is_whitespace());
    blanks.filter(|char| **char == '\n').count() > 1
}

#[cfg(test)]
mod tests;
