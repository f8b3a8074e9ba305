//! Plausible words: answers, and values for arguments by their names.
//!
//! All from small lists and the topic of the conversation; never a clock, never a network.

use super::dice::Dice;

const OPENINGS: &[&str] = &[
    "I looked into {}.",
    "Here is what I found about {}.",
    "Short answer first: {} works as intended, with one exception.",
    "Let me take {} step by step.",
    "I have gone through everything that touches {}.",
];

const MIDDLES: &[&str] = &[
    "The relevant part is small, and the rest of the code depends on it in two places only.",
    "The test that covers this passes; the one beside it does not check the edge at all.",
    "The old behaviour came from a default that nobody set on purpose.",
    "I kept the change local, so that the public interface stays as it is.",
    "The error only appears when the input is empty, which explains why it went unseen.",
    "Two callers rely on the order of the results, so I left the order alone.",
    "Reading it from the top, the loop ends one element too early.",
    "The numbers agree with what the log says.",
    "There is a second place with the same pattern, and it has the same problem.",
];

const ENDINGS: &[&str] = &[
    "Tell me if you want the wider change as well.",
    "The next step would be a test for the empty case.",
    "Everything else can stay as it is.",
    "That is all that is needed here.",
];

const HAN: &[&str] = &[
    "我看了一下相关的内容。",
    "问题出在默认值上，没有人特意设置过它。",
    "修改只涉及一个地方，公开的接口保持不变。",
    "测试已经通过，空输入的情况还需要补一个测试。",
    "日志里的数字和结果是一致的。",
    "如果需要更大范围的修改，请告诉我。",
];

const PATHS: &[&str] = &[
    "src/main.rs",
    "src/parser/mod.rs",
    "src/server/route.rs",
    "tests/basic.rs",
    "README.md",
    "Cargo.toml",
    "lib/queue.py",
];

const COMMANDS: &[&str] = &[
    "cargo test",
    "git status --short",
    "ls -la src",
    "cargo check",
];

/// What a text is about: its first few longer words.
pub(super) fn topic(text: &str) -> String {
    let edge = |character: char| !character.is_alphanumeric();
    if is_chinese(text) {
        // No spaces tell its words apart: the beginning of the first sentence.
        let sentence = text.trim().split(['，', '。', '！', '？', '\n']).next();
        return sentence.unwrap_or_default().chars().take(16).collect();
    }
    let words = text
        .split_whitespace()
        .take(200)
        .map(|word| word.trim_matches(edge));
    let telling = words.filter(|word| (4..=24).contains(&word.chars().count()));
    let topic = telling.take(3).collect::<Vec<_>>().join(" ");
    match topic.is_empty() {
        true => "this".to_owned(),
        false => topic,
    }
}

/// Whether a third of the characters are Chinese ones.
pub(super) fn is_chinese(text: &str) -> bool {
    let han = text
        .chars()
        .filter(|character| matches!(character, '\u{4e00}'..='\u{9fff}'))
        .count();
    han * 3 > text.chars().count()
}

/// An answer of a few sentences, in Chinese where `text` is.
pub(super) fn answer(text: &str, dice: &mut Dice) -> String {
    let sentences = 2 + dice.below(6);
    if is_chinese(text) {
        return (0..sentences)
            .filter_map(|_| dice.pick(HAN).copied())
            .collect();
    }
    let opening = dice.pick(OPENINGS).copied().unwrap_or_default();
    let mut said = vec![opening.replace("{}", &topic(text))];
    let mut at = dice.below(MIDDLES.len());
    for _ in 0..sentences {
        at = (at + 1 + dice.below(3)) % MIDDLES.len();
        said.push(MIDDLES[at].to_owned());
    }
    said.extend(dice.pick(ENDINGS).map(|ending| (*ending).to_owned()));
    let paragraph = if dice.chance(30) { "\n\n" } else { " " };
    let split = said.len() / 2;
    format!(
        "{}{paragraph}{}",
        said[..split].join(" "),
        said[split..].join(" ")
    )
}

/// What an assistant says beside a call.
pub(super) fn aside(name: &str, dice: &mut Dice) -> String {
    let asides = [
        "I will use {} for this.",
        "Let me check with {} first.",
        "Next: {}.",
    ];
    let aside = dice.pick(&asides).copied().unwrap_or_default();
    aside.replace("{}", name)
}

/// What an assistant says before it writes something down.
pub(super) fn pause(chinese: bool) -> String {
    match chinese {
        true => "稍等，我先整理一下思路。".to_owned(),
        false => "One moment, let me get my bearings.".to_owned(),
    }
}

/// A text for a property: by its format, else by its name, else the topic.
pub(super) fn text_for(name: &str, format: Option<&str>, topic: &str, dice: &mut Dice) -> String {
    match format {
        Some("date") => return "2025-03-14".to_owned(),
        Some("time") => return "09:30:00Z".to_owned(),
        Some("date-time") => return "2025-03-14T09:30:00Z".to_owned(),
        Some("email") => return "mate@example.org".to_owned(),
        Some("uri" | "url") => return "https://example.org/harbour".to_owned(),
        Some("uuid") => return "7d444840-9dc0-41d1-b245-5ffdce74fad2".to_owned(),
        _ => {}
    }
    let name = name.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let from =
        |list: &[&str], dice: &mut Dice| dice.pick(list).copied().unwrap_or_default().to_owned();
    if is(&["path", "file"]) {
        from(PATHS, dice)
    } else if is(&["command", "cmd", "script"]) {
        from(COMMANDS, dice)
    } else if is(&["city", "location", "place"]) {
        from(&["Bristol", "Rotterdam", "Bergen", "Lisbon"], dice)
    } else if is(&["date", "day"]) {
        "2025-03-14".to_owned()
    } else if is(&["url", "uri", "link"]) {
        "https://example.org/harbour".to_owned()
    } else if is(&["email"]) {
        "mate@example.org".to_owned()
    } else if is(&["old", "new", "content", "body", "code"]) {
        format!("// {topic}\nlet depth = {};\n", dice.below(100))
    } else if is(&["id", "name", "key"]) {
        format!("item-{}", dice.below(10_000))
    } else {
        topic.to_owned()
    }
}

/// A number for a property, by its name.
pub(super) fn number_for(name: &str, dice: &mut Dice) -> i64 {
    let name = name.to_ascii_lowercase();
    let most = match name.as_str() {
        "year" => return 2025,
        _ if name.contains("timeout") => return 30,
        _ if name.contains("line") || name.contains("offset") => 400,
        _ => 20,
    };
    1 + dice.below(most) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_about_something() {
        let mut dice = Dice::new(1);
        let text = answer("Please repair the tide tables of the harbour", &mut dice);
        assert!(text.len() > 80 && text.is_ascii());
        assert_eq!(topic("Please repair the tide tables"), "Please repair tide");
        assert_eq!(topic("?"), "this");
        assert!(answer("请看一下这个文件有什么问题", &mut dice).contains('。'));
        assert_ne!(
            answer("a", &mut Dice::new(1)),
            answer("a", &mut Dice::new(2))
        );
    }

    #[test]
    fn values_follow_formats_and_names() {
        let mut dice = Dice::new(1);
        assert!(PATHS.contains(&text_for("file_path", None, "x", &mut dice).as_str()));
        assert!(COMMANDS.contains(&text_for("command", None, "x", &mut dice).as_str()));
        assert_eq!(text_for("x", Some("date"), "x", &mut dice), "2025-03-14");
        assert_eq!(text_for("query", None, "tides", &mut dice), "tides");
        assert_eq!(number_for("timeout_ms", &mut dice), 30);
    }
}
