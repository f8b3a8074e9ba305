//! What is known of conversations of one tenant that begin alike.

use std::sync::Arc;

use super::{BESIDE, Generation};
use crate::store::file::{read::Pointer, row::Place};

/// What conversations of one tenant that begin alike have stored.
#[derive(Debug, Default)]
pub(super) struct Circle {
    /// All of its keys are here.
    pub(super) whole: bool,
    /// In the order of their places.
    pub(super) keys: Vec<Pointer>,
    /// Some of those that keys point to.
    pub(super) generations: Vec<(Place, Arc<Generation>)>,
}

impl Circle {
    pub(super) fn target(&self, place: &[u8; 16]) -> Option<i64> {
        let found = self.keys.binary_search_by_key(place, |(place, _)| *place);
        found.ok().map(|at| self.keys[at].1)
    }

    pub(super) fn generation(&self, place: Place) -> Option<&Generation> {
        let mut generations = self.generations.iter();
        let (_, found) = generations.find(|(other, _)| *other == place)?;
        Some(found)
    }

    pub(super) fn point(&mut self, place: [u8; 16], target: i64) {
        match self.keys.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(at) => self.keys[at].1 = target,
            Err(at) => self.keys.insert(at, (place, target)),
        }
    }

    pub(super) fn put(&mut self, place: Place, generation: Arc<Generation>) {
        self.generations.retain(|(other, _)| *other != place);
        self.generations.push((place, generation));
    }

    pub(super) fn remove(&mut self, place: Place) {
        let points = |target| Place::of_target(target).is_some_and(|(to, _)| to == place);
        self.keys.retain(|(_, target)| !points(*target));
        self.generations.retain(|(other, _)| *other != place);
    }

    /// A generation without a key is not found any more.
    pub(super) fn forget_unnamed(&mut self) {
        let Self {
            keys, generations, ..
        } = self;
        generations.retain(|(place, _)| {
            let mut targets = keys.iter().map(|(_, target)| Place::of_target(*target));
            targets.any(|target| target.is_some_and(|(to, _)| to == *place))
        });
    }

    pub(super) fn bytes(&self) -> usize {
        let generations = self.generations.iter();
        let states = generations.map(|(_, it)| BESIDE + it.state.len() + it.orders.len());
        // What they have room for: a circle whose sessions are gone keeps that.
        self.keys.capacity() * size_of::<Pointer>()
            + self.generations.capacity() * size_of::<(Place, Arc<Generation>)>()
            + states.sum::<usize>()
    }
}
