//! Window use of a session by generation, for the API and the dashboard. Recovery reads two facts from it: the largest
//! recent growth, and whether a recovery prompt was sent recently (`proxy/plan/prompt_timing.rs`).
//!
//! If there are more than [`MAX_POINTS`] points, then neighbouring points are merged: a long session has a coarser
//! resolution, except for its newest generations.

use serde::{Deserialize, Serialize, Serializer};

/// Most points of one session.
pub const MAX_POINTS: usize = 96;
/// The newest points are single generations, since recovery reads them.
const NEWEST_POINTS: usize = 5;

/// Points of a session, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Packed", into = "Packed")]
pub struct History {
    /// Number of generations that one point covers. The newest [`NEWEST_POINTS`] points cover one generation each.
    stride: u32,
    points: Vec<HistoryPoint>,
}

/// One generation, or several that were merged. A merged point has the number of its last generation, the tokens of its
/// fullest generation, and the marks of all. This form is serialized for the API; the store holds `Packed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryPoint {
    /// Counted from 1.
    pub generation: u32,
    /// As the provider reported them; `None` where it did not.
    pub prompt_tokens: Option<u32>,
    pub cached_tokens: Option<u32>,
    /// Of the same generation as the prompt tokens.
    pub completion_tokens: Option<u32>,
    pub marks: Marks,
}

/// The changes that the proxy made to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u16);

impl Marks {
    /// Further tool results were truncated.
    pub const TRUNCATED: Self = Self(1);
    /// Further old tool rounds were cleared.
    pub const CLEARED: Self = Self(1 << 1);
    /// A new fold was made.
    pub const FOLDED: Self = Self(1 << 2);
    /// A recovery prompt was injected.
    pub const INJECTED: Self = Self(1 << 3);
    /// A new course began.
    pub const COURSE: Self = Self(1 << 4);
    /// A summary was adopted.
    pub const SUMMARY: Self = Self(1 << 5);
    /// The request was cut again after the provider refused it as too long.
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

    /// Adds `mark` if `applies`.
    #[must_use]
    pub const fn with_mark(self, mark: Self, applies: bool) -> Self {
        Self(if applies { self.0 | mark.0 } else { self.0 })
    }
}

/// A list of names, as the API shows them.
impl Serialize for Marks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = Self::NAMES.into_iter();
        let set = names.filter(|(mark, _)| self.0 & mark.0 != 0);
        serializer.collect_seq(set.map(|(_, name)| name))
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

    /// The most by which the prompt grew from one generation to the next, among the newest `generations`.
    pub fn largest_growth(&self, generations: usize) -> u32 {
        let oldest = self.points.len().saturating_sub(generations + 1);
        let pairs = self.points[oldest..].windows(2);
        let growth = pairs.filter_map(|pair| {
            let [before, after] = pair else { return None };
            let generations = after.generation.saturating_sub(before.generation);
            let growth = after.prompt_tokens?.saturating_sub(before.prompt_tokens?);
            growth.checked_div(generations)
        });
        growth.max().unwrap_or(0)
    }

    /// Whether a recovery prompt was injected in a generation after `generation`. A merged point counts as its last
    /// generation.
    pub fn has_prompt_after(&self, generation: u32) -> bool {
        let is_prompted = |point: &HistoryPoint| point.marks.0 & Marks::INJECTED.0 != 0;
        let last = self.points.iter().rfind(|point| is_prompted(point));
        last.is_some_and(|point| point.generation > generation)
    }

    /// Lists what was cut since the newest course began: all marks except the one for injected prompts, which cut nothing.
    pub fn list_cuts(&self) -> Marks {
        let is_course = |point: &HistoryPoint| point.marks.0 & Marks::COURSE.0 != 0;
        let from = self.points.iter().rposition(is_course).unwrap_or(0);
        let marks = self.points[from..].iter().map(|point| point.marks.0);
        Marks(marks.fold(0, |all, marks| all | marks) & !Marks::INJECTED.0)
    }

    /// Adds the newest generation.
    pub fn add_point(&mut self, point: HistoryPoint) {
        self.points.push(point);
        self.merge_old_points(self.points.len().saturating_sub(NEWEST_POINTS + 1));
        while self.points.len() > MAX_POINTS {
            self.stride = self.stride.saturating_mul(2);
            self.merge_old_points(0);
        }
    }

    /// Merges the points from index `from` on, except the newest ones.
    fn merge_old_points(&mut self, from: usize) {
        let old = self.points.len().saturating_sub(NEWEST_POINTS).max(from);
        let newest = self.points.split_off(old);
        for point in self.points.split_off(from) {
            self.merge_point(point);
        }
        self.points.extend(newest);
    }

    fn merge_point(&mut self, point: HistoryPoint) {
        let step = |generation: u32| generation.saturating_sub(1) / self.stride.max(1);
        match self.points.last_mut() {
            Some(last) if step(last.generation) == step(point.generation) => {
                // The fuller point stays, so that peaks stay visible. Unknown tokens count as less than any number.
                let fuller = point.prompt_tokens >= last.prompt_tokens;
                *last = HistoryPoint {
                    generation: point.generation,
                    marks: Marks(last.marks.0 | point.marks.0),
                    ..if fuller { point } else { *last }
                };
            }
            _ => self.points.push(point),
        }
    }
}

/// The stored form. It holds differences between neighbouring points: every state of a session holds the history, and
/// small numbers take fewer bytes.
#[derive(Serialize, Deserialize)]
struct Packed {
    stride: u32,
    /// For each point: generations since the previous point; flags of known counts, and above them the marks; prompt
    /// tokens minus those of the previous known point; prompt tokens that were not cached; completion tokens.
    points: Vec<(u32, u32, i32, i32, u32)>,
}

const PROMPT_KNOWN: u32 = 1;
const CACHED_KNOWN: u32 = 2;
const COMPLETION_KNOWN: u32 = 4;
const MARKS_FROM: u32 = 3;

impl From<History> for Packed {
    fn from(history: History) -> Self {
        let (mut generation, mut prompt) = (0_u32, 0_u32);
        let mut pack = |point: &HistoryPoint| {
            let further = point.generation.wrapping_sub(generation);
            generation = point.generation;
            let mut flags = u32::from(point.marks.0) << MARKS_FROM;
            let mut more = 0;
            if let Some(tokens) = point.prompt_tokens {
                flags |= PROMPT_KNOWN;
                more = tokens.wrapping_sub(prompt).cast_signed();
                prompt = tokens;
            }
            let mut uncached = 0;
            if let Some(cached) = point.cached_tokens {
                flags |= CACHED_KNOWN;
                uncached = prompt.wrapping_sub(cached).cast_signed();
            }
            if point.completion_tokens.is_some() {
                flags |= COMPLETION_KNOWN;
            }
            let completion = point.completion_tokens.unwrap_or(0);
            (further, flags, more, uncached, completion)
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
        let mut unpack =
            |(further, flags, more, uncached, completion): (u32, u32, i32, i32, u32)| {
                generation = generation.wrapping_add(further);
                let is_set = |flag| flags & flag != 0;
                if is_set(PROMPT_KNOWN) {
                    prompt = prompt.wrapping_add(more.cast_unsigned());
                }
                let cached = prompt.wrapping_sub(uncached.cast_unsigned());
                HistoryPoint {
                    generation,
                    prompt_tokens: is_set(PROMPT_KNOWN).then_some(prompt),
                    cached_tokens: is_set(CACHED_KNOWN).then_some(cached),
                    completion_tokens: is_set(COMPLETION_KNOWN).then_some(completion),
                    // Marks of a newer release have no name here and are not shown.
                    marks: Marks((flags >> MARKS_FROM) as u16),
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
        let generations = history.points().iter().map(|point| point.generation);
        assert!(generations.eq(1..=MAX_POINTS as u32));
    }

    #[test]
    fn a_long_session_is_shown_whole_with_all_marks() {
        for generations in [97, 98, 1_000, 10_007] {
            let history = history(generations);
            let points = history.points();
            assert!(points.len() <= MAX_POINTS && points.len() >= MAX_POINTS / 2);
            assert_eq!(points.last().unwrap().generation, generations);
            let mut from = 0;
            for point in points {
                assert!(point.generation > from);
                let folded = (from + 1..=point.generation).any(|number| number % 7 == 0);
                assert_eq!(point.marks != Marks::default(), folded);
                assert_eq!(point.prompt_tokens, Some(point.generation * 10));
                from = point.generation;
            }
        }
    }

    #[test]
    fn the_newest_generations_of_a_long_session_are_not_merged() {
        for generations in [96, 97, 102, 1_000, 10_007] {
            let history = history(generations);
            let newest = history.points().iter().rev().take(NEWEST_POINTS);
            let newest = newest.map(|point| point.generation);
            assert!(newest.eq((0..NEWEST_POINTS as u32).map(|back| generations - back)));
            assert_eq!(history.largest_growth(NEWEST_POINTS - 1), 10);
        }
    }

    /// What the stored form is for: every state of a session holds the history. `--nocapture` prints the bytes.
    #[test]
    fn a_packed_history_takes_two_thirds_of_the_bytes() {
        let mut history = History::default();
        let mut prompt = 20_000;
        for generation in 1..=MAX_POINTS as u32 {
            let cached = prompt / 128 * 128;
            prompt += 300 + generation * 7_919 % 1_500;
            history.add_point(HistoryPoint {
                generation,
                prompt_tokens: Some(prompt),
                cached_tokens: Some(cached),
                completion_tokens: Some(50 + generation * 104_729 % 900),
                marks: Marks::default(),
            });
        }
        let plain = history.points().iter().map(|it| {
            let tokens = (it.prompt_tokens, it.cached_tokens, it.completion_tokens);
            (it.generation, tokens, it.marks.0)
        });
        let plain = postcard::to_allocvec(&plain.collect::<Vec<_>>()).unwrap();
        let packed = postcard::to_allocvec(&history).unwrap();
        println!("{} bytes packed, {} plain", packed.len(), plain.len());
        assert!(3 * packed.len() < 2 * plain.len());
    }

    #[test]
    fn marks_are_shown_by_name() {
        let marks = Marks::default()
            .with_mark(Marks::COURSE, true)
            .with_mark(Marks::SUMMARY, false)
            .with_mark(Marks::TRUNCATED, true);
        let names = serde_json::to_value(marks).unwrap();
        assert_eq!(names, serde_json::json!(["truncated", "course"]));
    }

    #[test]
    fn cuts_are_those_since_the_newest_course() {
        let mut history = History::default();
        let mut check = |marks: Marks, expected: &[&str]| {
            let generation = history.points().len() as u32 + 1;
            history.add_point(HistoryPoint {
                generation,
                prompt_tokens: None,
                cached_tokens: None,
                completion_tokens: None,
                marks,
            });
            let cuts = serde_json::to_value(history.list_cuts()).unwrap();
            assert_eq!(cuts, serde_json::json!(expected));
        };
        check(Marks::INJECTED, &[]);
        check(Marks::FOLDED, &["folded"]);
        check(Marks::TRUNCATED, &["truncated", "folded"]);
        check(Marks::COURSE, &["course"]);
        check(Marks::CLEARED, &["cleared", "course"]);
    }

    #[test]
    fn growth_and_prompts_of_the_newest_generations_are_found() {
        let mut history = History::default();
        for (generation, tokens, prompted) in [(1, 100, false), (2, 900, true), (6, 980, false)] {
            history.add_point(HistoryPoint {
                generation,
                prompt_tokens: Some(tokens),
                cached_tokens: None,
                completion_tokens: None,
                marks: Marks::default().with_mark(Marks::INJECTED, prompted),
            });
        }
        assert_eq!(history.largest_growth(2), 800);
        // Four generations grew by 80 together.
        assert_eq!(history.largest_growth(1), 20);
        assert!(history.has_prompt_after(1) && !history.has_prompt_after(2));
    }

    #[test]
    fn the_stored_history_is_small() {
        let bytes = postcard::to_allocvec(&history(500)).unwrap();
        assert!(bytes.len() < 768, "{}", bytes.len());
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
            let read = postcard::from_bytes::<History>(&bytes).unwrap();
            prop_assert_eq!(read, history);
        }
    }
}
