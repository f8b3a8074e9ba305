//! Texts full of figures and other texts that are hard on an estimate of tokens, by kind. The same kind gives the same
//! bytes on every platform.

use super::{
    prose::{self, Tongue},
    random::Random,
    words::{NAMES, WORDS},
};

/// A kind of text: its name, and how one line or record of it is written.
pub(crate) type TextKind = (&'static str, fn(&mut Random, &mut Page));

/// A text as it is written.
#[derive(Default)]
pub(crate) struct Page {
    text: String,
    /// Records so far.
    count: usize,
}

/// Characters of a text of one kind, at least.
const CHARS: usize = 4_000;

/// A text of one kind; texts of other `part`s differ.
pub(crate) fn write_kind((_, write): TextKind, part: u64) -> String {
    let mut random = Random::for_part(20_261_126, part);
    let mut page = Page::default();
    while page.text.len() < CHARS {
        write(&mut random, &mut page);
        page.count += 1;
    }
    page.text
}

/// Appends to the page, like `write!` that cannot fail.
macro_rules! put {
    ($page:expr, $($text:tt)*) => { $page.text.push_str(&format!($($text)*)) };
}

const HEX: &[u8] = b"0123456789abcdef";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A number of up to so many digits, each length as often.
fn number(random: &mut Random, digits: usize) -> u64 {
    let len = random.between(1, digits) as u32;
    random.next() % 10u64.pow(len)
}

fn hex(random: &mut Random, length: usize) -> String {
    random.letters(length, HEX)
}

fn float(random: &mut Random, decimals: usize) -> String {
    let sign = random.pick(&["", "", "", "-"]);
    let whole = number(random, 3);
    format!("{sign}{whole}.{}", random.letters(decimals, b"0123456789"))
}

fn name(random: &mut Random) -> &'static str {
    random.pick(NAMES)
}

fn word(random: &mut Random) -> &'static str {
    random.pick(WORDS)
}

fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

pub(crate) const KINDS: &[TextKind] = &[
    ("column of integers", |r, p| put!(p, "{}\n", number(r, 6))),
    ("column of long integers", |r, p| {
        put!(p, "{}\n", 1_700_000_000_000 + number(r, 12));
    }),
    ("integers in a row", |r, p| put!(p, "{}, ", number(r, 5))),
    ("integers between blanks", |r, p| {
        put!(p, "{} ", number(r, 4))
    }),
    ("matrix of small integers", |r, p| {
        let row: Vec<_> = (0..16).map(|_| r.below(256).to_string()).collect();
        put!(p, "[{}]\n", row.join(" "));
    }),
    ("aligned columns", |r, p| {
        let name = name(r);
        put!(
            p,
            "{name:<12}{:>9}{:>9}{:>12}\n",
            number(r, 5),
            number(r, 3),
            float(r, 2)
        );
    }),
    ("CSV of figures", |r, p| {
        let day = format!("2026-{:02}-{:02}", r.between(1, 12), r.between(1, 28));
        put!(
            p,
            "{},{day},{},{},{}\n",
            number(r, 7),
            float(r, 2),
            float(r, 6),
            number(r, 3)
        );
    }),
    ("CSV with names", |r, p| {
        let (who, what) = (name(r), word(r));
        put!(
            p,
            "{},\"{who}\",{what},{},{}\n",
            p.count + 1,
            number(r, 5),
            r.chance(50)
        );
    }),
    ("columns between tabs", |r, p| {
        put!(
            p,
            "{}\t{}\t{}\t{}\n",
            name(r),
            number(r, 4),
            float(r, 3),
            number(r, 8)
        );
    }),
    ("JSON of floats", |r, p| {
        let row: Vec<_> = (0..8).map(|_| float(r, 6)).collect();
        put!(p, "[{}],", row.join(","));
    }),
    ("JSON of floats, spaced", |r, p| {
        put!(
            p,
            "    {{\"lat\": {}, \"lon\": {}, \"ele\": {}}},\n",
            float(r, 7),
            float(r, 7),
            float(r, 1)
        );
    }),
    ("JSON of records", |r, p| {
        put!(
            p,
            "{{\"id\":{},\"name\":\"{}\",\"total\":{},\"at\":{}}},",
            number(r, 6),
            name(r),
            float(r, 2),
            1_700_000_000 + number(r, 7)
        );
    }),
    ("JSON of lines", |r, p| {
        put!(
            p,
            "  {{\n    \"id\": {},\n    \"{}\": {},\n    \"tags\": [\"{}\", null]\n  }},\n",
            number(r, 6),
            name(r),
            number(r, 3),
            word(r)
        );
    }),
    ("log", |r, p| {
        put!(
            p,
            "2026-11-{:02}T{:02}:{:02}:{:02}.{:03}Z {} [{}-{}] {}.{}: {} took {} ms\n",
            r.between(1, 30),
            r.below(24),
            r.below(60),
            r.below(60),
            r.below(1000),
            r.pick(&["INFO ", "WARN ", "ERROR", "DEBUG"]),
            name(r),
            r.below(32),
            name(r),
            name(r),
            word(r),
            number(r, 5)
        );
    }),
    ("access log", |r, p| {
        put!(
            p,
            "10.{}.{}.{} - - [26/Nov/2026:{:02}:{:02}:{:02} +0000] \"GET /{}/{} HTTP/1.1\" {} {}\n",
            r.below(256),
            r.below(256),
            r.below(256),
            r.below(24),
            r.below(60),
            r.below(60),
            name(r),
            number(r, 5),
            r.pick(&["200", "304", "404", "500"]),
            number(r, 6)
        );
    }),
    ("build log", |r, p| {
        put!(
            p,
            "#{} {}.{} [{:>3}/412] Compiling {} v{}.{}.{}\n",
            r.below(40),
            number(r, 3),
            r.below(1000),
            p.count,
            name(r),
            r.below(9),
            r.below(30),
            r.below(200)
        );
    }),
    ("hex dump", |r, p| {
        put!(p, "{:08x}:", p.count * 16);
        (0..8).for_each(|_| put!(p, " {}", hex(r, 4)));
        put!(p, "  {}\n", r.letters(16, b"....abcXYZ019/<"));
    }),
    ("hashes", |r, p| {
        put!(p, "{}  src/{}/{}.rs\n", hex(r, 40), name(r), name(r))
    }),
    ("hex in one line", |r, p| put!(p, "{}", hex(r, 64))),
    ("hex words", |r, p| {
        put!(p, "0x{}, ", hex(r, 8).to_uppercase())
    }),
    ("UUIDs", |r, p| {
        put!(
            p,
            "{}-{}-4{}-a{}-{}\n",
            hex(r, 8),
            hex(r, 4),
            hex(r, 3),
            hex(r, 3),
            hex(r, 12)
        );
    }),
    ("addresses", |r, p| {
        put!(
            p,
            "{}:{}:{}::{} fe:{}:{}:{} 192.168.{}.{}:{}\n",
            hex(r, 4),
            hex(r, 4),
            hex(r, 3),
            hex(r, 1),
            hex(r, 2),
            hex(r, 2),
            hex(r, 2),
            r.below(256),
            r.below(256),
            number(r, 5)
        );
    }),
    ("base64", |r, p| put!(p, "{}\n", r.letters(76, BASE64))),
    ("base64 in one line", |r, p| {
        put!(p, "{}", r.letters(64, BASE64))
    }),
    ("keys", |r, p| {
        let upper = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
        put!(
            p,
            "{}={}-{}-{}\n",
            name(r),
            r.letters(5, upper),
            r.letters(5, upper),
            r.letters(5, upper)
        );
    }),
    ("random letters", |r, p| {
        let length = r.between(6, 16);
        put!(p, "{} ", r.letters(length, b"abcdefghijklmnopqrstuvwxyz"));
    }),
    ("diff", |r, p| {
        let (a, b, line) = (name(r), name(r), r.between(1, 900));
        if p.count % 3 == 0 {
            put!(
                p,
                "diff --git a/src/{a}.rs b/src/{a}.rs\nindex {}..{} 100644\n--- a/src/{a}.rs\n+++ b/src/{a}.rs\n",
                hex(r, 8),
                hex(r, 8)
            );
        }
        put!(
            p,
            "@@ -{line},7 +{line},9 @@ fn {b}()\n     let {a} = {b}.len();\n-    if {a} > {} {{\n+    if {a} > {} && !{b}.is_empty() {{\n         return Err({b});\n     }}\n",
            number(r, 3),
            number(r, 3)
        );
    }),
    ("diff of figures", |r, p| {
        let line = r.between(1, 900);
        put!(
            p,
            "@@ -{line},3 +{line},3 @@\n   \"{}\": {},\n-  \"width\": {},\n+  \"width\": {},\n",
            name(r),
            number(r, 4),
            number(r, 4),
            number(r, 4)
        );
    }),
    ("table in Markdown", |r, p| {
        put!(
            p,
            "| {} | {} | {} | {} % | {} |\n",
            word(r),
            number(r, 4),
            float(r, 1),
            r.below(100),
            number(r, 6)
        );
    }),
    ("aligned table in Markdown", |r, p| {
        put!(
            p,
            "| {:<14} | {:>8} | {:>8} | {:>6}% |\n",
            word(r),
            number(r, 4),
            float(r, 2),
            float(r, 1)
        );
    }),
    ("table in box drawing", |r, p| {
        put!(
            p,
            "│ {:<10} │ {:>7} │ {:>8} │\n├────────────┼─────────┼──────────┤\n",
            word(r),
            number(r, 4),
            float(r, 2)
        );
    }),
    ("sentences with numbers", |r, p| {
        put!(
            p,
            "{} {} {} of {} {} took {} ms, {} % more than the {} of {}. ",
            capital(word(r)),
            word(r),
            number(r, 4),
            number(r, 5),
            word(r),
            float(r, 1),
            r.below(100),
            word(r),
            r.between(1990, 2026)
        );
    }),
    ("dates and times", |r, p| {
        put!(
            p,
            "{}/{}/{} {}:{:02} and 2026-{:02}-{:02} {:02}:{:02}:{:02}\n",
            r.between(1, 12),
            r.between(1, 28),
            r.between(1990, 2026),
            r.below(24),
            r.below(60),
            r.between(1, 12),
            r.between(1, 28),
            r.below(24),
            r.below(60),
            r.below(60)
        );
    }),
    ("sums of money", |r, p| {
        put!(
            p,
            "{:<12} ${},{:03}.{:02}  ({}.{:02} EUR)\n",
            capital(word(r)),
            r.between(1, 999),
            r.below(1000),
            r.below(100),
            number(r, 4),
            r.below(100)
        );
    }),
    ("telephone numbers", |r, p| {
        put!(
            p,
            "+{} ({}) {}-{:04}\n",
            r.between(1, 99),
            r.between(100, 999),
            r.between(100, 999),
            r.below(10_000)
        );
    }),
    ("metrics", |r, p| {
        put!(
            p,
            "{}_{}_total{{code=\"{}\",le=\"{}\"}} {}\n",
            name(r),
            name(r),
            r.pick(&["200", "404", "503"]),
            float(r, 2),
            number(r, 9)
        );
    }),
    ("listing of files", |r, p| {
        put!(
            p,
            "-rw-r--r--  1 root root {:>8} Nov {:>2} {:02}:{:02} {}_{}.txt\n",
            number(r, 7),
            r.between(1, 30),
            r.below(24),
            r.below(60),
            name(r),
            name(r)
        );
    }),
    ("SQL", |r, p| {
        put!(
            p,
            "INSERT INTO {} (id, {}, total) VALUES ({}, '{}', {});\n",
            name(r),
            name(r),
            number(r, 6),
            word(r),
            float(r, 2)
        );
    }),
    ("minified script", |r, p| {
        let one = |r: &mut Random| r.letters(1, b"abcdefghijnortuxyz");
        put!(
            p,
            "function {}({},{}){{return {}.{}({})?{}:{}[{}]}}var {}={};",
            one(r),
            one(r),
            one(r),
            one(r),
            name(r),
            one(r),
            one(r),
            one(r),
            number(r, 3),
            one(r),
            number(r, 5)
        );
    }),
    ("path of a drawing", |r, p| {
        put!(
            p,
            "M{} {}L{},{}C{} {} {},{}z",
            float(r, 2),
            float(r, 2),
            float(r, 1),
            float(r, 1),
            number(r, 3),
            number(r, 3),
            float(r, 3),
            float(r, 3)
        );
    }),
    ("assembly", |r, p| {
        put!(
            p,
            "  40{:04x}:\t{} {} {}             \tmov    0x{}(%r{}),%eax\n",
            p.count * 5,
            hex(r, 2),
            hex(r, 2),
            hex(r, 2),
            hex(r, 2),
            r.below(16)
        );
    }),
    ("binary digits", |r, p| put!(p, "{} ", r.letters(8, b"01"))),
    ("one long number", |r, p| {
        put!(p, "{}", r.letters(64, b"0123456789"))
    }),
    ("capitals", |r, p| {
        put!(
            p,
            "#define {}_{} {}\n",
            word(r).to_uppercase(),
            name(r).to_uppercase(),
            number(r, 4)
        );
    }),
    ("humps", |r, p| {
        put!(
            p,
            "{}{}.get{}{}(new {}{}({}));\n",
            word(r),
            capital(word(r)),
            capital(word(r)),
            capital(word(r)),
            capital(word(r)),
            capital(word(r)),
            number(r, 2)
        );
    }),
    ("URLs", |r, p| {
        put!(
            p,
            "https://{}.example.org/{}/{}?id={}&page={}&utm={}%2F{}\n",
            word(r),
            word(r),
            name(r),
            number(r, 8),
            number(r, 2),
            hex(r, 12),
            word(r)
        );
    }),
    ("settings", |r, p| {
        put!(
            p,
            "{}:\n  {}: {}\n  {}: {}\n  port: {}\n",
            name(r),
            name(r),
            float(r, 2),
            word(r),
            r.chance(50),
            number(r, 5)
        );
    }),
    ("traceback", |r, p| {
        let (file, function) = (name(r), name(r));
        put!(
            p,
            "  File \"/usr/lib/python3.11/site-packages/{file}/{}.py\", line {}, in {function}\n    return self.{}({}, {})\n",
            word(r),
            number(r, 4),
            name(r),
            name(r),
            number(r, 3)
        );
    }),
    ("numbered lines", |r, p| {
        put!(
            p,
            "{:>6}\tlet {} = {}({});\n",
            p.count + 1,
            name(r),
            name(r),
            number(r, 3)
        );
    }),
    ("found lines", |r, p| {
        put!(
            p,
            "src/{}/{}.rs:{}:    {} {} {}\n",
            name(r),
            name(r),
            number(r, 4),
            word(r),
            word(r),
            word(r)
        );
    }),
    ("list of words", |r, p| put!(p, "{}\n", word(r))),
    ("progress", |r, p| {
        let done = r.below(20);
        put!(
            p,
            "{:>3}% [{}>{}] {}/{} {}MB/s\r",
            done * 5,
            "=".repeat(done),
            " ".repeat(20 - done),
            number(r, 6),
            number(r, 6),
            float(r, 1)
        );
    }),
    ("markup", |r, p| {
        put!(
            p,
            "<tr class=\"{}\"><td>{}</td><td align=\"right\">{}</td><td>{}</td></tr>\n",
            name(r),
            word(r),
            number(r, 5),
            float(r, 2)
        );
    }),
    ("Chinese words", |r, p| prose_of(r, p, Tongue::Chinese)),
    ("Japanese words", |r, p| prose_of(r, p, Tongue::Japanese)),
    ("Korean words", |r, p| prose_of(r, p, Tongue::Korean)),
    ("emoji", |r, p| prose_of(r, p, Tongue::Emoji)),
];

fn prose_of(random: &mut Random, page: &mut Page, tongue: Tongue) {
    page.text.push_str(&prose::text(random, tongue, 200));
}
