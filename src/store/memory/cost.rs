//! An upper bound of a session's memory: with the allocator's overhead, and with maps that have just grown.

use std::mem::size_of;

use super::{
    record::{Generation, SessionRecord},
    session_table::KeyPointer,
};
use crate::store::{Account, SessionId};

/// Overhead of an allocation in bytes.
const ALLOCATION: usize = 16;

/// One session without its generations: its record, its id and its entry in the order of use.
pub(super) const SESSION: usize = size_of::<SessionRecord>()
    + 3 * size_of::<usize>()
    + ALLOCATION
    + slot_bytes(2 * size_of::<usize>())
    + slot_bytes(size_of::<((Account, SessionId), u32)>())
    + ALLOCATION;

/// One generation with its state and its three keys.
pub(super) const fn generation_cost(state_bytes: usize) -> usize {
    size_of::<Generation>() + ALLOCATION + state_bytes + 3 * slot_bytes(size_of::<KeyPointer>())
}

pub(super) const fn commands_cost(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => ALLOCATION + bytes,
    }
}

/// A hash map's slot, which has one extra byte. A table that has just grown is seven sixteenths full.
const fn slot_bytes(entry: usize) -> usize {
    (entry + 1) * 16 / 7
}
