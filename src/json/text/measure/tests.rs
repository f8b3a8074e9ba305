use proptest::prelude::*;

use super::*;
use crate::json::{scan::block::Bytewise, text::sizes::SCRIPT_ENDS};

/// The class of a character; the reference has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Blank,
    LineEnd,
    Mark,
    Wide,
}

fn classify(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' => Class::Letter,
        '0'..='9' => Class::Digit,
        ' ' | '\t' => Class::Blank,
        '\n' | '\r' => Class::LineEnd,
        _ if c.is_ascii() => Class::Mark,
        _ => Class::Wide,
    }
}

/// The script of a character, by its code point alone.
fn script_of(c: char) -> Script {
    let mut ends = SCRIPT_ENDS.iter();
    ends.find(|(end, _)| (c as u32) < *end).unwrap().1
}

/// The reference: one character after the other, with what came before it.
fn count_chars(text: &str) -> TextSizes {
    let mut sizes = TextSizes::default();
    let mut before = None;
    let (mut blanks, mut consonants, mut digits) = (0, 0, 0);
    let (mut small, mut same, mut last) = (false, 0, None);
    for c in text.chars() {
        // How many characters before it are the same.
        same = if last == Some(c) { same + 1 } else { 0 };
        last = Some(c);
        let class = classify(c);
        let first = before != Some(class);
        blanks = if class == Class::Blank { blanks + 1 } else { 0 };
        digits = if class == Class::Digit { digits + 1 } else { 0 };
        let consonant = class == Class::Letter && !"aeiouyAEIOUY".contains(c);
        consonants = if consonant { consonants + 1 } else { 0 };
        if consonants >= 5 && same < 3 {
            sizes.late_consonants += 1;
        }
        if class == Class::Mark && c < ' ' {
            sizes.controls += 1;
        }
        match class {
            Class::Letter => {
                sizes.repeats += u32::from(same >= 3);
                sizes.letters += u32::from(same < 3);
                sizes.words += u32::from(first && before != Some(Class::Wide));
                sizes.capital_starts += u32::from(first && c.is_uppercase());
                sizes.humps += u32::from(small && c.is_uppercase());
            }
            Class::Digit => {
                sizes.digits += 1;
                sizes.digit_runs += u32::from(first);
                sizes.digit_groups += u32::from(digits % 3 == 1);
                sizes.lone_blanks += u32::from(before == Some(Class::Blank));
            }
            Class::Mark if first => sizes.mark_runs += 1,
            Class::Mark => sizes.more_marks += 1,
            Class::Blank => sizes.wide_blanks += u32::from(blanks == 2),
            Class::LineEnd => {
                let is_behind_word = matches!(before, Some(Class::Letter | Class::Digit));
                sizes.lone_blanks += u32::from(is_behind_word);
            }
            Class::Wide => {
                let script = script_of(c);
                let repeated = script.of_repeats().filter(|_| same > 0);
                sizes.scripts[repeated.unwrap_or(script) as usize] += 1;
            }
        }
        sizes.ascii += u32::from(class != Class::Wide);
        before = Some(class);
        small = c.is_ascii_lowercase();
    }
    sizes
}

/// The text of JSON's bytes, with U+FFFD for what has no decoded form.
fn decode(raw: &[u8]) -> String {
    let chars = TextWalk::new(raw).map(|it| char::from_u32(it.code).unwrap_or('\u{FFFD}'));
    chars.collect()
}

#[test]
fn the_examples_of_the_estimator() {
    let sizes = measure_plain("id=deadbeef0123 sha=QmFzZTY0 12:30:05.123456");
    assert_eq!(
        (sizes.words, sizes.letters, sizes.capital_starts),
        (4, 20, 1)
    );
    assert_eq!((sizes.mark_runs, sizes.more_marks), (5, 0));
    assert_eq!(
        (sizes.digit_runs, sizes.digit_groups, sizes.digits),
        (6, 8, 17)
    );
    assert_eq!((sizes.late_consonants, sizes.wide_blanks), (2, 0));
    assert_eq!((sizes.humps, sizes.lone_blanks), (2, 1));
    let sizes = measure_plain("你好，世界。今天 3 度");
    assert_eq!(
        (sizes.script(Script::Han), sizes.script(Script::CjkMarks)),
        (7, 2)
    );
    assert_eq!((sizes.digit_runs, sizes.digits, sizes.ascii), (1, 1, 3));
    assert_eq!(measure_plain("a\n1\r\n 22,\n").lone_blanks, 3);
}

#[test]
fn every_character_has_the_script_of_its_first_two_bytes() {
    for c in ('\u{80}'..=char::MAX).step_by(7) {
        let (mut sizes, text) = (measure_plain(&c.to_string()), format!("{c}{c} {c}"));
        assert_eq!(sizes.script(script_of(c)), 1, "{c:?}");
        sizes += measure_plain(&format!("{c}{c}"));
        assert_eq!(measure_plain(&text).scripts, sizes.scripts, "{c:?}");
    }
}

#[test]
fn repeats_and_controls_are_told_apart() {
    let sizes = measure_plain("xxxxxxxx aaaa AAAb \u{1b}[31mred");
    assert_eq!((sizes.repeats, sizes.letters), (5 + 1, 3 + 3 + 4 + 4));
    assert_eq!((sizes.late_consonants, sizes.controls), (0, 1));
    let sizes = measure_plain(&format!("┌{}┬{}┐\n█░░░", "─".repeat(40), "─".repeat(3)));
    assert_eq!(
        (
            sizes.script(Script::Lines),
            sizes.script(Script::LineRepeats)
        ),
        (5, 41)
    );
    assert_eq!(
        (
            sizes.script(Script::Blocks),
            sizes.script(Script::BlockRepeats)
        ),
        (2, 2)
    );
}

#[test]
fn an_escape_is_one_character_of_its_class() {
    let sizes = measure_text(br#"\t\ta\n\n \"\\\"b\t \t\/\b"#);
    assert_eq!((sizes.wide_blanks, sizes.words), (2, 2));
    assert_eq!((sizes.mark_runs, sizes.more_marks, sizes.ascii), (2, 3, 15));
}

#[test]
fn json_counts_without_its_white_space() {
    let spaced = br#"{ "a b" : [1, "x\" : y",  { } ],
        "c\\" : null }"#;
    let compact = br#"{"a b":[1,"x\" : y",{}],"c\\":null}"#;
    assert_eq!(measure_json(spaced), measure_text(compact));
    for broken in [&b"\"a"[..], b"\"a\\", b"\"", b"{\"a\\\"", b""] {
        assert_eq!(measure_json(broken), measure_text(broken));
    }
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[ -~]{0,40}".prop_map(String::into_bytes),
        3 => "[a-dA-D0-2 .=]{0,60}".prop_map(String::into_bytes),
        2 => "[0-9]{1,200}[ a]".prop_map(String::into_bytes),
        2 => "[bcdfgBCDFGe]{0,20}".prop_map(String::into_bytes),
        2 => "[ \t\r\n]{0,9}".prop_map(String::into_bytes),
        2 => "\\PC{0,30}".prop_map(String::into_bytes),
        2 => "[\u{80}-\u{37F}\u{380}-\u{4FF}\u{500}-\u{7FF}\u{800}-\u{1FFF}\u{2000}-\u{303F}a]{0,40}".prop_map(String::into_bytes),
        2 => "[─│├█▓░═a]{1,3}─{0,90}█{0,9}[─x]{0,70}[^a]x{0,140}".prop_map(String::into_bytes),
        1 => "(\\\\[nrtbf]|n|n|t|t|b|f|ff|nnn){0,60}[\u{0}-\u{20}]{0,5}".prop_map(|it: String| serde_json::Value::from(it).to_string().into_bytes()[1..].to_vec()),
        2 => "[\u{3040}-\u{3100}\u{3FF0}-\u{4010}\u{9FF0}-\u{A010}\u{D700}-\u{D7FF}\u{E000}-\u{FFFF}\u{FFFF}-\u{1000F}]{0,40}".prop_map(String::into_bytes),
        1 => "(\\\\u[0-9a-fA-F]{4}){0,20}".prop_map(String::into_bytes),
        3 => "(\\\\[nrtbf\"/\\\\]|a| |\\.|5|é){0,30}".prop_map(String::into_bytes),
        1 => "(\\\\ud83d|\\\\ude00|\\\\u12|\\\\n|\\\\\\\\|\\\\é|\\\\q){0,20}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    // Many texts are of one kind, so that not all take the slow path.
    prop_oneof![
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()),
        "([a-cA-C0-2 .=é中かд]|\\\\[nrtbf\"/\\\\]){0,300}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn blocks_count_like_a_walk_by_character(raw in text(), shift in 0usize..64) {
        let raw: Vec<u8> = std::iter::repeat_n(b'a', shift).chain(raw).collect();
        let expected = count_chars(&decode(&raw));
        // Control characters must be escaped in JSON; others are only marks there.
        let is_control = |byte: &u8| *byte < b' ' && !b"\t\n\r".contains(byte);
        let of_json = if raw.iter().any(is_control) {
            None
        } else {
            Some(expected)
        };
        let measured = measure_text(&raw);
        prop_assert_eq!(measured, of_json.unwrap_or(TextSizes { controls: measured.controls, ..expected }));
        let bytewise = RunReader { raw: &raw, escapes: true }.read_blocks(Bytewise);
        prop_assert_eq!(bytewise.unwrap_or(measured), measured);
        let decoded = decode(&raw);
        prop_assert_eq!(measure_plain(&decoded), expected);
        prop_assert_eq!(measure_decoded(&raw), expected);
    }

    #[test]
    fn counts_add_up_behind_line_ends(first in any::<String>(), second in any::<String>(), end in 0..2usize) {
        let first = first + ["\n", "\r"][end];
        let mut sum = measure_plain(&first);
        sum += measure_plain(&second);
        prop_assert_eq!(measure_plain(&(first + &second)), sum);
    }
}
