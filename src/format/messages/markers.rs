//! Places of the cache markers that the proxy adds.
//!
//! The provider writes its cache at markers only. From a marker, it looks back over at most 20 blocks for what an earlier
//! request wrote. Therefore two inputs are marked. The newest one is marked for the next request to find. The input
//! before it is marked at the block that the request before marked, however many blocks came since. The tools with the
//! system prompt have a marker, and the task has one: both stay when the guard cuts what follows them.
//!
//! Blocks are marked, not the request as a whole: Anthropic's automatic marker is one place only, and not known to all
//! who host the API. The provider ignores a marker whose prefix is too short to be cached.

use memchr::memmem;
use smallvec::SmallVec;

use crate::{
    conversation::{
        Author, BlockKind, Content, Conversation, Item, ItemPlace, edit::Edits, texts::decode_chars,
    },
    json::scan::{JsonKind, JsonScanner, JsonString, MalformedJson, Span},
};

/// The member of a block that is a marker.
pub(in crate::format) const MARKER_KEY: &str = "cache_control";

/// What is cached lives for five minutes after its last use, the lifetime that the profiles assume.
const MARKER: &str = r#""cache_control":{"type":"ephemeral"}"#;

/// Runs of input at the end of the list that are marked.
const MARKED_INPUTS: usize = 2;

/// The key as it is spelled in a body. Inside a string, its quotes have escapes.
const QUOTED_MARKER_KEY: &[u8] = br#""cache_control""#;

/// The members of a request, of its entries and of blocks that hold tools or blocks.
const MARKED_LISTS: [&[u8]; 5] = [b"system", b"tools", b"messages", b"content", b"source"];

/// The deepest nesting of what may be marked: a block in the source of a document in a result is at 9.
const MAX_MARKED_LEVEL: u32 = 12;

/// Whether a request names a marker at a place where the format has markers, even as `null`. Schemas of tools and
/// arguments of calls may have a member of that name too, which is not a marker.
pub(in crate::format) fn names_marker(conversation: &Conversation) -> bool {
    let body = &conversation.body;
    let start = conversation.span.start as usize;
    memmem::find(body, QUOTED_MARKER_KEY).is_some()
        // An indexed body is never malformed.
        && find_marker(body, &mut JsonScanner::new(body, start), 0).unwrap_or(true)
}

/// Walks a value at the nesting level `level`. Returns whether the value is or holds something that names a marker.
fn find_marker(body: &[u8], scan: &mut JsonScanner<'_>, level: u32) -> Result<bool, MalformedJson> {
    let mut found = false;
    match scan.peek() {
        Some(b'[') if level < MAX_MARKED_LEVEL => scan.walk_array(|scan| {
            found |= find_marker(body, scan, level + 1)?;
            Ok::<_, MalformedJson>(())
        })?,
        Some(b'{') if level < MAX_MARKED_LEVEL => scan.walk_object(|scan, key| {
            let key = key.raw_bytes(body);
            found |= if MARKED_LISTS.contains(&key) {
                find_marker(body, scan, level + 1)?
            } else {
                scan.take_value().map(|_| key == MARKER_KEY.as_bytes())?
            };
            Ok::<_, MalformedJson>(())
        })?,
        _ => scan.take_value()?.0,
    };
    Ok(found)
}

/// Marks at most four places of a request without markers. A string that is marked becomes a list of one block, which
/// the provider reads alike.
pub(in crate::format) fn add_markers(conversation: &Conversation, edits: &mut Edits) {
    let items = &conversation.items;
    let task = items.iter().find(|item| item.is_by_user());
    let inputs = items.rsplit(|item| item.author == Author::Model);
    let inputs = inputs.filter_map(|input| {
        let mut newest_first = input.iter().rev();
        newest_first.find_map(|item| find_last_place(conversation, item))
    });
    let mut places: SmallVec<[Span; 4]> = inputs.take(MARKED_INPUTS).collect();
    places.extend(task.and_then(|task| find_last_place(conversation, task)));
    places.extend(find_system_place(conversation).or_else(|| find_last_tool(conversation)));
    places.sort_unstable_by_key(|place| place.start);
    places.dedup();
    for place in places {
        match conversation.span_bytes(place) {
            [b'"', ..] => {
                edits.insert(place.start, r#"[{"type":"text","text":"#);
                edits.insert(place.end, format!(",{MARKER}}}]"));
            }
            _ => edits.insert(place.end - 1, format!(",{MARKER}")),
        }
    }
}

/// The last block of the user's item or of a result that may be marked, or the string that is its content.
fn find_last_place(conversation: &Conversation, item: &Item) -> Option<Span> {
    match (item.author, item.place) {
        (Author::User, _) => find_last_block(conversation, item),
        (Author::Tool, ItemPlace::Part(_)) => Some(item.span),
        _ => None,
    }
}

fn find_system_place(conversation: &Conversation) -> Option<Span> {
    let first = conversation.items.first();
    let system = first.filter(|item| item.place == ItemPlace::Outside)?;
    find_last_block(conversation, system)
}

/// Finds the last block that may be marked. Providers refuse markers on blank texts, and blocks of unknown kinds are left
/// alone.
fn find_last_block(conversation: &Conversation, item: &Item) -> Option<Span> {
    let has_words = |text: JsonString| {
        decode_chars(conversation.raw_bytes(text)).any(|char| !char.is_whitespace())
    };
    if let Content::Text(text) = item.content {
        return has_words(text).then(|| text.quoted_span());
    }
    let mut blocks = conversation.blocks_of(item).iter().rev();
    let last = blocks.find(|block| match block.kind {
        BlockKind::Text(text) => has_words(text),
        BlockKind::Image { .. } | BlockKind::Media => true,
        BlockKind::Call | BlockKind::Reasoning(_) | BlockKind::Opaque => false,
    });
    last.map(|block| block.span)
}

/// The last tool, unless it is loaded on demand only: such a tool takes no marker.
fn find_last_tool(conversation: &Conversation) -> Option<Span> {
    let tools = conversation.find_field("tools")?;
    let tools = Some(tools).filter(|tools| tools.kind == JsonKind::Array)?;
    let mut last = None;
    let mut scan = JsonScanner::new(&conversation.body, tools.value.start as usize);
    let walked = scan.walk_array(|scan| {
        last = Some(scan.take_value()?);
        Ok::<_, MalformedJson>(())
    });
    let (span, _) = walked
        .ok()
        .and(last)
        .filter(|(_, kind)| *kind == JsonKind::Object)?;
    let names = |key: &[u8]| memmem::find(conversation.span_bytes(span), key).is_some();
    (names(br#""name""#) && !names(br#""defer_loading""#)).then_some(span)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::conversation::{Format, edit::Rope};

    const MARKER: &str = r#""cache_control":{"type":"ephemeral"}"#;

    fn add_markers(format: Format, body: &str) -> Option<String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let conversation = format.index_body(body.clone()).unwrap();
        let marked = conversation.add_cache_markers(&Rope::from(body), false)?;
        Some(String::from_utf8(marked.to_bytes().into()).unwrap())
    }

    /// Checks the markers of a request: `marked` has a `+` where each is added.
    fn check(marked: &str) {
        let with = marked.replace('+', &format!(",{MARKER}"));
        let body = marked.replace('+', "");
        let is_marked = body != marked;
        let found = add_markers(Format::Messages, &body);
        assert_eq!(found.as_deref(), is_marked.then_some(&*with), "{body}");
    }

    #[test]
    fn the_beginning_and_the_newest_inputs_are_marked() {
        let answer = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"a","name":"f","input":{}}]}"#;
        let result =
            r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"r"}]"#;
        check(&format!(
            r#"{{"system":[{{"type":"text","text":"s"}},{{"type":"text","text":"t" +}}],"tools":[{{"name":"f"}}], "messages":[
            {{"role":"user","content":[{{"type":"text","text":"task"}},{{"type":"image","source":{{}}+}}]}},{answer},
            {{"role":"user","content":[{result}}}]}},{answer},
            {{"content":[{result}}},{{"text":"so","type":"text"+}}],"role":"user"}},{answer},
            {{"role":"user","content":[{result}}},{result}+}}]}}],"max_tokens":1e3}}"#
        ));
    }

    #[test]
    fn a_string_becomes_a_block() {
        let body = r#"{"system":"be\u0021","messages":[{"role":"user","content":"a \"b\""}]}"#;
        let expected = format!(
            r#"{{"system":[{{"type":"text","text":"be\u0021",{MARKER}}}],"messages":[{{"role":"user","content":[{{"type":"text","text":"a \"b\"",{MARKER}}}]}}]}}"#
        );
        assert_eq!(add_markers(Format::Messages, body), Some(expected));
    }

    #[test]
    fn what_takes_no_marker_is_passed_over() {
        let user = |blocks: &str| format!(r#"{{"role":"user","content":[{blocks}]}}"#);
        let plain = r#"{"type":"text","text":"x"}"#;
        let list = |entries: &str| format!(r#""messages":[{entries}]"#);
        for blocks in [
            r#"{"type":"text","text":"x"+},{"type":"text","text":" \n"}"#,
            r#"{"type":"text","text":"x"+},{"type":"search_result","content":[]}"#,
            r#"{"type":"text","text":"x"+},{"type":"document","source":{"type":"text","data":"d"}}"#,
            r#"{"type":"text","text":"x"},{"type":"document","source":{"type":"url","url":"u"}+}"#,
            r#"{"type":"newer"}"#,
        ] {
            check(&format!("{{{}}}", list(&user(blocks))));
        }
        // The model's own text, and what the system says in between.
        let marked = user(&plain.replace('}', "+}"));
        let said = r#"{"role":"assistant","content":[{"type":"text","text":"a"}]}"#;
        let system = r#"{"role":"system","content":[{"type":"text","text":"s"}]}"#;
        check(&format!("{{{}}}", list(&format!("{marked},{said}"))));
        check(&format!(
            "{{{}}}",
            list(&format!("{marked},{system},{said},{marked}"))
        ));
        // Tools are marked where no system prompt is.
        let marked = list(&marked);
        check(&format!(
            r#"{{"tools":[{{"name":"e"}},{{"name":"f"+}}],{marked}}}"#
        ));
        check(&format!(
            r#"{{"system":[{{"type":"text","text":"s"+}}],"tools":[{{"name":"f"}}],{marked}}}"#
        ));
        for tools in [r#"{"name":"f","defer_loading":true}"#, "{}", "7", ""] {
            check(&format!(r#"{{"tools":[{tools}],{marked}}}"#));
        }
    }

    #[test]
    fn a_request_that_names_markers_is_left_alone() {
        let list = r#""messages":[{"role":"user","content":"x"}]"#;
        for members in [
            format!(r#"{MARKER},{list}"#),
            format!(r#"{list},"cache_control":null"#),
            format!(r#"{list},"tools":[{{"name":"f",{MARKER}}}]"#),
            format!(r#"{list},"system":[{{"type":"text","text":"s",{MARKER}}}]"#),
        ] {
            assert_eq!(
                add_markers(Format::Messages, &format!("{{{members}}}")),
                None
            );
        }
        assert_eq!(add_markers(Format::Chat, &format!("{{{list}}}")), None);
        // A text may speak of them.
        check(
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"\"cache_control\""+}]}]}"#,
        );
    }

    #[test]
    fn a_block_that_names_a_marker_is_seen_at_any_place() {
        let text = format!(r#"{{"type":"text","text":"x",{MARKER}}}"#);
        let call = r#""type":"tool_use","id":"a","name":"f","input":{}"#;
        let result = r#""type":"tool_result","tool_use_id":"a""#;
        let document = r#""type":"document","source":{"type":"content","content":"#;
        for blocks in [
            [call.to_owned(), format!(r#"{result},"content":[{text}]"#)],
            [format!("{call},{MARKER}"), result.to_owned()],
            [call.to_owned(), format!(r#"{MARKER},{result}"#)],
            [call.to_owned(), format!(r#"{result},"cache_control":null"#)],
            [
                call.to_owned(),
                format!(r#"{result},"content":[{{{document}[{text}]}}}}]"#),
            ],
        ] {
            let [call, result] = blocks;
            let body = format!(
                r#"{{"messages":[{{"role":"user","content":"u"}},{{"role":"assistant","content":[{{{call}}}]}},{{"role":"user","content":[{{{result}}}]}}]}}"#
            );
            assert_eq!(add_markers(Format::Messages, &body), None, "{body}");
        }
    }

    #[test]
    fn arguments_and_schemas_may_have_a_member_of_that_name() {
        let named = format!(r#"{{{MARKER},"content":[{{{MARKER}}}]}}"#);
        check(&format!(
            r#"{{"tools":[{{"name":"f","input_schema":{{"properties":{named}}}}},{{"name":"g","input_examples":[{named}]+}}],"metadata":{named},"messages":[
            {{"role":"user","content":[{{"type":"text","text":"u"+}}]}},
            {{"role":"assistant","content":[{{"type":"tool_use","id":"a","name":"f","input":{named}}},{{"type":"server_tool_use","id":"b","name":"g","input":{named}}}]}},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":"r"+}}]}}]}}"#
        ));
    }
}
