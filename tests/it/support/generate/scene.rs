//! Builds a conversation: which message may follow which, and its texts.

use super::{
    Recipe, notes,
    prose::text,
    random::{Quantiles, Random},
    shape::Traits,
    things,
    write::{Escapes, Json},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Nothing, or system messages only.
    Start,
    User,
    /// The results of a step.
    Results,
    Answer,
}

pub(super) struct Scene {
    recipe: Recipe,
    traits: Traits,
    last: Last,
    /// Remaining steps of the current turn.
    steps: usize,
    /// Ids of earlier calls, to be reused.
    ids: Vec<String>,
    /// Remaining bytes, where the body has a given size.
    pub(super) left: Option<usize>,
    /// Messages of the last unit that are not yet taken.
    pub(super) messages: Vec<Json>,
}

type Members = Vec<(&'static str, Json)>;

impl Scene {
    pub(super) fn new(seed: u64, recipe: Recipe, target: Option<usize>) -> Self {
        let mut random = Random::for_part(seed, 5);
        Self {
            recipe,
            traits: recipe.shape.traits(),
            last: Last::Start,
            steps: 0,
            ids: (0..3).map(|_| things::call_id(&mut random)).collect(),
            left: target,
            messages: Vec::new(),
        }
    }

    /// Whether a client would send a request now.
    pub(super) fn asks(&self) -> bool {
        matches!(self.last, Last::User | Last::Results)
    }

    /// The fields of the body; the value of `messages` is not used.
    pub(super) fn fields(&mut self, random: &mut Random) -> Members {
        let mut fields = vec![
            (
                "model",
                Json::text(random.pick(&["gpt-4o", "simulated/large", "deepseek-chat"])),
            ),
            ("messages", Json::List(Vec::new())),
        ];
        if self.traits.tools {
            let tongue = random.weighted(self.traits.speech);
            let chars = self.length(random, &[(0, 900), (500, 4_000), (1000, 9_000)]);
            let legacy = self.traits.legacy;
            let key = if legacy { "functions" } else { "tools" };
            fields.push((key, things::tools(random, tongue, chars, legacy)));
        }
        if random.chance(60) {
            fields.push((
                "stream",
                Json::plain(random.weighted(&[(2, "true"), (1, "false")])),
            ));
        }
        if random.chance(40) {
            fields.push(("temperature", things::number(random)));
        }
        if random.chance(30) {
            fields.push(("max_tokens", Json::plain("1024")));
        }
        if random.chance(self.traits.unusual * 2) {
            fields.push(things::unknown(random));
        }
        fields
    }

    /// System messages at the start; usually one.
    pub(super) fn begin(&mut self, seed: u64) {
        let mut random = Random::for_part(seed, 6);
        let many = if self.recipe.strict { 1 } else { 3 };
        for _ in 0..random.weighted(&[(3, 0), (14, 1), (2, many)]) {
            let chars = self.length(&mut random, self.traits.system);
            self.system(&mut random, chars);
        }
        if !self.recipe.strict && self.left.is_none() && random.chance(4) {
            self.answer(&mut random);
        }
    }

    /// The next message or step.
    pub(super) fn unit(&mut self, seed: u64) {
        let mut random = Random::new(seed);
        let aside = !self.recipe.strict && random.chance(3);
        match self.last {
            Last::Start => self.user(&mut random),
            Last::User | Last::Results if aside && random.chance(50) => self.user(&mut random),
            Last::User | Last::Results if self.steps > 0 => self.step(&mut random),
            Last::User | Last::Results => self.answer(&mut random),
            Last::Answer if aside && random.chance(50) => {
                let chars = self.length(&mut random, &[(0, 20), (1000, 300)]);
                self.system(&mut random, chars);
            }
            Last::Answer if aside => self.answer(&mut random),
            Last::Answer => self.user(&mut random),
        }
    }

    /// A user message, whatever was before: no conversation ends without a question.
    pub(super) fn ask(&mut self, seed: u64) {
        self.user(&mut Random::for_part(seed, 7));
    }

    fn system(&mut self, random: &mut Random, chars: usize) {
        let role = random.weighted(&[(8, "system"), (1, "developer")]);
        let tongue = random.weighted(self.traits.speech);
        let said = text(random, tongue, chars.max(1));
        let content = self.content(random, said);
        self.say(random, role, vec![("content", content)]);
    }

    fn user(&mut self, random: &mut Random) {
        let chars = self.length(random, self.traits.user).max(1);
        let tongue = random.weighted(self.traits.speech);
        let said = text(random, tongue, chars);
        let mut content = self.content(random, said);
        let room = self.left.is_none_or(|left| left > 20_000);
        if room && random.chance(self.traits.media) {
            content = with_media(random, content);
        }
        let mut members = vec![("content", content)];
        if random.chance(self.traits.unusual / 2) {
            members.push(("name", Json::text("anna")));
        }
        self.say(random, "user", members);
        self.last = Last::User;
        self.steps = random.sample_quantiles(self.traits.steps);
    }

    fn answer(&mut self, random: &mut Random) {
        let chars = self.length(random, self.traits.answer).max(1);
        let tongue = random.weighted(self.traits.speech);
        let said = text(random, tongue, chars);
        let content = self.content(random, said);
        self.say(random, "assistant", vec![("content", content)]);
        self.last = Last::Answer;
    }

    /// Calls, and a result for each.
    fn step(&mut self, random: &mut Random) {
        self.steps -= 1;
        let count = if self.traits.legacy {
            1
        } else {
            random.weighted(&[(85, 1), (9, 2), (4, 3), (2, 6)])
        };
        let mut ids: Vec<String> = Vec::new();
        for _ in 0..count {
            let again = random.chance(8);
            let old = self.ids[random.below(self.ids.len())].clone();
            let mut id = if again { old } else { things::call_id(random) };
            while ids.contains(&id) {
                id = format!("{id}{}", ids.len());
            }
            ids.push(id);
        }
        let names: Vec<_> = ids.iter().map(|_| things::tool_name(random)).collect();
        let mut members = self.lead(random);
        if self.traits.legacy {
            members.push(("function_call", self.function(random, names[0])));
        } else {
            let calls = ids.iter().zip(&names).enumerate();
            let calls = calls.map(|(at, (id, name))| self.call(random, at, id, name));
            members.push(("tool_calls", Json::List(calls.collect())));
        }
        self.say(random, "assistant", members);
        let mut order: Vec<usize> = (0..ids.len()).collect();
        if random.chance(20) {
            random.shuffle(&mut order);
        }
        for at in order {
            self.result(random, &ids[at], names[at]);
        }
        let place = random.below(self.ids.len());
        self.ids[place].clone_from(&ids[0]);
        self.last = Last::Results;
        while self.recipe.notes && random.chance(30) {
            let note = notes::write_note(random);
            let content = self.content(random, note);
            self.say(random, "user", vec![("content", content)]);
        }
    }

    /// What stands beside calls: a remark, nothing, reasoning.
    fn lead(&mut self, random: &mut Random) -> Members {
        let mut members = Vec::new();
        match random.below(10) {
            0..=3 => members.push(("content", Json::plain("null"))),
            4 => members.push(("content", Json::text(""))),
            5 => {}
            _ => {
                let chars = self.length(random, self.traits.answer).max(1);
                let tongue = random.weighted(self.traits.speech);
                members.push(("content", Json::text(text(random, tongue, chars))));
            }
        }
        if random.chance(15) {
            let chars = self.length(random, &[(0, 1), (1000, 300)]).max(1);
            let tongue = random.weighted(self.traits.speech);
            members.push(("reasoning_content", Json::text(text(random, tongue, chars))));
        }
        members
    }

    fn call(&self, random: &mut Random, at: usize, id: &str, name: &str) -> Json {
        let mut members = vec![
            ("id", Json::text(id)),
            ("type", Json::word("function")),
            ("function", self.function(random, name)),
        ];
        if random.chance(self.traits.unusual) {
            members.push(("index", Json::plain(at.to_string())));
        }
        if random.chance(self.traits.unusual / 2) {
            let signature = Json::Object(vec![("thought_signature", Json::text("Eq8B+/=="))]);
            members.push(("extra_content", Json::Object(vec![("google", signature)])));
        }
        Json::Object(members)
    }

    fn function(&self, random: &mut Random, name: &str) -> Json {
        let chars = self.length(random, self.traits.argument);
        let tongue = random.weighted(self.traits.output);
        let arguments = things::arguments(random, tongue, chars);
        Json::Object(vec![
            ("name", Json::text(name)),
            ("arguments", Json::text(arguments)),
        ])
    }

    fn result(&mut self, random: &mut Random, id: &str, name: &str) {
        let chars = self.length(random, self.traits.result);
        let tongue = random.weighted(self.traits.output);
        let said = text(random, tongue, chars);
        let content = self.content(random, said);
        let mut members = Vec::new();
        if self.traits.legacy {
            members.push(("name", Json::text(name)));
        } else {
            members.push(("tool_call_id", Json::text(id)));
            if random.chance(10) {
                members.push(("name", Json::text(name)));
            }
        }
        members.push(("content", content));
        self.say(
            random,
            if self.traits.legacy {
                "function"
            } else {
                "tool"
            },
            members,
        );
    }

    fn say(&mut self, random: &mut Random, role: &'static str, members: Members) {
        let mut message = vec![("role", Json::word(role))];
        message.extend(members);
        if random.chance(self.traits.unusual) {
            message.push(things::remark(random));
        }
        self.messages.push(Json::Object(message));
    }

    /// A string, or text parts that say the same.
    fn content(&self, random: &mut Random, said: String) -> Json {
        if !random.chance(self.traits.parts) {
            return Json::Text(said);
        }
        let mut texts = vec![said];
        if random.chance(30) {
            let middle = texts[0].chars().count() / 2;
            let at = texts[0].char_indices().nth(middle).map_or(0, |(at, _)| at);
            if at > 0 {
                let rest = texts[0].split_off(at);
                texts.push(rest);
            }
        }
        let parts = texts.into_iter().map(|text| {
            let mut part = vec![("type", Json::word("text")), ("text", Json::Text(text))];
            if random.chance(self.traits.unusual) {
                part.push(("cache_control", things::cache_control()));
            }
            Json::Object(part)
        });
        Json::List(parts.collect())
    }

    /// A length of the table, scaled, and no more than fits.
    fn length(&self, random: &mut Random, table: Quantiles) -> usize {
        let chars = random.sample_quantiles(table) * self.recipe.scale as usize / 100;
        // Escaped, a text may take six bytes for a character.
        let share = match self.recipe.spelling.escapes {
            Escapes::Raw => 6,
            Escapes::Ascii | Escapes::Odd => 18,
        };
        self.left.map_or(chars, |left| chars.min(left / share))
    }
}

fn with_media(random: &mut Random, content: Json) -> Json {
    let mut parts = match content {
        Json::List(parts) => parts,
        text => vec![Json::Object(vec![
            ("type", Json::word("text")),
            ("text", text),
        ])],
    };
    for _ in 0..random.between(1, 3) {
        let at = random.below(parts.len() + 1);
        parts.insert(at, things::media(random));
    }
    Json::List(parts)
}
