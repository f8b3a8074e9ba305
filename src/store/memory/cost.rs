//! What a session costs in memory, counted at the worst: maps just grown, the allocator's share
//! included. An upper bound is what a limit needs.

use std::mem::size_of;

use super::{
    held::Place,
    record::{Generation, Record},
};
use crate::store::{Account, SessionId};

/// Bytes an allocation takes beside what was asked for.
const ALLOCATION: usize = 16;

/// One session without its generations: its record, its id, its place in the order of use.
pub(super) const SESSION: usize = size_of::<Record>()
    + 3 * size_of::<usize>()
    + ALLOCATION
    + slot(2 * size_of::<usize>())
    + slot(size_of::<((Account, SessionId), u32)>())
    + ALLOCATION;

/// One generation with a state of so many bytes, and its three keys.
pub(super) const fn generation(state: usize) -> usize {
    size_of::<Generation>() + ALLOCATION + state + 3 * slot(size_of::<Place>())
}

/// Orders of so many bytes.
pub(super) const fn orders(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => ALLOCATION + bytes,
    }
}

/// A hash map's slot: a table that has just grown is seven sixteenths full, and each slot has one
/// byte beside it.
const fn slot(entry: usize) -> usize {
    (entry + 1) * 16 / 7
}
