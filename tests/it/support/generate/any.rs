//! Any conversation, for proptest: shrinks to fewer units, shorter texts and plainer spelling.

use std::fmt;

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    Recipe, Session, Shape,
    shape::SHAPES,
    write::{Escapes, JsonSpelling, Space},
};

/// A session with its recipe, which is printed when a test fails.
#[derive(Clone)]
pub(crate) struct GeneratedCase {
    pub(crate) seed: u64,
    pub(crate) recipe: Recipe,
    pub(crate) units: Vec<u64>,
    pub(crate) session: Session,
}

impl GeneratedCase {
    pub(crate) fn body(&self) -> Vec<u8> {
        self.session.whole()
    }
}

impl fmt::Debug for GeneratedCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body();
        let shown = String::from_utf8_lossy(&body[..body.len().min(4000)]);
        out.debug_struct("Case")
            .field("seed", &self.seed)
            .field("recipe", &self.recipe)
            .field("units", &self.units)
            .field("bytes", &body.len())
            .field("body", &format_args!("{shown}"))
            .finish()
    }
}

/// Any shape in any spelling, up to `units` messages and steps.
pub(crate) fn any_conversation(units: usize) -> impl Strategy<Value = GeneratedCase> {
    let seed = any::<u64>().no_shrink();
    let units = vec(any::<u64>().no_shrink(), 1..=units);
    (seed, any_recipe(), units).prop_map(|(seed, recipe, units)| GeneratedCase {
        seed,
        recipe,
        session: Session::from_units(seed, recipe, &units),
        units,
    })
}

fn any_recipe() -> impl Strategy<Value = Recipe> {
    let space = select(vec![
        Space::Compact,
        Space::Python,
        Space::Pretty(1),
        Space::Pretty(2),
        Space::Odd,
    ]);
    let escapes = select(vec![Escapes::Raw, Escapes::Ascii, Escapes::Odd]);
    let strict = any::<bool>();
    let shape = select(SHAPES);
    (shape, space, escapes, any::<bool>(), strict, 1..=100_u32).prop_map(
        |(shape, space, escapes, shuffled, strict, scale): (Shape, _, _, _, _, _)| Recipe {
            shape,
            spelling: JsonSpelling {
                space,
                escapes,
                shuffled,
            },
            strict,
            scale,
            notes: scale % 2 == 0 && !strict,
        },
    )
}
