//! Answers of chat completions: where the parts of one that may have to change lie in it.
//!
//! Reads a chunk of a stream and an answer in one piece alike; of the choices only the first is
//! looked into. Holds spans, never copies. What has another shape than expected is passed over
//! where that is possible and an error where spans could not be trusted.

use crate::{
    json::scan::{Kind, Malformed, Scan, Span, Text},
    wire::usage::Usage,
};

/// A chunk, or a whole answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// A string that is not empty.
    pub id: Option<Text>,
    /// Wherever usage was reported, `null` left out.
    pub reports: Vec<Report>,
    /// There is an `error` that is not `null`.
    pub error: bool,
    pub choices: u32,
    /// The choice with index 0, or without one.
    pub first: Option<Choice>,
}

/// A usage object.
#[derive(Clone, Debug)]
pub struct Report {
    pub span: Span,
    pub usage: Option<Usage>,
    /// Whole numbers that may be edited, and where they stand.
    pub completion: Option<(u64, Span)>,
    pub total: Option<(u64, Span)>,
}

#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The `delta`, or the `message`.
    pub said: Option<Said>,
    /// A finish reason that is a string and not empty.
    pub finish: Option<Text>,
}

/// What a delta or a message says.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub span: Span,
    pub members: Vec<Member>,
    /// The content: the string, or the texts of its parts.
    pub texts: Vec<Text>,
    /// Calls, or fragments of them; a legacy `function_call` too.
    pub calls: Vec<Fragment>,
}

#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub key: Text,
    pub value: Span,
    pub kind: Kind,
}

/// A call, or what a chunk holds of one.
#[derive(Clone, Debug, Default)]
pub struct Fragment {
    pub span: Span,
    pub index: Option<(u64, Span)>,
    /// A string that is not empty.
    pub id: Option<Text>,
    pub name: Option<Text>,
    pub arguments: Option<(Span, Kind)>,
    pub legacy: bool,
}

impl Member {
    /// Key and value.
    pub const fn span(self) -> Span {
        Span {
            start: self.key.quoted().start,
            end: self.value.end,
        }
    }
}

impl Said {
    pub fn member(&self, json: &[u8], name: &[u8]) -> Option<Member> {
        let mut members = self.members.iter();
        members
            .find(|member| &json[member.key.span.range()] == name)
            .copied()
    }
}

/// Reads one.
///
/// # Errors
/// This is no JSON object.
pub fn read(json: &[u8]) -> Result<Answer, Malformed> {
    let mut answer = Answer::default();
    let mut scan = Scan::new(json, 0);
    scan.object(|scan, key| match &json[key.span.range()] {
        b"choices" => choices(json, scan, &mut answer),
        b"usage" => report(json, scan, &mut answer.reports),
        b"x_groq" => groq(json, scan, &mut answer.reports),
        b"id" => {
            answer.id = filled(scan)?;
            Ok(())
        }
        b"error" => {
            answer.error = scan.value()?.1 != Kind::Null;
            Ok(())
        }
        _ => skip(scan),
    })?;
    scan.end()?;
    Ok(answer)
}

fn skip(scan: &mut Scan<'_>) -> Result<(), Malformed> {
    scan.value().map(|_| ())
}

/// A string; `None` for one that is empty and for any other value.
fn filled(scan: &mut Scan<'_>) -> Result<Option<Text>, Malformed> {
    Ok(string(scan)?.filter(|text| !text.span.is_empty()))
}

fn string(scan: &mut Scan<'_>) -> Result<Option<Text>, Malformed> {
    if scan.peek() == Some(b'"') {
        return scan.string().map(Some);
    }
    skip(scan)?;
    Ok(None)
}

/// A whole number that is not negative; `None` for any other value.
fn number(json: &[u8], scan: &mut Scan<'_>) -> Result<Option<(u64, Span)>, Malformed> {
    let (span, _) = scan.value()?;
    let number = std::str::from_utf8(&json[span.range()]).ok();
    Ok(number
        .and_then(|number| number.parse().ok())
        .map(|number| (number, span)))
}

fn groq(json: &[u8], scan: &mut Scan<'_>, reports: &mut Vec<Report>) -> Result<(), Malformed> {
    if scan.peek() != Some(b'{') {
        return skip(scan);
    }
    let walked = scan.object(|scan, key| match &json[key.span.range()] {
        b"usage" => report(json, scan, reports),
        _ => skip(scan),
    });
    walked.map(|_| ())
}

fn report(json: &[u8], scan: &mut Scan<'_>, reports: &mut Vec<Report>) -> Result<(), Malformed> {
    if scan.peek() != Some(b'{') {
        return skip(scan);
    }
    let (mut completion, mut total) = (None, None);
    let span = scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"completion_tokens" => completion = number(json, scan)?,
            b"output_tokens" if completion.is_none() => completion = number(json, scan)?,
            b"total_tokens" => total = number(json, scan)?,
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })?;
    let text = std::str::from_utf8(&json[span.range()]);
    reports.push(Report {
        span,
        usage: text.ok().and_then(Usage::read),
        completion,
        total,
    });
    Ok(())
}

fn choices(json: &[u8], scan: &mut Scan<'_>, answer: &mut Answer) -> Result<(), Malformed> {
    if scan.peek() != Some(b'[') {
        return skip(scan);
    }
    let walked = scan.array(|scan| {
        answer.choices += 1;
        if scan.peek() != Some(b'{') {
            return skip(scan);
        }
        let mut choice = Choice::default();
        let mut index = 0;
        scan.object(|scan, key| {
            match &json[key.span.range()] {
                b"index" => index = number(json, scan)?.map_or(0, |(index, _)| index),
                b"delta" | b"message" => choice.said = said(json, scan)?.or(choice.said.take()),
                b"finish_reason" => choice.finish = filled(scan)?,
                b"usage" => report(json, scan, &mut answer.reports)?,
                _ => skip(scan)?,
            }
            Ok::<_, Malformed>(())
        })?;
        if index == 0 && answer.first.is_none() {
            answer.first = Some(choice);
        }
        Ok(())
    });
    walked.map(|_| ())
}

fn said(json: &[u8], scan: &mut Scan<'_>) -> Result<Option<Said>, Malformed> {
    if scan.peek() != Some(b'{') {
        skip(scan)?;
        return Ok(None);
    }
    let mut said = Said::default();
    said.span = scan.object(|scan, key| {
        let mut inner = scan.clone();
        let (value, kind) = scan.value()?;
        said.members.push(Member { key, value, kind });
        match (&json[key.span.range()], kind) {
            (b"content", Kind::String) => said.texts.push(inner.string()?),
            (b"content", Kind::Array) => {
                inner.array(|scan| part(json, scan, &mut said.texts))?;
            }
            (b"tool_calls", Kind::Array) => {
                inner.array(|scan| {
                    said.calls.extend(fragment(json, scan)?);
                    Ok::<_, Malformed>(())
                })?;
            }
            (b"function_call", Kind::Object) => {
                let mut call = Fragment {
                    legacy: true,
                    ..Fragment::default()
                };
                call.span = function(json, &mut inner, &mut call)?;
                said.calls.push(call);
            }
            _ => {}
        }
        Ok::<_, Malformed>(())
    })?;
    Ok(Some(said))
}

/// A content part, of which the text counts.
fn part(json: &[u8], scan: &mut Scan<'_>, texts: &mut Vec<Text>) -> Result<(), Malformed> {
    if scan.peek() != Some(b'{') {
        return skip(scan);
    }
    let (mut kind, mut text) = (None, None);
    scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"type" => kind = string(scan)?,
            b"text" => text = string(scan)?,
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })?;
    let is_text = kind.is_none_or(|kind| &json[kind.span.range()] == b"text");
    texts.extend(text.filter(|_| is_text));
    Ok(())
}

/// An element of `tool_calls`; `None` for what is no object.
fn fragment(json: &[u8], scan: &mut Scan<'_>) -> Result<Option<Fragment>, Malformed> {
    if scan.peek() != Some(b'{') {
        skip(scan)?;
        return Ok(None);
    }
    let mut call = Fragment::default();
    call.span = scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"index" => call.index = number(json, scan)?,
            b"id" => call.id = filled(scan)?,
            b"function" if scan.peek() == Some(b'{') => {
                function(json, scan, &mut call)?;
            }
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })?;
    Ok(Some(call))
}

fn function(json: &[u8], scan: &mut Scan<'_>, call: &mut Fragment) -> Result<Span, Malformed> {
    scan.object(|scan, key| {
        match &json[key.span.range()] {
            b"name" => call.name = filled(scan)?,
            b"arguments" => call.arguments = Some(scan.value()?),
            _ => skip(scan)?,
        }
        Ok::<_, Malformed>(())
    })
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn everything_that_may_change_is_found() {
        let json = br#" {"id":"x","error":null,"choices":[{"index":1,"delta":{}},{"delta":
            {"content":[{"type":"text","text":"a"},{"type":"thinking","text":"t"},{"text":"b"},3],
             "tool_calls":[{"index":2,"id":"","function":{"name":"n","arguments":"{}"}},null],
             "function_call":null},"finish_reason":"stop","usage":{"completion_tokens":2.5}}],
            "usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},
            "x_groq":{"usage":null}} "#;
        let answer = read(json).unwrap();
        let text = |span: super::Span| std::str::from_utf8(&json[span.range()]).unwrap();
        assert_eq!((answer.choices, answer.error), (2, false));
        assert_eq!(text(answer.id.unwrap().span), "x");
        let first = answer.first.unwrap();
        assert_eq!(text(first.finish.unwrap().span), "stop");
        let said = first.said.unwrap();
        let texts: Vec<_> = said.texts.iter().map(|found| text(found.span)).collect();
        assert_eq!(texts, ["a", "b"]);
        assert_eq!(said.calls.len(), 1);
        let call = &said.calls[0];
        assert_eq!(call.index.unwrap().0, 2);
        assert_eq!((call.id, text(call.name.unwrap().span)), (None, "n"));
        assert_eq!(
            text(said.member(json, b"function_call").unwrap().value),
            "null"
        );
        assert_eq!(answer.reports.len(), 2);
        assert!(answer.reports[0].completion.is_none());
        assert_eq!(answer.reports[1].total.unwrap().0, 3);
    }

    #[test]
    fn odd_shapes_are_passed_over_and_broken_ones_refused() {
        for json in [
            r#"{"choices":null,"usage":7,"x_groq":[]}"#,
            r#"{"choices":[1,{"delta":null},{"delta":[]}]}"#,
            r#"{"choices":[{"delta":{"content":5,"tool_calls":{},"function_call":"x"}}]}"#,
            r#"{"choices":[{"delta":{"content":["x",{"text":null}],"tool_calls":[[]]}}]}"#,
        ] {
            assert!(read(json.as_bytes()).is_ok(), "{json}");
        }
        for json in ["", "[]", "null", r#"{"a":1"#, r#"{"a":1} x"#] {
            assert!(read(json.as_bytes()).is_err(), "{json}");
        }
    }
}
