use proptest::prelude::*;

use super::find_model_in_multipart;
use crate::conversation::edit::Edits;

const FILE: &str = "Content-Disposition: form-data; name=\"file\"; filename=\"model.wav\"\r\n\
                    Content-Type: audio/wav";
const MODEL: &str = "Content-Disposition: form-data; name=\"model\"";

/// A form of parts, each a head and a value.
fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (head, value) in parts {
        body.extend(format!("--b\r\n{head}\r\n\r\n").bytes());
        body.extend(*value);
        body.extend(b"\r\n");
    }
    body.extend(b"--b--\r\n");
    body
}

fn model(body: &[u8]) -> (Option<String>, bool) {
    let found = find_model_in_multipart(body, b"b");
    (found.model.map(|named| named.model), found.is_certain)
}

#[test]
fn the_model_is_found_among_other_parts() {
    let name = |name: &str| (Some(name.to_owned()), true);
    let audio: &[u8] = b"\0\r\n--bx\r\n\r\n--\r\n";
    let check = |parts: &[(&str, &[u8])], expected| assert_eq!(model(&form(parts)), expected);
    check(&[(MODEL, b"up/whisper")], name("up/whisper"));
    check(&[(FILE, b"\0\xff"), (MODEL, b"a")], name("a"));
    check(&[(FILE, b"")], (None, true));
    let other = MODEL.replace("\"model\"", "model ; x=y");
    check(&[(&other, b"a")], name("a"));
    // A word that begins with the boundary is no boundary, but some readers take it for one.
    check(&[(FILE, audio), (MODEL, b"a")], (Some("a".into()), false));
}

#[test]
fn a_form_with_two_readings_is_not_certain() {
    let plain = form(&[(FILE, b"x"), (MODEL, b"a")]);
    assert!(model(&plain).1);
    let mut odd = vec![
        [b"preamble\r\n", &plain[..]].concat(),
        plain[..plain.len() - 4].to_vec(),
        form(&[(MODEL, b"a"), (MODEL, b"b")]),
        form(&[(MODEL, b"a"), ("", b"b")]),
        form(&[(MODEL, b"")]),
        form(&[(MODEL, b"\xff")]),
        [
            &plain[..],
            b"--b\r\n",
            MODEL.as_bytes(),
            b"\r\n\r\nx\r\n--b--",
        ]
        .concat(),
    ];
    for name in [
        "form-data; name=\"Model\"",
        "form-data; name=\"model[]\"",
        "form-data; name=\"mo\\del\"",
        "form-data; name=\"mod%65l\"",
        "form-data; name*=utf-8''model",
        "form-data; name=\"x\"; name=\"model\"",
        "form-data; NAME=\"model\"",
        "form-data; filename=\"x\"",
        "attachment; name=\"model\"",
        "form-data; name=\"x\"\n; name=\"model\"",
        "form-data;\r\n name=\"model\"",
        "form-data; name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"",
        "form-data; name=\"x\"\r\ncontent-transfer-encoding: base64",
    ] {
        let head = format!("Content-Disposition: {name}");
        odd.push(form(&[(MODEL, b"a"), (&head, b"b")]));
    }
    for body in odd {
        assert!(!model(&body).1, "{}", String::from_utf8_lossy(&body));
    }
}

proptest! {
    #[test]
    fn only_the_model_name_is_replaced(
        before in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4),
        after in prop::collection::vec(any::<u8>(), 0..60),
        name in "[a-z/.:-]{1,20}",
    ) {
        let mut parts: Vec<(&str, &[u8])> = before.iter().map(|value| (FILE, &value[..])).collect();
        parts.push((MODEL, name.as_bytes()));
        parts.push((FILE, &after));
        let body = form(&parts);
        let found = find_model_in_multipart(&body, b"b").model.expect("it is there");
        prop_assert_eq!(&found.model, &name);
        let mut edits = Edits::default();
        edits.replace(found.span, found.spell_model("new"));
        let at = parts.len() - 2;
        parts[at].1 = b"new";
        prop_assert_eq!(&edits.apply(&body.into()).to_bytes()[..], &form(&parts)[..]);
    }

    #[test]
    fn a_body_cut_anywhere_gives_the_model_or_none(cut in 0usize..400) {
        let body = form(&[(FILE, b"\0\r\n--"), (MODEL, b"up/a"), (FILE, b"more")]);
        let cut = cut.min(body.len());
        let found = model(&body[..cut]);
        let needed = form(&[(FILE, b"\0\r\n--"), (MODEL, b"up/a")]).len() - 2;
        prop_assert_eq!(found.0.is_some(), cut >= needed, "{}", cut);
        prop_assert!(found.0.is_none_or(|model| model == "up/a"));
        prop_assert!(!found.1 || cut >= body.len() - 2);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        body in prop::collection::vec(prop::sample::select(b"--b\r\n :;=\"\\namemodel\0".to_vec()), 0..200),
    ) {
        let _ = find_model_in_multipart(&body, b"b");
        let _ = find_model_in_multipart(&[&b"--b\r\n"[..], &body].concat(), b"b");
    }
}
