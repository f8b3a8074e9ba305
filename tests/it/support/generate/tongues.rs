//! Texts in many languages and scripts, and others that are drawn rather than written: coloured logs, tables, masked keys.
//! The same on every platform.

use super::{
    random::Random,
    words::{NAMES, WORDS},
};

/// The beginning of the Universal Declaration of Human Rights, a language a line: its name, a tab, the text.
const DECLARATION: &str = include_str!("declaration.tsv");

/// Scripts of which vocabularies know single bytes, by code points: texts of random words.
const SCRIPTS: &[(&str, u32, u32)] = &[
    ("Latin for phonetics", 0x250, 0x2AF),
    ("NKo", 0x7CA, 0x7EA),
    ("Samaritan", 0x800, 0x815),
    ("Mongolian", 0x1820, 0x1842),
    ("Runic", 0x16A0, 0x16EA),
    ("Balinese", 0x1B05, 0x1B33),
    ("Ol Chiki", 0x1C5A, 0x1C77),
    ("Coptic", 0x2C80, 0x2CB1),
    ("Glagolitic", 0x2C30, 0x2C5E),
    ("Ethiopic, extended", 0x2D80, 0x2D96),
    ("Bopomofo", 0x3105, 0x3129),
    ("Jamo", 0x1100, 0x1112),
    ("rare Han", 0x3400, 0x4DB5),
    ("rarer Han", 0x2_0000, 0x2_A6D6),
    ("Meetei Mayek", 0xABC0, 0xABE2),
    ("Gothic", 0x1_0330, 0x1_034A),
    ("Cuneiform", 0x1_2000, 0x1_2399),
    ("letters of mathematics", 0x1_D400, 0x1_D454),
    ("Braille", 0x2801, 0x28FF),
    ("operators", 0x2200, 0x22FF),
    ("dingbats", 0x2701, 0x27BF),
    ("faces", 0x1_F600, 0x1_F64F),
    ("private use", 0xE000, 0xE0FF),
];

/// The name of each text, and the text.
pub(crate) fn write_tongues() -> Vec<(String, String)> {
    let lines = DECLARATION.lines();
    let declared = lines.filter_map(|line| line.split_once('\t'));
    let declared = declared.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let scripts = SCRIPTS.iter().map(|&(name, first, last)| {
        let mut random = Random::for_part(20_261_128, first.into());
        let text = (0..200).map(|_| write_word(&mut random, first, last));
        (name.to_owned(), text.collect::<String>())
    });
    let drawn = DRAWN.iter().enumerate().map(|(at, (name, write))| {
        let mut random = Random::for_part(20_261_129, at as u64);
        let text = (0..60).map(|_| write(&mut random) + "\n");
        ((*name).to_owned(), text.collect())
    });
    declared.chain(scripts).chain(drawn).collect()
}

fn write_word(random: &mut Random, first: u32, last: u32) -> String {
    let len = random.between(3, 7);
    let letters = (0..len).filter_map(|_| {
        let code = u64::from(first) + random.next() % u64::from(last - first + 1);
        char::from_u32(code as u32)
    });
    letters.chain([' ']).collect()
}

/// How a record of each kind is written.
type Writer = fn(&mut Random) -> String;

const DRAWN: &[(&str, Writer)] = &[
    ("coloured words", |r| {
        let [one, two] = [31, 1].map(|least| r.between(least, least + 5));
        format!(
            "\u{1b}[{one}m{}\u{1b}[0m {} \u{1b}[{two};36m{}\u{1b}[0m",
            word(r),
            word(r),
            word(r)
        )
    }),
    ("coloured log", |r| {
        let (second, number) = (r.between(10, 59), r.between(1, 999));
        format!(
            "\u{1b}[2m2026-11-28T04:12:{second}Z\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m \u{1b}[2m{}::{}:\u{1b}[0m {} \u{1b}[3m{}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{number}",
            word(r),
            word(r),
            word(r),
            word(r)
        )
    }),
    ("spinner", |r| {
        let turn = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴"][r.between(0, 5)];
        format!("\r\u{1b}[K{turn} {} {}%", word(r), r.between(1, 100))
    }),
    ("masked keys", |r| {
        let (many, few) = (r.between(8, 48), r.between(6, 32));
        format!(
            "KEY=sk-{} token: {}-XXXXXXXX {}",
            "x".repeat(many),
            "X".repeat(few),
            "*".repeat(few)
        )
    }),
    ("one letter", |_| "x".repeat(200)),
    ("one capital", |_| "A".repeat(200)),
    ("rules", |r| {
        format!("{}\n{} {}", "=".repeat(r.between(10, 30)), word(r), word(r))
    }),
    ("light table", |r| table(r, "┌┬┐├┼┤─│")),
    ("heavy table", |r| table(r, "┏┳┓┣╋┫━┃")),
    ("double table", |r| table(r, "╔╦╗╠╬╣═║")),
    ("tree", |r| {
        format!("{}├── {}.rs", "│   ".repeat(r.between(0, 3)), word(r))
    }),
    ("progress bars", |r| {
        let done = r.between(0, 30);
        format!(
            "{} [{}{}] {done}",
            word(r),
            "█".repeat(done),
            "░".repeat(30 - done)
        )
    }),
    ("signs before words", |r| {
        format!(
            "{} {} {}",
            ["✓", "✗", "●", "→", "⚠"][r.between(0, 4)],
            word(r),
            word(r)
        )
    }),
    ("curly quotes", |r| {
        format!("“{}” — {}’s … {}–{}", word(r), word(r), word(r), word(r))
    }),
    ("faces among words", |r| {
        format!("{} {} 🚀 {} 👍🏽", word(r), word(r), word(r))
    }),
    ("flags", |_| "🇫🇮 🇨🇿 🇱🇦".to_owned()),
    ("full width", |r| {
        word(r)
            .chars()
            .map(|it| char::from_u32(it as u32 + 0xFEE0).unwrap_or(it))
            .collect()
    }),
    ("combining marks", |r| {
        word(r).chars().map(|it| format!("{it}\u{301}")).collect()
    }),
    ("no-break spaces", |r| {
        format!("{}\u{a0}{}\u{a0}{}", word(r), word(r), word(r))
    }),
];

fn word(random: &mut Random) -> &'static str {
    random.pick(WORDS)
}

/// `lines`: the corners and crossings of the top and of a row, then both lines.
fn table(random: &mut Random, lines: &str) -> String {
    let lines: Vec<char> = lines.chars().collect();
    let width = random.between(8, 20);
    let rule = |from: usize| {
        let line = lines[6].to_string().repeat(width);
        format!(
            "{}{line}{}{line}{}",
            lines[from],
            lines[from + 1],
            lines[from + 2]
        )
    };
    let cell = |text: &str| format!(" {text:<rest$.rest$}", rest = width - 1);
    let side = lines[7];
    let row = format!(
        "{side}{}{side}{}{side}",
        cell(random.pick(NAMES)),
        cell(word(random))
    );
    format!("{}\n{row}\n{}\n{row}", rule(0), rule(3))
}
