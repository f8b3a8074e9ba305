//! How much each line of defence frees at the end of a session, and what the preface keeps of the
//! fold.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use crate::support::{
    data,
    drive::{apply_plan, make_policy, raw_tokens},
    generate::{ConversationSize, Recipe, Session, Shape},
};
use bytes::Bytes;
use plimsoll::{
    config::{ClearConfig, GuardConfig},
    conversation::{Author, BlockKind, Content, Conversation, Item},
    format::chat,
    guard::{self, Plan, SessionKnowledge, profile},
};
use serde_json::{Value, json};

const WINDOWS: &[u32] = &[16_384, 32_768];
/// Requests of a grown session, the last among them.
const REQUESTS: usize = 60;
/// Words of error messages, as a person would search for them.
const ERRORS: &[&str] = &[
    "Error",
    "error:",
    "FAILED",
    "Exception",
    "panicked",
    "错误",
    "失败",
];
/// Characters of a sentence or an error by which it is found again.
const KNOWN_CHARS: usize = 10;

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nlines of defence: each session grown request by request; raw tokens at its end, and what \
         each line frees of them\n(inputs: what shortening arguments frees beyond clearing). Then what the preface \
         says of the messages that were left out:\nwhat the user said, files named in calls, lines \
         that tell of errors\n"
    )?;
    writeln!(
        out,
        "{:<34} {:>7} {:>8} {:>9} {:>8} {:>7} {:>8} {:>8} {:>8}  {:>14} {:>14} {:>14}",
        "session",
        "window",
        "came",
        "truncated",
        "cleared",
        "inputs",
        "folded",
        "preface",
        "goes",
        "said",
        "files",
        "errors"
    )?;
    for (name, session) in sessions() {
        let session = session.thinned(REQUESTS);
        for &window in WINDOWS {
            row(out, &name, &session, window)?;
        }
    }
    writeln!(out)
}

fn sessions() -> Vec<(String, Session)> {
    let recorded = data::requests().into_iter().filter_map(|it| {
        let session = Session::from_recorded(&it.body)?;
        Some((it.name, session))
    });
    let shapes = [Shape::Agent, Shape::OneTurn, Shape::Chinese, Shape::Chat];
    let generated = shapes.into_iter().map(|shape| {
        let session = Session::new(21, Recipe::new(shape), ConversationSize::Messages(400));
        (format!("generated {shape:?}"), session)
    });
    recorded.chain(generated).collect()
}

fn row(out: &mut impl Write, name: &str, session: &Session, window: u32) -> io::Result<()> {
    let usual = GuardConfig::default();
    let clearing = |enabled, inputs| GuardConfig {
        clear: ClearConfig {
            enabled,
            inputs,
            ..usual.clear.clone()
        },
        ..usual.clone()
    };
    let [folds, clears, shortens] =
        [(false, false), (true, false), (true, true)].map(|(enabled, inputs)| {
            SessionEnd::from_session(session, window, &clearing(enabled, inputs))
        });
    let before = folds.plan.report.raw_before;
    if folds.plan.edits.is_empty() {
        return Ok(());
    }
    let truncated = count_truncated(&folds.conversation, window, &usual);
    // A message that is not truncated, folded or sent was cleared.
    let cleared = |end: &SessionEnd| {
        let gone = end.folded() + (end.plan.report.raw_after - end.preface_tokens);
        before.saturating_sub(truncated + gone)
    };
    let left = clears.list_kept_facts();
    writeln!(
        out,
        "{:<34} {window:>7} {before:>8} {truncated:>9} {:>8} {:>7} {:>8} {:>8} {:>8}  {:>14} {:>14} {:>14}",
        name.chars().take(34).collect::<String>(),
        cleared(&clears),
        cleared(&shortens).saturating_sub(cleared(&clears)),
        clears.folded(),
        clears.preface_tokens,
        clears.plan.report.raw_after,
        left[0],
        left[1],
        left[2],
    )
}

/// A session at its end.
struct SessionEnd {
    conversation: Conversation,
    plan: Plan,
    /// The text in the place of the fold.
    preface: String,
    preface_tokens: u32,
}

impl SessionEnd {
    fn from_session(session: &Session, window: u32, settings: &GuardConfig) -> Self {
        let policy = make_policy(&profile::PROFILES[0], window, settings);
        let mut knowledge = SessionKnowledge::default();
        let mut last = None;
        for body in session.steps() {
            let conversation = chat::index_body(Bytes::from(body)).expect("a body can be indexed");
            let plan = guard::plan(&conversation, &policy, &knowledge);
            knowledge.memory = plan.memory.clone();
            let said = conversation.items.iter();
            knowledge.sent_messages = said.filter(|it| !it.author.is_system()).count();
            last = Some((conversation, plan));
        }
        let (conversation, plan) = last.expect("a session has requests");
        let goes = chat::index_body(apply_plan(&conversation, &plan))
            .expect("what is sent can be indexed");
        let texts = goes.items.iter().filter_map(|it| match it.content {
            Content::Text(text) => Some(goes.decode_text(text).into_owned()),
            _ => None,
        });
        let preface = texts.into_iter().find(|text| text.starts_with(guard::NOTE));
        let preface = preface.unwrap_or_default();
        let alone = json!({"messages": [{"role": "user", "content": preface}]});
        let preface_tokens = if preface.is_empty() {
            0
        } else {
            raw_tokens(&alone.to_string().into(), policy.profile)
        };
        Self {
            conversation,
            plan,
            preface,
            preface_tokens,
        }
    }

    fn folded(&self) -> u32 {
        self.plan.report.folded.map_or(0, |folded| folded.tokens)
    }

    /// How much the preface keeps of the fold: user messages, files, errors.
    fn list_kept_facts(&self) -> [String; 3] {
        let [mut said, mut files, mut errors] = <[BTreeSet<String>; 3]>::default();
        for message in self.left_out() {
            let text = text_of(&self.conversation, message);
            if message.author == Author::User {
                add_fact(&mut said, &text);
            }
            if message.author.is_tool() {
                let lines = text.lines();
                let tells = lines.filter(|line| ERRORS.iter().any(|word| line.contains(word)));
                tells.for_each(|line| add_fact(&mut errors, line));
            }
            for call in self.conversation.calls_of(message) {
                let (_, arguments) = self.conversation.decode_call(call);
                if let Ok(Value::Object(members)) = serde_json::from_str(&arguments) {
                    let named = FILES.iter().filter_map(|key| members.get(*key)?.as_str());
                    files.extend(named.map(str::to_owned));
                }
            }
        }
        [said, files, errors].map(|facts: BTreeSet<String>| {
            let found = facts
                .iter()
                .filter(|fact| self.preface.contains(*fact))
                .count();
            let percent = 100 * found / facts.len().max(1);
            match facts.len() {
                0 => "-".to_owned(),
                all => format!("{found}/{all} {percent:>3} %"),
            }
        })
    }

    fn left_out(&self) -> impl Iterator<Item = &Item> {
        let until = self.plan.memory.boundary().unwrap_or(0) as usize;
        let messages = self.conversation.items.iter();
        let task = messages.clone().position(|it| it.author == Author::User);
        let said = messages
            .enumerate()
            .filter(|(_, it)| !it.author.is_system());
        let gone = said.take(until).filter(move |(at, _)| Some(*at) != task);
        gone.map(|(_, message)| message)
    }
}

/// Arguments that name a file.
const FILES: [&str; 5] = ["path", "file", "file_path", "filename", "filePath"];

fn text_of(conversation: &Conversation, message: &Item) -> String {
    let parts = conversation.blocks_of(message).iter();
    let parts = parts.filter_map(|part| match part.kind {
        BlockKind::Text(text) => Some(text),
        _ => None,
    });
    let string = match message.content {
        Content::Text(text) => Some(text),
        _ => None,
    };
    let texts = string.into_iter().chain(parts);
    texts
        .map(|text| conversation.decode_text(text).into_owned() + "\n")
        .collect()
}

/// Adds the beginning of a text, by which it is found however much of it is shown.
fn add_fact(facts: &mut BTreeSet<String>, text: &str) {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let known: String = line.chars().take(KNOWN_CHARS).collect();
    if !known.is_empty() {
        facts.insert(known.trim_end().to_owned());
    }
}

/// How much truncation takes of all results, each by itself.
fn count_truncated(conversation: &Conversation, window: u32, settings: &GuardConfig) -> u32 {
    let policy = make_policy(&profile::PROFILES[0], window, settings);
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}});
    let results = conversation.items.iter().filter(|it| it.author.is_tool());
    let taken = results.filter_map(|result| {
        let result: Value = serde_json::from_slice(conversation.span_bytes(result.span)).ok()?;
        let alone = json!({"messages": [
            {"role": "user", "content": "u"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": result["content"]},
        ]});
        let alone = chat::index_body(alone.to_string().into()).ok()?;
        let report = guard::plan(&alone, &policy, &SessionKnowledge::default()).report;
        Some(report.raw_before - report.raw_after)
    });
    taken.sum()
}
