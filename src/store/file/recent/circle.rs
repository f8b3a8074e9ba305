//! What is known of conversations of one tenant that begin alike.

use std::sync::Arc;

use super::{BESIDE, Generation};
use crate::store::file::{
    read::{AT_ONCE, Pointer, Read},
    row::Place,
};

/// Keys of a circle that is not known whole, and those that it is known not to have.
/// Tests reach it with few.
const SOME: usize = if cfg!(test) { 8 } else { 64 };
const MOST_ABSENT: usize = 1_024;

/// What conversations of one tenant that begin alike have stored.
#[derive(Debug, Default)]
pub(super) struct Circle {
    /// All of its keys are here.
    pub(super) whole: bool,
    /// In the order of their places.
    pub(super) keys: Vec<Pointer>,
    /// Some of those that keys point to.
    pub(super) generations: Vec<(Place, Arc<Generation>)>,
    /// Of a circle that is not whole: what was looked for in vain, in order. Requests that have the same
    /// examples before their question look for the same each time.
    absent: Vec<[u8; 16]>,
}

impl Circle {
    pub(super) fn target(&self, place: &[u8; 16]) -> Option<i64> {
        let found = self.keys.binary_search_by_key(place, |(place, _)| *place);
        found.ok().map(|at| self.keys[at].1)
    }

    /// Whether nothing is there for certain.
    pub(super) fn lacks(&self, place: &[u8; 16]) -> bool {
        let known = self.whole || self.absent.binary_search(place).is_ok();
        known && self.target(place).is_none()
    }

    /// Takes over which keys were read.
    pub(super) fn learn(&mut self, read: &Read) {
        if let Some(near) = &read.near {
            self.whole = true;
            self.keys.clone_from(near);
            self.absent = Vec::new();
            return;
        }
        if self.absent.len() + read.absent.len() > MOST_ABSENT {
            self.absent.clear();
        }
        self.absent.extend(&read.absent);
        self.absent.sort_unstable();
        self.absent.dedup();
    }

    pub(super) fn generation(&self, place: Place) -> Option<&Generation> {
        let mut generations = self.generations.iter();
        let (_, found) = generations.find(|(other, _)| *other == place)?;
        Some(found)
    }

    pub(super) fn point(&mut self, place: [u8; 16], target: i64) {
        if let Ok(at) = self.absent.binary_search(&place) {
            self.absent.remove(at);
        }
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

    /// Forgets the older half and more where it has become too much.
    pub(super) fn thin(&mut self) {
        let most = if self.whole { AT_ONCE } else { SOME };
        if self.keys.len() <= most {
            return;
        }
        self.whole = false;
        let newest = self.generations.len().saturating_sub(SOME / 4);
        self.generations.drain(..newest);
        let Self {
            keys, generations, ..
        } = self;
        keys.retain(|(_, target)| {
            let of = Place::of_target(*target);
            generations
                .iter()
                .any(|(place, _)| of.is_some_and(|(to, _)| to == *place))
        });
    }

    pub(super) fn bytes(&self) -> usize {
        let generations = self.generations.iter();
        let states = generations.map(|(_, it)| BESIDE + it.state.len() + it.orders.len());
        // What they have room for: a circle whose sessions are gone keeps that.
        self.keys.capacity() * size_of::<Pointer>()
            + self.absent.capacity() * size_of::<[u8; 16]>()
            + self.generations.capacity() * size_of::<(Place, Arc<Generation>)>()
            + states.sum::<usize>()
    }
}
