//! The sessions that are shown: searched, sorted, and one of them chosen.
//!
//! Nothing is drawn here, and nothing read.

use std::{cmp::Ordering, collections::HashMap};

use serde::Deserialize;

use crate::health::Level;

/// Rows kept at one time; the ones that were quiet for longest go first.
const MAX_SESSIONS: usize = 100_000;

/// A session as the API's list tells it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) provider: String,
    pub(super) health: Level,
    pub(super) generations: u32,
    pub(super) prompt_tokens: Option<u32>,
    pub(super) context_limit: Option<u32>,
    pub(super) optimal_max_tokens: Option<u32>,
    pub(super) critical_max_tokens: Option<u32>,
    pub(super) hard_util: Option<f64>,
    pub(super) course: u32,
    pub(super) countdown: Option<u32>,
    pub(super) compacting: bool,
    /// Seconds since 1970.
    pub(super) updated_s: u64,
}

/// What the list is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// The newest first.
    #[default]
    Age,
    /// The fullest first; what is unknown last.
    Fullness,
    /// The largest prompt first.
    Tokens,
    /// By name.
    Model,
}

/// All sessions, and which of them are looked at.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    sessions: HashMap<String, Session>,
    /// Ids in the order that they are shown in.
    shown: Vec<String>,
    sort: Sort,
    reversed: bool,
    search: String,
    chosen: Option<String>,
}

impl Sort {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Fullness => "fullness",
            Self::Tokens => "tokens",
            Self::Model => "model",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Age => Self::Fullness,
            Self::Fullness => Self::Tokens,
            Self::Tokens => Self::Model,
            Self::Model => Self::Age,
        }
    }

    fn compare(self, one: &Session, other: &Session) -> Ordering {
        let newest = || other.updated_s.cmp(&one.updated_s);
        let known = |it: &Session| it.hard_util.unwrap_or(-1.0);
        let first = match self {
            Self::Age => newest(),
            Self::Fullness => known(other).total_cmp(&known(one)),
            Self::Tokens => other.prompt_tokens.cmp(&one.prompt_tokens),
            Self::Model => (&one.model, &one.provider).cmp(&(&other.model, &other.provider)),
        };
        first.then_with(newest).then_with(|| one.id.cmp(&other.id))
    }
}

impl Fleet {
    /// Takes a list in the place of all that was known.
    pub(super) fn replace(&mut self, sessions: Vec<Session>) {
        let all = sessions.into_iter();
        self.sessions = all.map(|session| (session.id.clone(), session)).collect();
        self.arrange();
    }

    /// Takes news of sessions.
    pub(super) fn update(&mut self, news: impl IntoIterator<Item = Session>) {
        for session in news {
            self.sessions.insert(session.id.clone(), session);
        }
        while self.sessions.len() > MAX_SESSIONS {
            let oldest = self.sessions.values().min_by_key(|it| it.updated_s);
            let Some(oldest) = oldest.map(|it| it.id.clone()) else {
                break;
            };
            self.sessions.remove(&oldest);
        }
        self.arrange();
    }

    pub(super) fn next_sort(&mut self) {
        self.sort = self.sort.next();
        self.arrange();
    }

    pub(super) fn reverse(&mut self) {
        self.reversed = !self.reversed;
        self.arrange();
    }

    /// Shows only those whose id, model, provider or level holds the words.
    pub(super) fn search(&mut self, words: &str) {
        words.clone_into(&mut self.search);
        self.arrange();
    }

    pub(super) fn searched(&self) -> &str {
        &self.search
    }

    pub(super) const fn sorted(&self) -> (Sort, bool) {
        (self.sort, self.reversed)
    }

    pub(super) fn count(&self) -> usize {
        self.sessions.len()
    }

    /// How many there are of a level, whatever is searched for.
    pub(super) fn of_level(&self, level: Level) -> usize {
        let all = self.sessions.values();
        all.filter(|session| session.health == level).count()
    }

    /// Those that are shown, in their order.
    pub(super) fn shown(&self) -> impl ExactSizeIterator<Item = &Session> {
        self.shown.iter().map(|id| &self.sessions[id])
    }

    /// The place of the chosen one among the shown.
    pub(super) fn chosen(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.shown.iter().position(|id| id == chosen)
    }

    /// Chooses the one so many places further down, or up; the ends are ends.
    pub(super) fn step(&mut self, by: isize) {
        let last = self.shown.len().saturating_sub(1);
        let at = self
            .chosen()
            .map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.chosen = self.shown.get(at).cloned();
    }

    fn arrange(&mut self) {
        let words: Vec<String> = self
            .search
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let mut shown: Vec<&Session> = self
            .sessions
            .values()
            .filter(|session| fits(session, &words))
            .collect();
        shown.sort_unstable_by(|one, other| match self.reversed {
            false => self.sort.compare(one, other),
            true => self.sort.compare(other, one),
        });
        self.shown = shown.into_iter().map(|it| it.id.clone()).collect();
    }
}

fn fits(session: &Session, words: &[String]) -> bool {
    let health = session.health.word();
    let texts = [&*session.id, &*session.model, &*session.provider, health];
    words
        .iter()
        .all(|word| texts.iter().any(|it| it.to_lowercase().contains(word)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cli::top) fn session(id: &str, tokens: Option<u32>, updated_s: u64) -> Session {
        let level = match tokens {
            None => Level::Unknown,
            Some(0..=600) => Level::Healthy,
            Some(601..=900) => Level::Caution,
            Some(_) => Level::Critical,
        };
        Session {
            id: id.into(),
            model: format!("model-{id}"),
            provider: "up".into(),
            health: level,
            generations: 3,
            prompt_tokens: tokens,
            context_limit: tokens.map(|_| 1_000),
            optimal_max_tokens: tokens.map(|_| 600),
            critical_max_tokens: tokens.map(|_| 900),
            hard_util: tokens.map(|tokens| f64::from(tokens) / 1_000.0),
            course: 1,
            countdown: None,
            compacting: false,
            updated_s,
        }
    }

    fn fleet() -> Fleet {
        let mut fleet = Fleet::default();
        fleet.replace(vec![
            session("a", Some(300), 10),
            session("b", None, 30),
            session("c", Some(950), 20),
        ]);
        fleet
    }

    fn ids(fleet: &Fleet) -> String {
        fleet.shown().map(|it| it.id.as_str()).collect()
    }

    #[test]
    fn it_is_sorted_by_each_of_them() {
        let mut fleet = fleet();
        for expected in ["bca", "cab", "cab", "abc", "bca"] {
            assert_eq!(ids(&fleet), expected, "{:?}", fleet.sorted());
            fleet.next_sort();
        }
        fleet.reverse();
        assert_eq!(ids(&fleet), "bac");
    }

    #[test]
    fn every_word_of_a_search_must_be_somewhere() {
        let mut fleet = fleet();
        for (search, expected) in [
            ("UP", "bca"),
            ("critical", "c"),
            ("model-a", "a"),
            ("up model-b unknown", "b"),
            ("up nobody", ""),
        ] {
            fleet.search(search);
            assert_eq!(ids(&fleet), expected, "{search}");
        }
        assert_eq!((fleet.count(), fleet.of_level(Level::Healthy)), (3, 1));
    }

    #[test]
    fn the_chosen_one_stays_chosen_wherever_it_goes() {
        let mut fleet = fleet();
        assert_eq!(fleet.chosen(), None);
        fleet.step(1);
        assert_eq!(fleet.chosen(), Some(0));
        fleet.step(1);
        fleet.update([session("a", Some(301), 40), session("d", Some(1), 50)]);
        assert_eq!(ids(&fleet), "dabc");
        assert_eq!(fleet.chosen(), Some(3));
        fleet.step(5);
        assert_eq!(fleet.chosen(), Some(3));
        fleet.step(-9);
        assert_eq!(fleet.chosen(), Some(0));
        fleet.search("nobody");
        assert_eq!(fleet.chosen(), None);
        fleet.step(1);
        assert_eq!(fleet.chosen(), None);
    }
}
