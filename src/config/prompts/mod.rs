//! The prompts of recovery: built in, or replaced by files of the same names.
//!
//! Each text names its source (the context guard between client and model, not the user), says that it is no new
//! request and no new task, what to do now, and that the work goes on. No text claims authority or asks for
//! secrecy: models rightly take that for an attack. The texts are short, since a whole countdown must fit under
//! the budget of a small window.

mod directory;

use std::borrow::Cow;

use super::Language;
pub(super) use directory::read_prompts;

pub const MAX_CHARS: usize = 8_000;
/// Characters of the head of a preface, which is stored with every state of its course.
pub const MAX_HEAD_CHARS: usize = 2_000;

/// Replaced by the number of replies that are left.
const REMAINING: &str = "{remaining}";
/// Replaced by the prompt size that was passed.
const LIMIT: &str = "{limit}";
/// Replaced by the number of the course.
const COURSE: &str = "{course}";

/// How the model is asked to save notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteMethod {
    /// With the injected tools.
    Tools,
    /// With a block in its reply.
    Text,
}

/// All texts in both languages, in the order of `BUILT_IN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompts([Cow<'static, str>; 2 * KINDS]);

/// Declares each kind of text once, with the name of its files.
macro_rules! texts {
    ($($kind:ident $name:literal)*) => {
        enum PromptKind {
            $($kind),*
        }

        const KINDS: usize = [$($name),*].len();

        /// Names and texts of files in the order of [`PromptKind`], English before Chinese.
        const BUILT_IN: [(&str, &str); 2 * KINDS] = [
            $((concat!("en/", $name, ".txt"), include_str!(concat!("en/", $name, ".txt"))),)*
            $((concat!("zh/", $name, ".txt"), include_str!(concat!("zh/", $name, ".txt"))),)*
        ];
    };
}

texts! {
    CautionTools "caution-tools"
    CautionText "caution-text"
    CriticalTools "critical-tools"
    CriticalText "critical-text"
    CountdownTools "countdown-tools"
    CountdownText "countdown-text"
    CourseReminders "course-reminders"
    CourseFacts "course-facts"
    GoOn "go-on"
}

impl Default for Prompts {
    fn default() -> Self {
        Self(BUILT_IN.map(|(_, text)| Cow::Borrowed(text.trim())))
    }
}

impl Prompts {
    /// The prompt at the beginning of caution, repeated at the caution cadence. `limit`: the prompt size that was passed, in
    /// tokens.
    pub fn caution_prompt(&self, language: Language, method: NoteMethod, limit: u32) -> String {
        let kind = match method {
            NoteMethod::Tools => PromptKind::CautionTools,
            NoteMethod::Text => PromptKind::CautionText,
        };
        let text = self.select_text(language, kind);
        text.replace(LIMIT, &limit.to_string())
    }

    /// A prompt of a countdown: `remaining` replies are left before a new course, this one included. Only the
    /// first one is long, since it stays in the conversation.
    pub fn critical_prompt(
        &self,
        language: Language,
        method: NoteMethod,
        remaining: u32,
        first: bool,
    ) -> String {
        let kind = match (method, first) {
            (NoteMethod::Tools, true) => PromptKind::CriticalTools,
            (NoteMethod::Text, true) => PromptKind::CriticalText,
            (NoteMethod::Tools, false) => PromptKind::CountdownTools,
            (NoteMethod::Text, false) => PromptKind::CountdownText,
        };
        let text = self.select_text(language, kind);
        text.replace(REMAINING, &remaining.to_string())
    }

    /// The head of a course's preface with reminders.
    pub fn reminders_head(&self, language: Language, course: u32) -> String {
        let text = self.select_text(language, PromptKind::CourseReminders);
        text.replace(COURSE, &course.to_string())
    }

    /// The head of a course's preface with the facts of the ledger.
    pub fn facts_head(&self, language: Language, course: u32) -> String {
        let text = self.select_text(language, PromptKind::CourseFacts);
        text.replace(COURSE, &course.to_string())
    }

    /// The prompt after a reply that contained the block and nothing else.
    pub fn continue_prompt(&self, language: Language) -> &str {
        self.select_text(language, PromptKind::GoOn)
    }

    /// Replaces the text at an index of [`BUILT_IN`]. An error says why the text cannot be used, and what to do, in
    /// words that follow its name.
    fn replace_text(&mut self, index: usize, text: &str) -> Result<(), String> {
        let text = text.trim_start_matches('\u{FEFF}').trim();
        let (_, built_in) = BUILT_IN[index];
        let max_chars = if built_in.contains(COURSE) {
            MAX_HEAD_CHARS
        } else {
            MAX_CHARS
        };
        if text.is_empty() {
            return Err("is empty; write a text, or remove it for the built-in one".to_owned());
        }
        if text.chars().nth(max_chars).is_some() {
            return Err(format!("is longer than {max_chars} characters; shorten it"));
        }
        if built_in.contains(REMAINING) && !text.contains(REMAINING) {
            let message = "must contain {remaining}, which the proxy replaces with the number of answers that are left";
            return Err(message.to_owned());
        }
        self.0[index] = Cow::Owned(text.to_owned());
        Ok(())
    }

    fn select_text(&self, language: Language, kind: PromptKind) -> &str {
        let first = match language {
            Language::English => 0,
            Language::Chinese => KINDS,
        };
        &self.0[first + kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{directory::find_text_index, *};
    use Language::{Chinese, English};

    #[test]
    fn every_kind_of_prompt_reads_the_file_of_its_name() {
        let prompts = Prompts::default();
        for (language, folder) in [(English, "en"), (Chinese, "zh")] {
            for (name, kind) in [
                ("caution-tools", PromptKind::CautionTools),
                ("caution-text", PromptKind::CautionText),
                ("critical-tools", PromptKind::CriticalTools),
                ("critical-text", PromptKind::CriticalText),
                ("countdown-tools", PromptKind::CountdownTools),
                ("countdown-text", PromptKind::CountdownText),
                ("course-reminders", PromptKind::CourseReminders),
                ("course-facts", PromptKind::CourseFacts),
                ("go-on", PromptKind::GoOn),
            ] {
                let name = format!("{folder}/{name}.txt");
                let mut changed = prompts.clone();
                changed
                    .replace_text(
                        find_text_index(&name).unwrap(),
                        " other {remaining} {course}\n",
                    )
                    .unwrap();
                let now = changed.select_text(language, kind);
                assert_eq!(now, "other {remaining} {course}", "{name}");
            }
        }
    }

    #[test]
    fn prompts_are_short_and_name_their_source() {
        for (name, text) in BUILT_IN {
            let english = name.starts_with("en/");
            let max_chars = if english { 620 } else { 260 };
            let chars = text.trim().chars().count();
            assert!(chars <= max_chars, "{name}: {chars} characters");
            for needed in if english {
                ["context guard between client and model", "not", "no"]
            } else {
                ["守护程序", "不是用户所说", "不是新的请求，也不是新任务"]
            } {
                let found = text.to_lowercase().contains(needed);
                assert!(found, "{name}: no {needed:?}");
            }
            for wrong in ["mention", "must", "secret", "不要提", "必须"] {
                assert!(!text.contains(wrong), "{name}: {wrong:?}");
            }
        }
    }

    #[test]
    fn a_whole_countdown_fits_between_the_limit_and_the_budget() {
        let tokenizer = tiktoken_rs::o200k_base_singleton();
        let tokens = |text: &str| tokenizer.encode_ordinary(text).len();
        for (name, text) in BUILT_IN {
            let tokens = tokens(text);
            assert!(tokens <= 150, "{name}: {tokens} tokens");
        }
        let prompts = Prompts::default();
        for language in [English, Chinese] {
            for method in [NoteMethod::Tools, NoteMethod::Text] {
                let tokens_at =
                    |left| tokens(&prompts.critical_prompt(language, method, left, left == 5));
                let sum: usize = (1..=5).map(tokens_at).sum();
                // A tenth of a window of 32k less half of it for the answer, and less the replies of the
                // countdown.
                assert!(sum <= 550, "{language:?} {method:?}: {sum} tokens");
            }
        }
    }

    #[test]
    fn prompts_name_their_level_and_the_replies_that_are_left() {
        let prompts = Prompts::default();
        for method in [NoteMethod::Tools, NoteMethod::Text] {
            assert!(prompts.caution_prompt(Chinese, method, 9).contains("吃紧"));
            let critical = prompts.critical_prompt(Chinese, method, 1, true);
            for word in ["告急", "提醒项", "新一程对话", "1 次"] {
                assert!(critical.contains(word), "{word}: {critical}");
            }
            let critical = prompts.critical_prompt(English, method, 1, true);
            assert!(critical.contains("this reply included: 1."), "{critical}");
            assert!(!critical.contains('{'), "{critical}");
        }
        assert!(prompts.reminders_head(English, 2).contains("Course 2 of"));
        assert!(prompts.facts_head(Chinese, 3).contains("第 3 程"));
        assert!(prompts.continue_prompt(English).contains("was saved"));
    }

    #[test]
    fn unusable_texts_are_refused() {
        let mut prompts = Prompts::default();
        let long = "字".repeat(MAX_CHARS + 1);
        for name in ["en/caution.txt", "caution-tools.txt"] {
            let refused = find_text_index(name).unwrap_err();
            assert!(refused.starts_with("is not the name of a text; "), "{name}");
        }
        for (name, text, unfit) in [
            ("zh/go-on.txt", "\u{FEFF} \n", "is empty; "),
            (
                "zh/go-on.txt",
                long.as_str(),
                "is longer than 8000 characters; ",
            ),
            (
                "en/course-facts.txt",
                &long[..3 * (MAX_HEAD_CHARS + 1)],
                "is longer than 2000 characters; ",
            ),
            (
                "en/critical-text.txt",
                "soon",
                "must contain {remaining}, which",
            ),
        ] {
            let refused = prompts
                .replace_text(find_text_index(name).unwrap(), text)
                .unwrap_err();
            assert!(refused.starts_with(unfit), "{name}: {refused}");
        }
        assert_eq!(prompts, Prompts::default());
        let full = "字".repeat(MAX_CHARS);
        assert_eq!(
            prompts.replace_text(find_text_index("zh/go-on.txt").unwrap(), &full),
            Ok(())
        );
    }
}
