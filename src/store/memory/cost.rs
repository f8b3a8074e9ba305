//! What a session costs in memory, counted at the worst: maps just grown, the allocator's share
//! included. An upper bound is what a limit needs.

use std::mem::size_of;

use super::{
    record::{Generation, SessionRecord},
    session_table::KeyPointer,
};
use crate::store::{Account, SessionId};

/// Bytes an allocation takes beside what was asked for.
const ALLOCATION: usize = 16;

/// One session without its generations: its record, its id, its place in the order of use.
pub(super) const SESSION: usize = size_of::<SessionRecord>()
    + 3 * size_of::<usize>()
    + ALLOCATION
    + slot_bytes(2 * size_of::<usize>())
    + slot_bytes(size_of::<((Account, SessionId), u32)>())
    + ALLOCATION;

/// One generation with a state of so many bytes, and its three keys.
pub(super) const fn generation_cost(state: usize) -> usize {
    size_of::<Generation>() + ALLOCATION + state + 3 * slot_bytes(size_of::<KeyPointer>())
}

/// Orders of so many bytes.
pub(super) const fn commands_cost(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => ALLOCATION + bytes,
    }
}

/// A hash map's slot: a table that has just grown is seven sixteenths full, and each slot has one
/// byte beside it.
const fn slot_bytes(entry: usize) -> usize {
    (entry + 1) * 16 / 7
}
