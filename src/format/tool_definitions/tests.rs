use bytes::Bytes;

use super::*;

/// The tools of a request as they are shortened, and how many are.
fn shorten(format: Format, tools: &str, brevity: ToolBrevity) -> (String, usize) {
    let list = match format {
        Format::Responses => "input",
        _ => "messages",
    };
    let user = r#"{"role":"user","content":"u"}"#;
    let body = format!(r#"{{"tools":{tools},"{list}":[{user}]}}"#);
    let conversation = format.index_body(Bytes::from(body)).unwrap();
    let [list] = conversation.tool_lists()[..] else {
        panic!("one list");
    };
    let mut edits = Edits::default();
    let count = conversation.shorten_tools(list.span, brevity, &mut edits);
    let short = edits.apply_to_part(&conversation.body, list.span);
    (String::from_utf8(short).unwrap(), count)
}

fn in_messages(schema: &str, brevity: ToolBrevity) -> String {
    let frame = |schema: &str| format!(r#"[{{"name":"f","input_schema":{schema}}}]"#);
    let (short, _) = shorten(Format::Messages, &frame(schema), brevity);
    let (start, end) = (frame("").len() - 2, short.len() - 2);
    short[start..end].to_owned()
}

#[test]
fn annotations_go_where_schemas_have_them() {
    for (schema, short) in [
        (
            r#"{"$schema":"s","type":"object","title":"T","$comment":"c"}"#,
            r#"{"type":"object"}"#,
        ),
        (
            r#"{ "title": "T" , "type" : "object" }"#,
            r#"{ "type" : "object" }"#,
        ),
        (r#"{"title":"T","description":""}"#, "{}"),
        (
            r#"{"items":{"title":"T","examples":[1,{"title":"x"}]},"a":1}"#,
            r#"{"items":{},"a":1}"#,
        ),
        (
            r#"{"anyOf":[{"title":"A","type":"null"},{"title":"B"}],"$defs":{"title":{"title":"C"}}}"#,
            r#"{"anyOf":[{"type":"null"},{}],"$defs":{"title":{}}}"#,
        ),
        (
            r#"{"properties":{"title":{"title":"T","type":"string"},"examples":{"examples":["e"]}},"required":["title"]}"#,
            r#"{"properties":{"title":{"type":"string"},"examples":{}},"required":["title"]}"#,
        ),
    ] {
        assert_eq!(in_messages(schema, ToolBrevity::NoAnnotations), short);
    }
}

#[test]
fn data_and_names_stay() {
    for schema in [
        r#"{"enum":[{"title":"T","description":"A b. C d."}],"const":{"title":"T"},"default":{"$schema":"s"}}"#,
        r#"{"properties":{"description":{"type":"string"},"$comment":{"type":"string"},"$schema":true}}"#,
        r#"{"x-order":{"title":"T"},"required":["title","examples"],"dependencies":{"title":["examples"]}}"#,
        // Not as the keyword has it.
        r#"{"title":{"type":"string"},"examples":{"a":1},"$comment":7,"description":null}"#,
        // A key in another spelling.
        r#"{"tit\u006ce":"T"}"#,
    ] {
        assert_eq!(in_messages(schema, ToolBrevity::FirstSentences), schema);
    }
}

#[test]
fn descriptions_keep_their_first_sentence() {
    for (text, first) in [
        ("Reads a file. Then returns it.", "Reads a file."),
        (r"Reads a file.\n\nUsage:\n- p", "Reads a file."),
        (r"Reads a file\n  \nUsage: none.", "Reads a file"),
        (
            r"\n    Reads\n    a file.\n    More.",
            r"\n    Reads\n    a file.",
        ),
        (
            "The city, e.g. San Francisco, CA. In full.",
            "The city, e.g. San Francisco, CA.",
        ),
        (
            "The state (i.e. its name). As spelt.",
            "The state (i.e. its name).",
        ),
        ("1. Look at it first. 2. Go.", "1. Look at it first."),
        ("Version 2.5 of it. Then no more", "Version 2.5 of it."),
        ("Is it there? Says so.", "Is it there?"),
        (r"读取文件。然后返回。", "读取文件。"),
        (r"\u8bfb\u53d6\u3002\u7136\u540e", r"\u8bfb\u53d6\u3002"),
        (r"Run.\n\nUsage: none.", "Run."),
    ] {
        let schema = |text: &str| format!(r#"{{"description":"{text}"}}"#);
        let short = in_messages(&schema(text), ToolBrevity::FirstSentences);
        assert_eq!(short, schema(first));
        // Once is enough, and nothing of it goes with annotations alone.
        let again = in_messages(&short, ToolBrevity::FirstSentences);
        assert_eq!(again, short);
        let whole = in_messages(&schema(text), ToolBrevity::NoAnnotations);
        assert_eq!(whole, schema(text));
    }
    for text in [
        "Reads a file.",
        "Reads a file.  ",
        "reads etc. and so on",
        r"half \ud83d of. A pair",
        "J. Doe",
        "",
    ] {
        let schema = format!(r#"{{"type":"string","minLength":1,"description":"{text}"}}"#);
        let short = in_messages(&schema, ToolBrevity::FirstSentences);
        let bare = r#"{"type":"string","minLength":1}"#;
        assert_eq!(short, if text.is_empty() { bare } else { &*schema });
    }
}

#[test]
fn each_format_has_its_schemas_and_descriptions() {
    let schema = r#"{"type":"object","title":"T"}"#;
    let bare = r#"{"type":"object"}"#;
    let long = "Does it. Then more.";
    let chat = |text: &str, schema: &str| {
        format!(
            r#"[{{"type":"function","function":{{"name":"f","description":"{text}","strict":true,"parameters":{schema}}}}}]"#
        )
    };
    let messages = |text: &str, schema: &str| {
        format!(
            r#"[{{"name":"f","description":"{text}","input_schema":{schema},"input_examples":[{{"title":"x"}}],"cache_control":{{"type":"ephemeral"}}}},{{"type":"web_search_20250305","name":"web_search"}}]"#
        )
    };
    let responses = |text: &str, schema: &str| {
        format!(
            r#"[{{"type":"namespace","name":"n","description":"{text}","tools":[{{"type":"function","name":"f","description":"{text}","parameters":{schema}}}]}},{{"type":"custom","name":"g","description":"{text}","format":{{"type":"grammar","definition":"A. B. C."}}}},{{"type":"mcp","server_label":"s","server_description":"{long}"}}]"#
        )
    };
    type WriteTools<'a> = &'a dyn Fn(&str, &str) -> String;
    let forms: [(Format, WriteTools<'_>, usize); 3] = [
        (Format::Chat, &chat, 1),
        (Format::Messages, &messages, 1),
        (Format::Responses, &responses, 3),
    ];
    for (format, form, all) in forms {
        let check = |brevity, text: &str, count| {
            let short = shorten(format, &form(long, schema), brevity);
            assert_eq!(short, (form(text, bare), count));
        };
        check(ToolBrevity::NoAnnotations, long, 1);
        check(ToolBrevity::FirstSentences, "Does it.", all);
    }
}

#[test]
fn deferred_tools_and_what_is_no_list_stay() {
    for tools in [
        r#"[{"defer_loading":true,"name":"f","description":"A b. C d.","input_schema":{"title":"T"}}]"#,
        r#"[{"name":"f","description":"A b. C d.","input_schema":{"title":"T"},"defer_loading":true}]"#,
        r#"{"name":"f","description":"A b. C d."}"#,
        r#"["A b. C d.",null,[{"description":"A b. C d."}]]"#,
    ] {
        let short = shorten(Format::Messages, tools, ToolBrevity::FirstSentences);
        assert_eq!(short, (tools.to_owned(), 0));
    }
}

#[test]
fn what_is_nested_too_deep_stays() {
    let nest = |levels: usize, inside: &str| {
        format!(
            "{}{inside}{}",
            r#"{"items":"#.repeat(levels),
            "}".repeat(levels)
        )
    };
    let long = r#"{"title":"T"}"#;
    assert_eq!(
        in_messages(&nest(20, long), ToolBrevity::NoAnnotations),
        nest(20, "{}")
    );
    let deep = nest(100, long);
    assert_eq!(in_messages(&deep, ToolBrevity::NoAnnotations), deep);
}

#[test]
fn tools_in_entries_are_lists_too() {
    let body = r#"{"input":[{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"f","parameters":{"title":"T"}}]},{"role":"user","content":"u"}],"tools":[]}"#;
    let conversation = Format::Responses.index_body(Bytes::from(body)).unwrap();
    let lists = conversation.tool_lists();
    let items: Vec<_> = lists.iter().map(|list| list.item).collect();
    assert_eq!(items, [None, Some(0)]);
    let mut edits = Edits::default();
    let list = lists[1].span;
    assert_eq!(
        conversation.shorten_tools(list, ToolBrevity::NoAnnotations, &mut edits),
        1
    );
    let sent = edits.apply(&conversation.body).to_bytes();
    assert_eq!(sent, body.replace(r#""title":"T""#, ""));
}
