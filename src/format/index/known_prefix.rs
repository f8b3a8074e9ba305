//! The known prefix of a list: entries that the same account has sent before at the same place. They are not read again.
//!
//! An agent sends every message of its last request again, and a few more. What the index says of an entry follows from
//! the bytes of the list up to its end, and from what the index has of the body before the list. So where both are the
//! same, the index of these entries is copied. Spans, sizes and digests are kept, never a text.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;
use memchr::memmem;
use parking_lot::Mutex;
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

use super::indexing::{IndexFailure, check_item_count};
use crate::{
    conversation::{Block, Call, Conversation, Format, Item, Medium},
    json::{
        scan::{JsonScanner, Span},
        text::TextSizes,
    },
};

/// Smaller bodies are read as fast as their prefix is looked up.
const MIN_BODY: usize = 8 << 10;
/// Entries that are always read. Their digest finds the rest of the prefix.
const FIRST_ENTRIES: usize = 2;
/// Bytes of all prefixes. The least recently used one goes first.
const MAX_BYTES: usize = 16 << 20;
/// Bytes of one prefix; a longer one is not kept.
const MAX_PREFIX_BYTES: usize = MAX_BYTES / 4;
/// Bytes around one prefix: its places in the map and in the list of uses, and what the allocator adds.
const OVERHEAD_BYTES: usize = 256;
/// Idle prefixes that one request drops at most, so that none pays for all.
const MAX_DROPPED: usize = 64;
/// A prefix that was not used for so long goes when another one is looked up or kept.
const MAX_IDLE: Duration = Duration::from_secs(600);
/// Keys of cache markers. A client moves its markers on, so that the next request spells an entry with one in another way.
const MARKER_KEYS: [&[u8]; 2] = [b"cache_control", b"prompt_cache_breakpoint"];

/// The account that sent a body, and the prefixes that may be known of it. `None`: the whole list is read.
pub type PrefixesOfAccount<'a> = Option<(&'a KnownPrefixes, [u8; 16])>;

/// The known prefixes of all accounts, in memory only.
pub struct KnownPrefixes {
    kept: Mutex<KeptPrefixes>,
    /// Random, so that digests cannot be computed elsewhere.
    seed: u64,
}

struct KeptPrefixes {
    /// With the time when each was used last.
    prefixes: LruCache<PrefixKey, (Arc<KnownPrefix>, Instant)>,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PrefixKey {
    account: [u8; 16],
    format: Format,
    /// Of the first entries.
    digest: u128,
}

/// How far a body is indexed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    byte: usize,
    items: usize,
    calls: usize,
    blocks: usize,
    media: usize,
}

impl Progress {
    const fn new(byte: usize, found: &Conversation) -> Self {
        Self {
            byte,
            items: found.items.len(),
            calls: found.calls.len(),
            blocks: found.blocks.len(),
            media: found.media.len(),
        }
    }
}

/// The index of the entries behind the first ones.
struct KnownPrefix {
    first_end: Progress,
    end: Progress,
    /// Of the bytes between.
    digest: u128,
    /// See [`ListIndexer::carried_state`].
    carried: u32,
    items: Vec<Item>,
    calls: Vec<Call>,
    blocks: Vec<Block>,
    media: Vec<Medium>,
}

/// Bytes of the index between two places.
const fn index_bytes(from: Progress, to: Progress) -> usize {
    size_of::<KnownPrefix>()
        + OVERHEAD_BYTES
        + (to.items - from.items) * size_of::<Item>()
        + (to.calls - from.calls) * size_of::<Call>()
        + (to.blocks - from.blocks) * size_of::<Block>()
        // A medium may have sizes behind a pointer.
        + (to.media - from.media) * (size_of::<Medium>() + size_of::<TextSizes>())
}

impl KnownPrefix {
    fn copy_into(&self, found: &mut Conversation) {
        found.items.extend_from_slice(&self.items);
        found.calls.extend_from_slice(&self.calls);
        found.blocks.extend_from_slice(&self.blocks);
        found.media.extend_from_slice(&self.media);
    }
}

impl Default for KnownPrefixes {
    fn default() -> Self {
        Self {
            kept: Mutex::new(KeptPrefixes {
                prefixes: LruCache::unbounded(),
                bytes: 0,
            }),
            seed: RandomState::new().hash_one(0),
        }
    }
}

impl KnownPrefixes {
    fn find(&self, key: &PrefixKey) -> Option<Arc<KnownPrefix>> {
        let mut kept = self.kept.lock();
        let found = kept.prefixes.get_mut(key);
        let found = found.map(|(prefix, used)| {
            *used = Instant::now();
            Arc::clone(prefix)
        });
        let idle = kept.take_excess();
        drop(kept);
        // Freed without the lock.
        drop(idle);
        found
    }

    fn keep(&self, key: PrefixKey, prefix: KnownPrefix) {
        let mut kept = self.kept.lock();
        kept.bytes += index_bytes(prefix.first_end, prefix.end);
        let new = (Arc::new(prefix), Instant::now());
        let before = kept.prefixes.put(key, new);
        if let Some((before, _)) = &before {
            kept.bytes -= index_bytes(before.first_end, before.end);
        }
        let excess = kept.take_excess();
        drop(kept);
        drop((before, excess));
    }
}

impl KeptPrefixes {
    /// Takes out what is idle or too much, the least recently used first.
    fn take_excess(&mut self) -> Vec<Arc<KnownPrefix>> {
        let mut taken = Vec::new();
        while let Some((_, (_, used))) = self.prefixes.peek_lru()
            && (self.bytes > MAX_BYTES || taken.len() < MAX_DROPPED && used.elapsed() > MAX_IDLE)
            && let Some((_, (oldest, _))) = self.prefixes.pop_lru()
        {
            self.bytes -= index_bytes(oldest.first_end, oldest.end);
            taken.push(oldest);
        }
        taken
    }
}

/// Looks up the known prefix of one list while that is read, and keeps what was read of it.
pub(in crate::format) struct PrefixMemory<'a> {
    prefixes: PrefixesOfAccount<'a>,
    /// Entries that were read; those that were copied count as one.
    entries: usize,
    /// The first byte of the first entry.
    first_start: usize,
    /// Where the entries behind the first ones begin, and the key of these.
    first_end: Option<(PrefixKey, Progress)>,
    /// The end of the last entry whose index is to be kept, and the state that it leaves.
    end: Option<(Progress, u32)>,
    /// The end of what was copied, and its digest.
    copied: Option<(usize, Box<Xxh3>)>,
    /// The first byte that was not looked at for markers.
    unsearched: usize,
    /// No more entries are kept.
    is_closed: bool,
}

impl<'a> PrefixMemory<'a> {
    pub(in crate::format) fn new(prefixes: PrefixesOfAccount<'a>, body: &[u8]) -> Self {
        Self {
            prefixes: prefixes.filter(|_| body.len() >= MIN_BODY),
            entries: 0,
            first_start: 0,
            first_end: None,
            end: None,
            copied: None,
            unsearched: 0,
            is_closed: false,
        }
    }

    /// Behind the first entries, copies the index of the known ones, and moves `scan` behind them. Returns the state that they
    /// leave.
    fn copy_known(&mut self, scan: &mut JsonScanner<'_>, found: &mut Conversation) -> Option<u32> {
        let (prefixes, account) = self.prefixes?;
        scan.peek();
        if self.entries == 0 {
            self.first_start = scan.position();
        }
        if self.entries != FIRST_ENTRIES {
            return None;
        }
        let first_end = Progress::new(scan.position(), found);
        let key = PrefixKey {
            account,
            format: found.format,
            digest: xxh3_128_with_seed(
                &found.body[self.first_start..first_end.byte],
                prefixes.seed,
            ),
        };
        self.first_end = Some((key, first_end));
        self.unsearched = first_end.byte;
        self.is_closed = !found.links.is_empty() || !found.annotations.is_empty();
        if self.is_closed {
            return None;
        }
        let known = prefixes.find(&key)?;
        if known.first_end != first_end {
            return None;
        }
        let bytes = found.body.get(first_end.byte..known.end.byte)?;
        let mut digest = Box::new(Xxh3::with_seed(prefixes.seed));
        digest.update(bytes);
        if digest.digest128() != known.digest {
            return None;
        }
        known.copy_into(found);
        scan.skip_to(known.end.byte);
        self.entries += 1;
        self.end = Some((known.end, known.carried));
        self.copied = Some((known.end.byte, digest));
        self.unsearched = known.end.byte;
        Some(known.carried)
    }

    /// Notes that an entry was read up to this byte. `carried`: see [`ListIndexer::carried_state`].
    fn note_entry(&mut self, at: usize, found: &Conversation, carried: Option<u32>) {
        self.entries += 1;
        if self.first_end.is_none() || self.is_closed {
            return;
        }
        let read = &found.body[std::mem::replace(&mut self.unsearched, at)..at];
        let has_marker = || {
            let mut keys = MARKER_KEYS.iter();
            keys.any(|key| memmem::find(read, key).is_some())
        };
        // Links refer to other entries, and annotations are counted with the whole body.
        self.is_closed = !found.links.is_empty() || !found.annotations.is_empty() || has_marker();
        if !self.is_closed
            && let Some(carried) = carried
        {
            self.end = Some((Progress::new(at, found), carried));
        }
    }

    /// Keeps the index of the list, up to the last entry that may be kept.
    fn keep_prefix(&mut self, found: &Conversation) {
        let (Some((prefixes, _)), Some((key, first_end)), Some((end, carried))) =
            (self.prefixes, self.first_end, self.end)
        else {
            return;
        };
        let copied = self.copied.take();
        let is_known = copied.as_ref().is_some_and(|(to, _)| *to == end.byte);
        if is_known || index_bytes(first_end, end) > MAX_PREFIX_BYTES {
            return;
        }
        let begin = || (first_end.byte, Box::new(Xxh3::with_seed(prefixes.seed)));
        let (from, mut digest) = copied.unwrap_or_else(begin);
        digest.update(&found.body[from..end.byte]);
        let prefix = KnownPrefix {
            first_end,
            end,
            digest: digest.digest128(),
            carried,
            items: found.items[first_end.items..end.items].to_vec(),
            calls: found.calls[first_end.calls..end.calls].to_vec(),
            blocks: found.blocks[first_end.blocks..end.blocks].to_vec(),
            media: found.media[first_end.media..end.media].to_vec(),
        };
        prefixes.keep(key, prefix);
    }
}

/// An indexer of a format, as far as it reads the list of a body.
pub(in crate::format) trait ListIndexer<'a> {
    fn parts(&mut self) -> (&mut PrefixMemory<'a>, &mut Conversation);

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure>;

    /// What reading the next entries needs of those before, beside the index, as a number. `None`: a number does not say it, so
    /// that no prefix ends here.
    fn carried_state(&self) -> Option<u32> {
        Some(0)
    }

    /// Goes on as if the entries that left this state had been read.
    fn resume_with(&mut self, _carried: u32) {}

    /// Reads the list, except for its known prefix. Returns its span.
    fn read_list(&mut self, scan: &mut JsonScanner<'a>) -> Result<Span, IndexFailure> {
        let list = scan.walk_array(|scan| {
            let (memory, found) = self.parts();
            if let Some(carried) = memory.copy_known(scan, found) {
                self.resume_with(carried);
                return check_item_count(self.parts().1, 0);
            }
            self.read_entry(scan)?;
            let carried = self.carried_state();
            let (memory, found) = self.parts();
            memory.note_entry(scan.position(), found, carried);
            Ok(())
        })?;
        let (memory, found) = self.parts();
        memory.keep_prefix(found);
        Ok(list)
    }
}

#[cfg(test)]
mod tests;
