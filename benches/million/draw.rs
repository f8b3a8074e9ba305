//! Draws a conversation by its number, with everything that a plan depends on.

use std::fmt;

use plimsoll::{
    config::GuardConfig,
    guard::{
        SessionKnowledge,
        profile::{PROFILES, Profile, find_profile},
    },
};

use crate::support::{
    annotate_randomly, any_settings,
    generate::{ConversationSize, JsonSpelling, Random, Recipe, SHAPES, Session, Shape},
    made::make_injected,
    plans,
};

/// Shares in hundredths; most decisions depend on small ones.
const WINDOWS: [(u32, u32); 8] = [
    (10, 1_024),
    (15, 2_048),
    (20, 4_096),
    (20, 8_192),
    (15, 16_384),
    (10, 32_768),
    (5, 128_000),
    (5, 200_000),
];

pub(crate) struct DrawnCase {
    pub(crate) body: Vec<u8>,
    pub(crate) recipe: Recipe,
    pub(crate) window: u32,
    pub(crate) profile: &'static Profile,
    pub(crate) settings: GuardConfig,
    pub(crate) knowledge: SessionKnowledge,
    number: u64,
}

impl DrawnCase {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        let seed = Random::for_part(seed, number).next();
        let mut random = Random::for_part(seed, 5);
        let recipe = Recipe {
            spelling: JsonSpelling::any(&mut random),
            strict: random.chance(60),
            // Most texts are short, so that many fit into the time.
            scale: random.weighted(&[(60, 8), (25, 25), (10, 60), (5, 100)]),
            ..Recipe::new(shape(&mut random))
        };
        let messages =
            random.sample_quantiles(&[(0, 1), (500, 10), (900, 50), (990, 150), (1000, 600)]);
        let mut body =
            Session::new(seed, recipe, ConversationSize::Messages(messages.max(1))).whole();
        let settings = if random.chance(40) {
            GuardConfig::default()
        } else {
            any_settings(seed)
        };
        if random.chance(30) {
            body = annotate_randomly(&plans::index_conversation(&body), seed).into();
        }
        // Some conversations get a profile that is stricter than they are.
        let any = recipe.strict || random.chance(15);
        let profile = if any {
            &PROFILES[random.below(PROFILES.len())]
        } else {
            find_profile("openai").expect("a row of the table")
        };
        let mut knowledge = SessionKnowledge::default();
        if random.chance(60) {
            knowledge.injections = make_injected(&plans::index_conversation(&body), seed);
        }
        Self {
            window: random.weighted(&WINDOWS),
            body,
            recipe,
            profile,
            settings,
            knowledge,
            number,
        }
    }
}

fn shape(random: &mut Random) -> Shape {
    // Results beyond every limit take long to generate.
    match SHAPES[random.below(SHAPES.len())] {
        Shape::Huge if random.chance(80) => Shape::Mixed,
        shape => shape,
    }
}

/// Printed with a failure; the body can be generated again.
impl fmt::Debug for DrawnCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Drawn")
            .field("number", &self.number)
            .field("bytes", &self.body.len())
            .field("recipe", &self.recipe)
            .field("window", &self.window)
            .field("profile", &self.profile.name)
            .field("clear", &self.settings.clear)
            .field("records", &self.knowledge.injections.records.len())
            .finish_non_exhaustive()
    }
}
