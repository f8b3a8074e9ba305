//! The sessions in which rules are measured.

use plimsoll::{
    config::GuardConfig,
    conversation::Format,
    guard::profile::{Profile, find_profile},
};
use serde_json::{Value, json};

use crate::support::{
    annotate_randomly, data,
    generate::{ConversationSize, Random, Recipe, Session, Shape, prose},
    plans, strict,
    translate_chat::translate_chat,
    wide_tools::with_wide_tools,
};

/// Requests of a session.
const REQUESTS: usize = 40;
/// Seeds of the generated sessions.
pub(super) const SEEDS: std::ops::Range<u64> = 40..43;

/// What a session is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain(Shape),
    /// The user pastes texts between fences, some of them longer than the window.
    Pasted,
    /// Parts have a name and a priority.
    Annotated,
    /// Tools take much of the window.
    WideTools,
    /// Long questions, each with a few long results behind it.
    LongQuestions,
    /// Long questions, and steps behind them that cannot get shorter: their arguments are numbers.
    Numbers,
}

/// Generated sessions of each seed: kind, window, and formats.
const GENERATED: &[(Kind, u32, &[Format])] = &[
    (Kind::Plain(Shape::Agent), 8_192, ALL),
    (Kind::Plain(Shape::OneTurn), 8_192, ALL),
    (Kind::Plain(Shape::Chat), 8_192, ALL),
    (Kind::Plain(Shape::Edits), 8_192, &[Format::Chat]),
    (Kind::Plain(Shape::Huge), 16_384, &[Format::Chat]),
    (Kind::Plain(Shape::Media), 8_192, &[Format::Chat]),
    (Kind::Pasted, 8_192, &[Format::Chat, Format::Messages]),
    (Kind::Annotated, 8_192, &[Format::Chat]),
    (Kind::WideTools, 8_192, &[Format::Chat]),
    (Kind::LongQuestions, 8_192, ALL),
    (Kind::Numbers, 8_192, ALL),
];
/// Sessions of each seed without state, so that nothing is known of their tokens.
const WITHOUT_STATE: &[Shape] = &[Shape::Agent, Shape::OneTurn, Shape::Chat];
const ALL: &[Format] = &[Format::Chat, Format::Messages, Format::Responses];

/// Recorded sessions and windows; a name is the beginning of a file's.
const RECORDED: &[(&str, u32)] = &[
    ("coding-pi-899-messages", 16_384),
    ("chat-aider-long-no-tools", 16_384),
    ("coding-openhands-ponyc-a", 8_192),
    ("coding-openhands-ponyc-b", 8_192),
    ("coding-swesmith-pydantic", 8_192),
    ("coding-sweagent-pydicom-textonly", 8_192),
    ("zh-stitched-long", 16_384),
];

/// A session in one format.
pub(super) struct Case {
    /// `None`: recorded.
    pub(super) seed: Option<u64>,
    pub(super) format: Format,
    pub(super) window: u32,
    pub(super) profile: &'static Profile,
    pub(super) settings: GuardConfig,
    /// The session in Chat, whose messages say what each answer refers to.
    pub(super) chat: Session,
    /// Whether state is kept between requests.
    pub(super) keeps_state: bool,
}

impl Case {
    pub(super) fn generated(seed: u64) -> Vec<Self> {
        let mut cases = Vec::new();
        for &(kind, window, formats) in GENERATED {
            let session = draw_session(kind, seed, window);
            for &format in formats {
                let mut case = Self::new(Some(seed), session.clone(), format, window);
                if kind == Kind::Annotated {
                    let caps = [("notes", 400), ("docs", 1_000)];
                    case.settings.caps = caps.map(|(name, cap)| (name.to_owned(), cap)).into();
                }
                cases.push(case);
            }
        }
        for &shape in WITHOUT_STATE {
            let session = draw_session(Kind::Plain(shape), seed, 8_192);
            for &format in ALL {
                let mut unknown = Self::new(Some(seed), session.clone(), format, 8_192);
                unknown.keeps_state = false;
                cases.push(unknown);
            }
        }
        cases
    }

    pub(super) fn recorded() -> Vec<Self> {
        let cases = RECORDED.iter().filter_map(|&(name, window)| {
            let session = Session::from_recorded(&data::request(name)?)?;
            Some(Self::new(
                None,
                session.thinned(REQUESTS),
                Format::Chat,
                window,
            ))
        });
        cases.collect()
    }

    fn new(seed: Option<u64>, chat: Session, format: Format, window: u32) -> Self {
        let profile = match format {
            Format::Messages => "anthropic",
            _ => "openai",
        };
        Self {
            seed,
            format,
            window,
            profile: find_profile(profile).expect("a profile of the table"),
            settings: GuardConfig::default(),
            // Clients ask for longer answers than they get.
            chat: chat.asking_for(window / 3),
            keeps_state: true,
        }
    }

    /// The body of a request in the format of the case.
    pub(super) fn body(&self, request: usize) -> Vec<u8> {
        let body = translate_chat(&self.chat.body(request), self.format, true);
        let name = match self.format {
            Format::Messages => "max_tokens",
            Format::Responses => "max_output_tokens",
            _ => return body,
        };
        let mut body: Value = serde_json::from_slice(&body).expect("a translated body is JSON");
        body[name] = json!(self.window / 3);
        body.to_string().into_bytes()
    }

    /// The answer cap of a body; tokens.
    pub(super) fn answer_cap(&self, body: &Value) -> u64 {
        let names = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
        names
            .iter()
            .find_map(|name| body[*name].as_u64())
            .unwrap_or(0)
    }

    /// Whether the provider refuses what was made of a body that it takes.
    pub(super) fn is_made_invalid(&self, before: &[u8], after: &[u8]) -> bool {
        if before == after {
            return false;
        }
        // A valid request needs no comparison with the original, which may be long.
        match self.format {
            Format::Messages => {
                !strict::messages::find_violations(after).is_empty()
                    && !strict::messages::find_broken_rules(before, after).is_empty()
            }
            Format::Responses => {
                let apart = self.profile.results_may_be_apart;
                !strict::responses::find_violations(after).is_empty()
                    && !strict::responses::find_broken_rules(before, after, apart).is_empty()
            }
            _ => {
                !strict::find_violations(after, self.profile).is_empty()
                    && !strict::find_broken_rules(before, after, self.profile).is_empty()
            }
        }
    }
}

fn draw_session(kind: Kind, seed: u64, window: u32) -> Session {
    let draw = |shape: Shape| {
        let lengths = (REQUESTS..).step_by(20);
        let sessions = lengths.map(|messages| {
            let recipe = Recipe {
                // A provider of the Messages format takes these too.
                strict: true,
                ..Recipe::new(shape)
            };
            Session::new(seed, recipe, ConversationSize::Messages(messages))
        });
        let mut sessions = sessions.filter(|session| session.requests() >= REQUESTS);
        sessions.next().expect("sessions grow without end")
    };
    let mut random = Random::for_part(seed, 77);
    let edit = |session: &Session, edit: &mut dyn FnMut(&mut Vec<Value>)| {
        let mut body: Value = serde_json::from_slice(&session.whole()).expect("JSON");
        let list = body["messages"].as_array_mut().expect("a list");
        edit(list);
        Session::from_recorded(body.to_string().as_bytes()).expect("a session")
    };
    let write = |random: &mut Random, chars: usize| prose::text(random, prose::Tongue::Code, chars);
    match kind {
        Kind::Plain(shape) => draw(shape),
        Kind::Annotated => {
            let body = draw(Shape::Agent).whole();
            let body = annotate_randomly(&plans::index_conversation(&body), seed);
            Session::from_recorded(&body).expect("a session")
        }
        Kind::WideTools => {
            let body = with_wide_tools(Format::Chat, &draw(Shape::Agent).whole(), seed, 12);
            Session::from_recorded(&body).expect("a session")
        }
        Kind::Pasted => edit(&draw(Shape::Chat), &mut |list| {
            let users = list.iter_mut().filter(|it| it["role"] == "user");
            for message in users.step_by(4) {
                let asked = message["content"]
                    .as_str()
                    .unwrap_or("Look at this.")
                    .to_owned();
                let chars = if random.below(3) == 0 {
                    random.between(2_000, 6 * window as usize)
                } else {
                    random.between(2_000, window as usize)
                };
                let pasted = write(&mut random, chars);
                message["content"] = format!("{asked}\n\n```\n{pasted}\n```\n").into();
            }
        }),
        Kind::Numbers => edit(&draw(Shape::Agent), &mut |list| {
            let longest = 2 * window as usize;
            let mut is_asked = false;
            for message in list {
                if message["role"] == "user" {
                    let chars = random.between(longest / 4, longest);
                    message["content"] = write(&mut random, chars).into();
                } else if is_asked && message["tool_calls"].is_array() {
                    // Some four tokens each.
                    let count = random.between(window as usize / 16, window as usize / 7);
                    let rows = (0..count).map(|_| random.between(1_000_000, 9_999_999));
                    let rows = json!({"rows": rows.collect::<Vec<_>>()}).to_string();
                    message["tool_calls"][0]["function"]["arguments"] = rows.into();
                }
                is_asked = message["role"] == "user";
            }
        }),
        Kind::LongQuestions => edit(&draw(Shape::Agent), &mut |list| {
            let longest = 3 * window as usize / 2;
            for (at, message) in list.iter_mut().enumerate() {
                let chars = match message["role"].as_str() {
                    Some("user") => random.between(longest / 2, longest),
                    Some("tool") if at % 3 == 0 => random.between(longest / 4, 2 * longest),
                    _ => continue,
                };
                message["content"] = write(&mut random, chars).into();
            }
        }),
    }
}
