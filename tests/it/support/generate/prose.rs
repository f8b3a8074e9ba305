//! Texts of every kind found in conversations, of an exact number of characters.

use super::{
    random::Random,
    words::{CHINESE, CONTROL, CYRILLIC, EMOJI, JAPANESE, KOREAN, NAMES, SYLLABLES, WORDS},
    write::LONE,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tongue {
    Prose,
    Code,
    /// JSON text, which becomes JSON inside JSON.
    Json,
    Log,
    Chinese,
    Japanese,
    Korean,
    Cyrillic,
    Emoji,
    /// Control characters, quotes, backslashes, and text that looks like an escape.
    Control,
    /// Prose with lone surrogates.
    Lone,
}

/// Exactly `chars` Unicode scalar values (a lone surrogate counts as one).
pub(crate) fn text(random: &mut Random, tongue: Tongue, chars: usize) -> String {
    let mut text = String::with_capacity(chars + 64);
    let mut count = 0;
    while count < chars {
        let before = text.len();
        fragment(random, tongue, &mut text);
        count += text[before..].chars().count();
    }
    if let Some((end, _)) = text.char_indices().nth(chars) {
        text.truncate(end);
    }
    text
}

fn fragment(random: &mut Random, tongue: Tongue, text: &mut String) {
    match tongue {
        Tongue::Prose => sentence(random, text),
        Tongue::Code => code(random, text),
        Tongue::Json => record(random, text),
        Tongue::Log => log(random, text),
        Tongue::Chinese => run(
            random,
            CHINESE,
            &["，", "。", "。\n", "：", "（", "）", " API "],
            text,
        ),
        Tongue::Japanese => run(random, JAPANESE, &["、", "。", "。\n", "ー"], text),
        Tongue::Korean => run(random, KOREAN, &[". ", "?\n", ", "], text),
        Tongue::Cyrillic => run(random, CYRILLIC, &[". ", "\n"], text),
        Tongue::Emoji => text.push_str(random.pick(EMOJI)),
        Tongue::Control => text.push_str(random.pick(CONTROL)),
        Tongue::Lone => {
            sentence(random, text);
            text.push(LONE[random.below(LONE.len())]);
        }
    }
}

fn run(random: &mut Random, words: &[&str], stops: &[&str], text: &mut String) {
    for _ in 0..random.between(3, 9) {
        text.push_str(random.pick(words));
    }
    text.push_str(random.pick(stops));
}

fn sentence(random: &mut Random, text: &mut String) {
    let first = random.pick(WORDS);
    text.push_str(&first[..1].to_uppercase());
    text.push_str(&first[1..]);
    for _ in 0..random.between(3, 13) {
        text.push_str(random.weighted(&[(14, " "), (1, ", ")]));
        if random.chance(20) {
            rare(random, text);
        } else {
            text.push_str(random.pick(WORDS));
        }
    }
    text.push_str(random.weighted(&[(16, ". "), (2, ".\n\n"), (1, "? "), (1, ":\n- ")]));
}

/// A word outside every vocabulary; without such words a text has too few tokens.
fn rare(random: &mut Random, text: &mut String) {
    for _ in 0..random.between(2, 4) {
        text.push_str(random.pick(SYLLABLES));
    }
}

fn code(random: &mut Random, text: &mut String) {
    let (a, b, c) = (random.pick(NAMES), random.pick(NAMES), random.pick(NAMES));
    let number = random.below(4096);
    let word = random.pick(WORDS);
    let line = match random.below(9) {
        0 => format!("    let {a} = {b}.{c}(\"{word}\")?;\n"),
        1 => format!("    if {a} >= {number} {{\n        return Err({b}::{c});\n    }}\n"),
        2 => format!("    // {word} {a} {}\n", random.pick(WORDS)),
        3 => format!("fn {a}_{b}({c}: &str) -> Option<u32> {{\n"),
        4 => "}\n\n".to_owned(),
        5 => format!("    assert_eq!({a}[{number}], '{}');\n", &word[..1]),
        6 => format!("def {a}(self, {b}=None):\n    return self.{c}[\"{word}\"] or {number}\n"),
        7 => format!("\tprintf(\"%s: {word}\\n\", {a}->{b}); /* 0x{number:x} */\n"),
        _ => format!("-    {a}.{b} = {number};\n+    {a}.{b} = {c}({number});\n"),
    };
    text.push_str(&line);
}

fn record(random: &mut Random, text: &mut String) {
    let (a, b) = (random.pick(NAMES), random.pick(WORDS));
    let number = random.below(100_000);
    text.push_str(&format!(
        "{{\"id\": {number}, \"name\": \"{a}\", \"note\": \"{b} \\\"{}\\\"\", \"ok\": {}, \"at\": [{}, 0.5]}},\n",
        random.pick(WORDS),
        random.chance(50),
        random.below(900),
    ));
}

fn log(random: &mut Random, text: &mut String) {
    let (a, b) = (random.pick(NAMES), random.pick(NAMES));
    let line = random.between(1, 900);
    match random.below(4) {
        0 => text.push_str(&format!(
            "2025-03-{:02}T{:02}:{line:03}Z INFO {a}::{b}: {} in {} ms\n",
            random.between(1, 28),
            random.below(24),
            random.pick(WORDS),
            random.below(5000),
        )),
        1 => text.push_str(&format!("src/{a}/{b}.rs:{line}:{}\n", random.pick(WORDS))),
        2 => text.push_str(&format!("test {a}::{b}_{line} ... ok\n")),
        _ => text.push_str(&format!(
            "{} -rw-r--r-- {line} {a}_{b}.txt\n",
            random.letters(12, b"0123456789abcdef")
        )),
    }
}
