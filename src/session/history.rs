//! The course of a session, for who looks at it: how full its window was, generation by generation.
//!
//! Bounded: where there would be more than [`MAX_POINTS`], neighbours become one, so that a long
//! session is seen whole, in coarser steps. Nothing in here decides anything.

use serde::{Deserialize, Serialize, Serializer};

/// Points that are kept of one session.
pub const MAX_POINTS: usize = 96;

/// Generations, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Packed", into = "Packed")]
pub struct History {
    /// Generations that one point stands for; the last one may stand for fewer.
    stride: u32,
    points: Vec<HistoryPoint>,
}

/// One generation; of several, the last one's number, the fullest one's tokens, and what was done in
/// any. As it is shown; what is stored is `Packed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryPoint {
    /// Counted from 1.
    pub generation: u32,
    /// As the provider reported them; `None` where it did not.
    pub prompt_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Of the same generation as the prompt tokens.
    pub completion_tokens: Option<u32>,
    /// What was done to its request.
    pub marks: Marks,
}

/// What was done to a request, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u16);

impl Marks {
    /// Tool results were truncated that were whole before.
    pub const TRUNCATED: Self = Self(1);
    /// More old tool rounds were cleared.
    pub const CLEARED: Self = Self(1 << 1);
    /// A new fold was made.
    pub const FOLDED: Self = Self(1 << 2);
    /// A recovery prompt was injected.
    pub const INJECTED: Self = Self(1 << 3);
    /// A new course began.
    pub const COURSE: Self = Self(1 << 4);
    /// A summary was adopted.
    pub const SUMMARY: Self = Self(1 << 5);
    /// It was fitted anew, since the provider had refused it as too long.
    pub const REFITTED: Self = Self(1 << 6);

    const NAMES: [(Self, &'static str); 7] = [
        (Self::TRUNCATED, "truncated"),
        (Self::CLEARED, "cleared"),
        (Self::FOLDED, "folded"),
        (Self::INJECTED, "injected"),
        (Self::COURSE, "course"),
        (Self::SUMMARY, "summary"),
        (Self::REFITTED, "refitted"),
    ];

    /// Adds `mark` where it is so.
    #[must_use]
    pub const fn with_mark(self, mark: Self, so: bool) -> Self {
        match so {
            true => Self(self.0 | mark.0),
            false => self,
        }
    }
}

/// As the words that the API has for them.
impl Serialize for Marks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let in_it = |(mark, _): &(Self, &str)| self.0 & mark.0 != 0;
        let words = Self::NAMES.into_iter().filter(in_it);
        serializer.collect_seq(words.map(|(_, word)| word))
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            stride: 1,
            points: Vec::new(),
        }
    }
}

impl History {
    pub fn points(&self) -> &[HistoryPoint] {
        &self.points
    }

    /// Adds the newest generation.
    pub fn add_point(&mut self, point: HistoryPoint) {
        self.merge_point(point);
        while self.points.len() > MAX_POINTS {
            self.stride = self.stride.saturating_mul(2);
            for point in std::mem::take(&mut self.points) {
                self.merge_point(point);
            }
        }
    }

    /// Completion tokens of each point, as they are stored beside the rest: 0 where they are not known,
    /// else one more than they are.
    pub fn pack_completions(&self) -> Vec<u32> {
        let packed =
            |point: &HistoryPoint| point.completion_tokens.map_or(0, |it| it.saturating_add(1));
        self.points.iter().map(packed).collect()
    }

    /// Puts back what [`Self::completions`] gave.
    pub fn restore_completions(&mut self, packed: &[u32]) {
        for (point, packed) in self.points.iter_mut().zip(packed) {
            point.completion_tokens = packed.checked_sub(1);
        }
    }

    fn merge_point(&mut self, point: HistoryPoint) {
        let step = |generation: u32| generation.saturating_sub(1) / self.stride.max(1);
        match self.points.last_mut() {
            Some(last) if step(last.generation) == step(point.generation) => {
                let marks = Marks(last.marks.0 | point.marks.0);
                // The fuller one, so that no peak is lost, nor what is known by what is not.
                let fuller = point.prompt_tokens >= last.prompt_tokens;
                let shown = if fuller { point } else { *last };
                *last = HistoryPoint {
                    generation: point.generation,
                    marks,
                    ..shown
                };
            }
            _ => self.points.push(point),
        }
    }
}

/// As it is stored: every number by what it differs from its neighbour, since it stands in each state
/// of a session and small numbers take fewer bytes.
#[derive(Serialize, Deserialize)]
struct Packed {
    stride: u32,
    /// The generation beyond the one before; marks, and what is known; prompt tokens beyond those
    /// before; what of these was not cached.
    points: Vec<(u32, u32, i32, i32)>,
}

const PROMPT_KNOWN: u32 = 1;
const CACHED_KNOWN: u32 = 2;
const MARKS_FROM: u32 = 2;

impl From<History> for Packed {
    fn from(history: History) -> Self {
        let (mut generation, mut prompt) = (0_u32, 0_u32);
        let mut pack = |point: &HistoryPoint| {
            let further = point.generation.wrapping_sub(generation);
            generation = point.generation;
            let mut head = u32::from(point.marks.0) << MARKS_FROM;
            let mut more = 0;
            if let Some(tokens) = point.prompt_tokens {
                head |= PROMPT_KNOWN;
                more = tokens.wrapping_sub(prompt).cast_signed();
                prompt = tokens;
            }
            let mut missed = 0;
            if let Some(cached) = point.cached_tokens {
                head |= CACHED_KNOWN;
                missed = prompt.wrapping_sub(cached).cast_signed();
            }
            (further, head, more, missed)
        };
        Self {
            stride: history.stride,
            points: history.points.iter().map(&mut pack).collect(),
        }
    }
}

impl From<Packed> for History {
    fn from(packed: Packed) -> Self {
        let (mut generation, mut prompt) = (0_u32, 0_u32);
        let mut unpack = |(further, head, more, missed): (u32, u32, i32, i32)| {
            generation = generation.wrapping_add(further);
            let knows = |what| head & what != 0;
            if knows(PROMPT_KNOWN) {
                prompt = prompt.wrapping_add(more.cast_unsigned());
            }
            HistoryPoint {
                generation,
                prompt_tokens: knows(PROMPT_KNOWN).then_some(prompt),
                cached_tokens: knows(CACHED_KNOWN)
                    .then(|| prompt.wrapping_sub(missed.cast_unsigned())),
                completion_tokens: None,
                // What a newer release marks is no word of ours.
                marks: Marks((head >> MARKS_FROM) as u16),
            }
        };
        Self {
            stride: packed.stride,
            points: packed.points.into_iter().map(&mut unpack).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn history(generations: u32) -> History {
        let mut history = History::default();
        for generation in 1..=generations {
            history.add_point(HistoryPoint {
                generation,
                prompt_tokens: Some(generation * 10),
                cached_tokens: None,
                completion_tokens: Some(generation * 3),
                marks: Marks::default().with_mark(Marks::FOLDED, generation % 7 == 0),
            });
        }
        history
    }

    #[test]
    fn a_short_session_is_kept_generation_by_generation() {
        let history = history(MAX_POINTS as u32);
        let generations: Vec<_> = history.points().iter().map(|it| it.generation).collect();
        assert_eq!(generations, (1..=MAX_POINTS as u32).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_session_is_seen_whole_and_no_mark_is_lost() {
        for generations in [97, 98, 1_000, 10_007] {
            let history = history(generations);
            let points = history.points();
            assert!(points.len() <= MAX_POINTS && points.len() >= MAX_POINTS / 2);
            assert_eq!(points.last().unwrap().generation, generations);
            let mut from = 0;
            for point in points {
                assert!(point.generation > from);
                let folded = (from + 1..=point.generation).any(|it| it % 7 == 0);
                assert_eq!(point.marks != Marks::default(), folded);
                assert_eq!(point.prompt_tokens, Some(point.generation * 10));
                from = point.generation;
            }
        }
    }

    #[test]
    fn words_are_those_of_the_marks() {
        let marks = Marks::default()
            .with_mark(Marks::COURSE, true)
            .with_mark(Marks::SUMMARY, false)
            .with_mark(Marks::TRUNCATED, true);
        let words = serde_json::to_value(marks).unwrap();
        assert_eq!(words, serde_json::json!(["truncated", "course"]));
    }

    #[test]
    fn it_is_small() {
        let bytes = postcard::to_allocvec(&history(500)).unwrap();
        assert!(bytes.len() < 512, "{}", bytes.len());
    }

    proptest! {
        #[test]
        fn it_comes_back_as_it_was_stored(points in prop::collection::vec(
            (1_u32..9, any::<Option<u32>>(), any::<Option<u32>>(), any::<Option<u16>>(), 0_u16..128),
            0..300)
        ) {
            let (mut history, mut generation) = (History::default(), 0);
            for (further, prompt_tokens, cached_tokens, completion_tokens, marks) in points {
                generation += further;
                history.add_point(HistoryPoint {
                    generation,
                    prompt_tokens,
                    cached_tokens,
                    completion_tokens: completion_tokens.map(u32::from),
                    marks: Marks(marks),
                });
            }
            let bytes = postcard::to_allocvec(&history).unwrap();
            let mut read = postcard::from_bytes::<History>(&bytes).unwrap();
            read.restore_completions(&history.pack_completions());
            prop_assert_eq!(read, history);
        }
    }
}
