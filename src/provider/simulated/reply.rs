//! What is answered: text, calls, or both, and why it ended.
//!
//! With tools, mostly a call after a user message, then another after each result with falling
//! odds, so that a loop ends after a few rounds. A notice that asks for notes is obeyed first. The
//! same conversation gets the same answer, streamed or not.

use serde_json::{Value, json};

use super::{
    ask::{Ask, Format},
    check::role,
    count,
    dice::Dice,
    package::{self, Package},
    prompt::Prompt,
    prose, schema, summary,
    tool::{Choice, Kind, Tool},
    wanted::{self, Wanted},
};

/// Rounds of one turn after which there is always a text.
const ROUNDS: usize = 12;
/// Notes from which on one is written anew instead of another one beside it.
const MANY_NOTES: usize = 6;
/// Percent of further calls after 1, 2, 3, … rounds; the last goes on.
const FURTHER: &[usize] = &[94, 80, 65, 50, 40];

/// One answer of the `n` asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reply {
    pub(super) content: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) finish: Finish,
    pub(super) tokens: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, or free text of a custom tool; cut off where the answer ended for its length.
    pub(super) input: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Finish {
    #[default]
    Stop,
    Length,
    ToolCalls,
    FunctionCall,
}

impl Finish {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::FunctionCall => "function_call",
        }
    }
}

/// All answers to a request.
pub(super) fn all(ask: &Ask<'_>, prompt: &Prompt) -> Vec<Reply> {
    let room = ask.model.window.saturating_sub(prompt.tokens());
    let limit = ask.limit.unwrap_or(room).min(room);
    (0..ask.n)
        .map(|nth| one(ask, prompt.hash ^ ask.seed ^ u64::from(nth) << 48, limit))
        .collect()
}

fn one(ask: &Ask<'_>, seed: u64, limit: u32) -> Reply {
    let mut dice = Dice::new(seed);
    let said = last_text(ask.messages);
    let tools = callable(ask);
    let wanted = wanted::wanted(ask);
    let mut reply = Reply::default();
    let own = own_calls(ask, wanted, &mut dice);
    if wanted == Some(Wanted::Summary) {
        reply.content = summary::block(ask.messages);
    } else if !own.is_empty() || !tools.is_empty() && calls_now(ask, &mut dice) {
        reply.calls = match own.is_empty() {
            true => calls(ask, &tools, &prose::topic(&said), &mut dice),
            false => mixed(ask, own, &tools, &prose::topic(&said), &mut dice),
        };
        let first = reply.calls.first();
        reply.content =
            first
                .filter(|_| dice.chance(40))
                .map(|call| match wanted::is_own(&call.name) {
                    // What it keeps for itself is nobody else's business.
                    true => prose::pause(wanted.is_some() && prose::is_chinese(&said)),
                    false => prose::aside(&call.name, &mut dice),
                });
        reply.finish = match (first.map(|call| call.kind), ask.choice) {
            (Some(Kind::Legacy), Choice::Auto) => Finish::FunctionCall,
            // A call that the client named itself ends with `stop`, as at OpenAI.
            (_, Choice::Named(_)) => Finish::Stop,
            _ => Finish::ToolCalls,
        };
    } else {
        reply.content = Some(match ask.format {
            Format::Text => prose::answer(&said, &mut dice),
            Format::Schema(schema) => {
                schema::value(schema, &prose::topic(&said), &mut dice).to_string()
            }
            Format::Object => {
                json!({"answer": prose::answer(&said, &mut dice), "confidence": 0.9}).to_string()
            }
        });
    }
    if let (Some(Wanted::Block), Some(content)) = (wanted, &mut reply.content) {
        let block = Package::of(ask.messages).block();
        *content = format!("{content}\n\n{block}");
    }
    stop_at(&mut reply, &ask.stop);
    fit(&mut reply, limit);
    reply
}

/// What the user wants, else the text of the newest message at all.
fn last_text(messages: &[Value]) -> String {
    match messages.iter().any(|one| role(one) == "user") {
        true => package::task(messages),
        false => messages.last().map(wanted::text_of).unwrap_or_default(),
    }
}

/// What may be called unasked: the memory's own tools only where a call is demanded and there is
/// no other.
fn callable<'a>(ask: &Ask<'a>) -> Vec<Tool<'a>> {
    let others = ask.tools.iter().any(|tool| !wanted::is_own(tool.name));
    let allowed = |tool: &&Tool<'_>| match ask.choice {
        Choice::None => false,
        Choice::Auto => !wanted::is_own(tool.name),
        Choice::Required => !(others && wanted::is_own(tool.name)),
        Choice::Named(name) => tool.name == name,
    };
    ask.tools.iter().filter(allowed).copied().collect()
}

fn calls_now(ask: &Ask<'_>, dice: &mut Dice) -> bool {
    if ask.choice != Choice::Auto {
        return true;
    }
    let last = ask.messages.last().map(role).unwrap_or_default();
    if !matches!(last, "user" | "tool" | "function") {
        return false;
    }
    let turn = ask
        .messages
        .iter()
        .rev()
        .take_while(|one| role(one) != "user");
    let rounds = turn.filter(|one| role(one) == "assistant").count();
    let odds = FURTHER.get(rounds).or(FURTHER.last()).copied();
    rounds < ROUNDS && dice.chance(odds.unwrap_or_default())
}

fn calls(ask: &Ask<'_>, tools: &[Tool<'_>], topic: &str, dice: &mut Dice) -> Vec<Call> {
    let legacy = tools.iter().all(|tool| tool.kind == Kind::Legacy);
    let named = matches!(ask.choice, Choice::Named(_));
    let count = match ask.parallel && !legacy && !named && dice.chance(20) {
        true => 2 + dice.below(2),
        false => 1,
    };
    (0..count)
        .filter_map(|_| {
            let tool = dice.pick(tools)?;
            let input = match tool.kind {
                Kind::Custom => topic.to_owned(),
                Kind::Function | Kind::Legacy => arguments(tool.parameters, topic, dice),
            };
            Some(Call {
                id: dice.id("call_"),
                name: tool.name.to_owned(),
                input,
                kind: tool.kind,
            })
        })
        .collect()
}

/// Calls that a notice asked for: one note of everything, or one for each thing. Where there are
/// many notes already, one of them is brought up to date.
fn own_calls(ask: &Ask<'_>, wanted: Option<Wanted>, dice: &mut Dice) -> Vec<Call> {
    let name = match wanted {
        Some(Wanted::Notes) => wanted::ADD,
        Some(Wanted::Clear) => wanted::CLEAR,
        Some(Wanted::Block | Wanted::Summary) | None => return Vec::new(),
    };
    let offered = |name: &str| ask.tools.iter().find(|tool| tool.name == name);
    let Some(tool) = offered(name) else {
        return Vec::new();
    };
    let lines = Package::of(ask.messages).lines();
    let kept = wanted::kept(ask.messages);
    if kept.len() >= MANY_NOTES
        && let (Some(id), Some(update)) = (dice.pick(&kept), offered(wanted::UPDATE))
    {
        let (tool, input) = match wanted {
            Some(Wanted::Clear) => (tool, "{}".to_owned()),
            _ => (
                update,
                json!({"id": id, "content": lines.join("\n")}).to_string(),
            ),
        };
        return vec![Call {
            id: dice.id("call_"),
            name: tool.name.to_owned(),
            input,
            kind: tool.kind,
        }];
    }
    let several = wanted == Some(Wanted::Notes) && may_be_several(ask, tool) && dice.chance(25);
    let notes = match several {
        true => lines.to_vec(),
        false => vec![lines.join("\n")],
    };
    let call = |note: String| Call {
        id: dice.id("call_"),
        name: name.to_owned(),
        input: noted(tool, note),
        kind: tool.kind,
    };
    notes.into_iter().map(call).collect()
}

fn may_be_several(ask: &Ask<'_>, tool: &Tool<'_>) -> bool {
    ask.parallel && tool.kind != Kind::Legacy
}

/// The arguments that carry a note: in the first text that the tool must have, else in the first
/// that it may have.
fn noted(tool: &Tool<'_>, note: String) -> String {
    if tool.kind == Kind::Custom {
        return note;
    }
    let properties = tool.parameters["properties"].as_object();
    let must = tool.parameters["required"].as_array();
    let must = must.into_iter().flatten().filter_map(Value::as_str);
    let may = properties
        .into_iter()
        .flat_map(|all| all.keys().map(String::as_str));
    let place = must.chain(may).next();
    place.map_or_else(|| "{}".to_owned(), |name| json!({name: note}).to_string())
}

/// Now and then the model goes on with its work in the same breath, before its notes or after.
fn mixed(
    ask: &Ask<'_>,
    own: Vec<Call>,
    tools: &[Tool<'_>],
    topic: &str,
    dice: &mut Dice,
) -> Vec<Call> {
    let several = own.first().is_some_and(|call| call.kind != Kind::Legacy);
    if tools.is_empty() || !ask.parallel || !several || !dice.chance(30) {
        return own;
    }
    let theirs = calls(ask, tools, topic, dice);
    match dice.chance(50) {
        true => [own, theirs].concat(),
        false => [theirs, own].concat(),
    }
}

fn arguments(parameters: &Value, topic: &str, dice: &mut Dice) -> String {
    match schema::value(parameters, topic, dice) {
        object @ Value::Object(_) => object.to_string(),
        _ => "{}".to_owned(),
    }
}

/// Ends the text before the first stop sequence in it. Calls are never stopped by one.
fn stop_at(reply: &mut Reply, stop: &[&str]) {
    let Some(content) = &mut reply.content else {
        return;
    };
    let first = stop.iter().filter_map(|word| content.find(word)).min();
    if let Some(at) = first {
        content.truncate(at);
        reply.calls.clear();
        reply.finish = Finish::Stop;
    }
}

/// Cuts the answer to its limit and counts it.
fn fit(reply: &mut Reply, limit: u32) {
    let mut left = limit;
    let mut cut = false;
    if let Some(content) = &mut reply.content {
        cut |= cut_text(content, &mut left);
    }
    reply.calls.retain_mut(|call| {
        let spent = count::text(&call.name).saturating_add(3);
        if cut || spent > left {
            cut = true;
            return false;
        }
        left -= spent;
        cut |= cut_text(&mut call.input, &mut left);
        true
    });
    if cut {
        reply.finish = Finish::Length;
    }
    reply.tokens = limit - left;
}

/// Whether something was cut off.
fn cut_text(text: &mut String, left: &mut u32) -> bool {
    let end = count::prefix(text, *left);
    let cut = end < text.len();
    text.truncate(end);
    *left = left.saturating_sub(count::text(text));
    cut
}

#[cfg(test)]
mod tests;
