//! The provider: it judges each request, and answers as a model that works with the client's tools, and writes a
//! reminder whenever it is asked to.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::{
    super::{
        agent::words,
        generate::Random,
        model::{
            ModelCall, ModelRequest, PROXY_TOOLS,
            dialect::ReplyWriter,
            messages,
            notice::{Notice, find_notice},
            render::AnswerWriter,
            responses,
        },
        parse::parse_value,
        provider::{ProviderStep, ReceivedRequest, ScriptedProvider, answer},
    },
    client::PLACE,
    judge::SessionRecord,
    transcript::Wire,
};

/// Reminders of a session, at most: fewer than the proxy holds.
const MAX_NOTES: usize = 10;
/// Bytes of a fragment of a stream.
const FRAGMENT: usize = 40;

/// How the model of a test works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkHabits {
    pub(crate) seed: u64,
    /// Percent of the answers that end a turn.
    pub(crate) ends: u32,
    /// Tokens of what it writes into a file, at most.
    pub(crate) written: usize,
    /// It writes its calls as elements into its text.
    pub(crate) writes_calls: bool,
    /// Every call has the same id, as at some local engines.
    pub(crate) repeats_ids: bool,
}

pub(crate) type Records = Arc<Mutex<Vec<SessionRecord>>>;

pub(crate) fn lock(records: &Records) -> MutexGuard<'_, Vec<SessionRecord>> {
    records.lock().unwrap_or_else(|it| it.into_inner())
}

/// A provider for sessions with these words, each at its place.
pub(crate) async fn start_work(
    wire: Wire,
    habits: WorkHabits,
    words: &[String],
) -> (ScriptedProvider, Records) {
    let records = words.iter().map(|word| SessionRecord {
        word: word.clone(),
        ..SessionRecord::default()
    });
    let records: Records = Arc::new(Mutex::new(records.collect()));
    let kept = Arc::clone(&records);
    let provider = ScriptedProvider::start_forgetful(move |request| {
        let place = request.header(PLACE).and_then(|it| it.parse().ok());
        let mut records = lock(&kept);
        let place: usize = place.unwrap_or_default();
        let others = records.iter().enumerate().filter(|(at, _)| *at != place);
        let others: Vec<String> = others.map(|(_, it)| it.word.clone()).collect();
        dump(habits.seed, place, records[place].requests + 1, request);
        records[place].judge(wire, &request.body, &others);
        reply(wire, habits, place, &mut records[place], request)
    });
    (provider.await, records)
}

/// Writes a request into the folder that `SESSIONS_DUMP` names.
fn dump(seed: u64, place: usize, nth: usize, request: &ReceivedRequest) {
    if let Ok(folder) = std::env::var("SESSIONS_DUMP") {
        let name = format!("{folder}/{seed}-{place}-{nth:03}.json");
        std::fs::write(name, &request.body).unwrap();
    }
}

fn reply(
    wire: Wire,
    habits: WorkHabits,
    place: usize,
    record: &mut SessionRecord,
    request: &ReceivedRequest,
) -> Vec<ProviderStep> {
    let body = parse_value(&request.body).unwrap_or_default();
    let view = match wire {
        Wire::Chat => body.clone(),
        Wire::Messages => (messages::DIALECT.view)(&body),
        Wire::Responses => (responses::DIALECT.view)(&body),
    };
    let heard = ModelRequest {
        tokens: request.body.len() as u64 / 3,
        notice: find_notice(&view),
        nth: record.requests,
        body: &view,
    };
    let seed = habits.seed.wrapping_mul(1_000).wrapping_add(place as u64);
    let mut worker = SessionWorker {
        habits,
        record,
        random: Random::for_part(seed, heard.nth as u64),
    };
    let (text, calls) = worker.decide(&heard);
    write_answer(wire, &body, &heard, &text, &calls)
}

struct SessionWorker<'a> {
    habits: WorkHabits,
    record: &'a mut SessionRecord,
    random: Random,
}

impl SessionWorker<'_> {
    fn decide(&mut self, heard: &ModelRequest<'_>) -> (String, Vec<ModelCall>) {
        let nth = heard.nth;
        if let Some(notice) = &heard.notice {
            self.record.prompts += 1;
            if notice.notes && heard.offers_tool("add_reminder") && self.record.saved < MAX_NOTES {
                let note = json!({"content": self.write_note(nth)});
                return (
                    String::new(),
                    vec![ModelCall::new(&format!("own_{nth}"), "add_reminder", &note)],
                );
            }
        }
        let (mut text, calls) = self.work(heard);
        if heard.notice.as_ref().is_some_and(asks_for_block) {
            // The guard takes it out of the answer, and shows it with the next cut.
            let note = format!("note {nth} of {}: go on with deck {nth}", self.record.word);
            self.record.blocks += 1;
            text.push_str(&format!(
                "\n\n<continuation_package>\n{note}\n</continuation_package>"
            ));
        }
        (text, calls)
    }

    /// A reminder, which every later request must have.
    fn write_note(&mut self, nth: usize) -> String {
        let word = &self.record.word;
        let note = format!("note {nth} of {word}: go on with deck {nth}, then run the tests");
        self.record.notes.push(note.clone());
        self.record.shown.push(note.clone());
        self.record.saved += 1;
        note
    }

    fn work(&mut self, heard: &ModelRequest<'_>) -> (String, Vec<ModelCall>) {
        let (nth, word) = (heard.nth, &self.record.word);
        let path = format!("src/{word}/deck_{nth}.rs");
        let ends = self.random.chance(self.habits.ends);
        if self.habits.writes_calls {
            let text = if ends {
                format!(
                    "<attempt_completion>\n<result>\nPart {nth} of {word} is tight.\n</result>\n</attempt_completion>"
                )
            } else {
                format!("Deck {nth} is next.\n\n<read_file>\n<path>{path}</path>\n</read_file>")
            };
            return (text, Vec::new());
        }
        let offered = heard.offered_tools();
        let tool = offered.iter().find(|name| !PROXY_TOOLS.contains(name));
        let Some(tool) = tool.filter(|_| !ends) else {
            let text = format!(
                "Part {nth} of {word} is done: every seam is tight again, and the tests of it pass."
            );
            return (text, Vec::new());
        };
        let text = if self.random.chance(40) {
            format!("Deck {nth} of {word} may leak; its file tells what it is made of.")
        } else {
            String::new()
        };
        // Whole files stand in some calls, which no clearing of results makes smaller.
        let written =
            self.random.weighted(&[(60, 0), (25, 30), (15, 100)]) * self.habits.written / 100;
        let mut arguments = json!({ "path": path });
        if written > 0 {
            arguments["text"] = words(written, nth).into();
        }
        let count = if self.random.chance(15) { 2 } else { 1 };
        let calls = (0..count).map(|part| {
            let id = if self.habits.repeats_ids {
                format!("call_{part}")
            } else {
                format!("call_{nth}_{part}")
            };
            ModelCall::new(&id, tool, &arguments)
        });
        (text, calls.collect())
    }
}

/// A prompt for clients without tools.
fn asks_for_block(notice: &Notice) -> bool {
    notice.block && !notice.notes
}

fn write_answer(
    wire: Wire,
    body: &Value,
    heard: &ModelRequest<'_>,
    text: &str,
    calls: &[ModelCall],
) -> Vec<ProviderStep> {
    let (tokens, nth, fragment) = (heard.tokens, heard.nth, FRAGMENT);
    let writer = ReplyWriter {
        body,
        tokens,
        nth,
        fragment,
    };
    let (whole, events) = match wire {
        Wire::Messages => (messages::DIALECT.write)(&writer, text, calls),
        Wire::Responses => (responses::DIALECT.write)(&writer, text, calls),
        Wire::Chat => {
            let writer = AnswerWriter {
                body,
                tokens,
                fragment,
                byte_by_byte: false,
                reports_usage: true,
            };
            let events = writer.write_events(text, calls) + super::super::provider::DONE;
            (writer.write_whole(text, calls), events)
        }
    };
    if body["stream"] != true {
        return vec![answer("200 OK", "", whole.to_string())];
    }
    let length = events.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n"
    );
    vec![ProviderStep::Send(
        [head.as_bytes(), events.as_bytes()].concat(),
    )]
}
