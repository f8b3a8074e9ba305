use super::*;
use crate::json::scan::JsonScanner;
use proptest::prelude::*;

#[test]
fn characters_are_counted_as_in_the_decoded_text() {
    let raw = r#"a\n\u00e9\ud83d\ude00é😀\\u0041\/"#.as_bytes();
    let decoded = decode_text(raw).unwrap();
    assert_eq!(decoded, "a\né😀é😀\\u0041/");
    assert_eq!(measure_text(raw).total_chars(), decoded.chars().count());
}

#[test]
fn half_a_surrogate_pair_is_counted_but_not_sound() {
    for raw in [
        "\\ud83d",
        "x\\ude00y",
        "\\ud83dx",
        "\\ud83d\\u0041",
        "\\q",
        "\\u12",
        "\\",
    ] {
        let mut walk = TextWalk::new(raw.as_bytes());
        let bytes: usize = walk.by_ref().map(|character| character.len).sum();
        assert_eq!(bytes, raw.len(), "{raw}");
        assert!(!walk.is_sound(), "{raw}");
        assert_eq!(decode_text(raw.as_bytes()), None);
        measure_text(raw.as_bytes());
        digest_text(raw.as_bytes());
    }
}

#[test]
fn characters_are_counted_by_script() {
    for raw in [
        "abc中文，かなカナ한국😀é☃дω".as_bytes(),
        br"abc\u4e2d\u6587\uff0c\u304b\u306a\u30ab\u30ca\ud55c\uad6d\ud83d\ude00\u00e9\u2603\u0434\u03c9",
    ] {
        let sizes = measure_text(raw);
        assert_eq!((sizes.ascii, sizes.words, sizes.letters), (3, 1, 3));
        use Script::*;
        for (script, count) in [
            (Latin, 1),
            (Greek, 1),
            (Cyrillic, 1),
            (Symbols, 1),
            (Kana, 4),
            (CjkMarks, 1),
            (Han, 2),
            (Hangul, 2),
            (Emoji, 1),
        ] {
            assert_eq!(sizes.script(script), count, "{script:?}");
        }
        assert_eq!(sizes.total_chars(), 3 + 14);
    }
}

/// Spells each character at random: as it is, or by an escape.
fn respell(text: &str, seed: u64) -> String {
    let mut state = seed | 1;
    let mut out = String::new();
    for character in text.chars() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let must = (character as u32) < 0x20 || matches!(character, '"' | '\\');
        if state.is_multiple_of(3) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&if state.is_multiple_of(2) {
                    format!("\\u{unit:04x}")
                } else {
                    format!("\\u{unit:04X}")
                });
            }
        } else if must {
            out.push_str(&escape_text(&character.to_string()));
        } else if character == '/' && state.is_multiple_of(2) {
            out.push_str("\\/");
        } else {
            out.push(character);
        }
    }
    out
}

fn measure_quoted(raw: &[u8]) -> (TextSizes, u128) {
    let quoted = [b"\"", raw, b"\""].concat();
    let text = JsonScanner::new(&quoted, 0).take_string().unwrap();
    assert_eq!(text.span.len(), raw.len());
    measure_and_digest(&quoted, text)
}

proptest! {
    #[test]
    fn one_pass_equals_measure_and_digest(text in any::<String>(), seed in any::<u64>(), rest in "(\\\\(n|u[0-9a-f]{4}|ud83d|ude00|/)|a|中){0,20}") {
        for raw in [respell(&text, seed), rest.clone(), escape_text(&text) + &rest] {
            let raw = raw.as_bytes();
            prop_assert_eq!(measure_quoted(raw), (measure_text(raw), digest_text(raw)));
        }
    }

    #[test]
    fn all_spellings_have_the_same_digest_size_and_text(text in any::<String>(), a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (respell(&text, a), respell(&text, b));
        prop_assert_eq!(digest_text(a.as_bytes()), digest_text(b.as_bytes()));
        prop_assert_eq!(measure_text(a.as_bytes()), measure_text(b.as_bytes()));
        prop_assert_eq!(measure_text(a.as_bytes()).total_chars(), text.chars().count());
        prop_assert_eq!(decode_text(a.as_bytes()), Some(text));
    }

    #[test]
    fn different_texts_have_different_digests(a in any::<String>(), b in any::<String>()) {
        prop_assume!(a != b);
        prop_assert_ne!(digest_text(escape_text(&a).as_bytes()), digest_text(escape_text(&b).as_bytes()));
    }

    #[test]
    fn pieces_digest_like_the_whole(texts in prop::collection::vec(any::<String>(), 0..6), seed in any::<u64>()) {
        let mut digester = TextDigester::new();
        for text in &texts {
            digester.push(respell(text, seed).as_bytes());
        }
        prop_assert_eq!(digester.finish(), digest_text(escape_text(&texts.concat()).as_bytes()));
    }

    #[test]
    fn invalid_text_never_panics(raw in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'u'), Just(b'd'), Just(b'8'), any::<u8>()], 0..60)) {
        let walked: usize = TextWalk::new(&raw).map(|character| character.len).sum();
        prop_assert_eq!(walked, raw.len());
        measure_text(&raw);
        digest_text(&raw);
        decode_text(&raw);
    }
}

#[test]
fn a_surrogate_pair_split_over_two_pieces_is_one_character() {
    let mut digester = TextDigester::new();
    digester.push(br"a\ud83d");
    digester.push(br"\ude00b");
    assert_eq!(digester.finish(), digest_text("a😀b".as_bytes()));
}

proptest! {
    #[test]
    fn the_fast_check_agrees_with_a_walk_over_the_whole_text(
        pieces in prop::collection::vec(
            prop::sample::select(&["a", "\\n", "\\\\", "\\\"", "u", "\\u0041", "\\ud83d", "\\ude00", "\\q", "\\", "\\u1"][..]),
            0..8,
        ),
    ) {
        let text = pieces.concat();
        let mut walk = TextWalk::new(text.as_bytes());
        walk.by_ref().for_each(drop);
        prop_assert_eq!(is_decodable(text.as_bytes()), walk.is_sound(), "{}", text);
    }
}
