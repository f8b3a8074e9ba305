//! The begin of a list that an earlier body of the same client had too: it is not read again.
//!
//! An agent sends every message of its last request again, and a few more. What the index says of an entry follows from
//! the bytes of the list up to its end, and from what stands in the index before the list. So where both are the same, the
//! index of those entries is copied. Kept are spans, sizes and digests, never a text, and never for another client.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;
use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

use super::indexing::{IndexFailure, check_item_count};
use crate::{
    conversation::{Block, Call, Conversation, Format, Item, Medium},
    json::scan::{JsonScanner, Span},
};

/// Smaller bodies are read as fast as their begin is looked up.
const MIN_BODY: usize = 8 << 10;
/// Entries that are always read: lists that begin with the same ones are of one conversation.
const FIRST_ENTRIES: usize = 2;
/// Bytes of all that is kept. The least recently used goes first.
const MAX_BYTES: usize = 32 << 20;
/// What was not used for so long goes with the next request.
const MAX_IDLE: Duration = Duration::from_mins(10);

/// The begins of lists that clients have sent. Kept in memory only.
pub struct KnownLists {
    kept: Mutex<KeptLists>,
    /// Random, so that nobody can make two lists with one digest.
    seed: u64,
}

/// The lists that are known, and who has sent the body. `None`: the whole list is read.
pub type KnownOf<'a> = Option<(&'a KnownLists, [u8; 16])>;

struct KeptLists {
    lists: LruCache<ListKey, KnownList>,
    bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ListKey {
    owner: [u8; 16],
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

/// The index of entries behind the first ones.
struct KnownList {
    begin: Progress,
    end: Progress,
    /// Of the bytes between.
    digest: u128,
    /// See [`ListIndexer::carried_state`].
    carried: u32,
    items: Vec<Item>,
    calls: Vec<Call>,
    blocks: Vec<Block>,
    media: Vec<Medium>,
    used: Instant,
}

impl KnownList {
    fn new_empty(begin: Progress) -> Self {
        Self {
            begin,
            end: begin,
            digest: 0,
            carried: 0,
            items: Vec::new(),
            calls: Vec::new(),
            blocks: Vec::new(),
            media: Vec::new(),
            used: Instant::now(),
        }
    }

    const fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.items.capacity() * size_of::<Item>()
            + self.calls.capacity() * size_of::<Call>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.media.capacity() * size_of::<Medium>()
    }

    /// Takes over what was indexed from its end to there.
    fn extend_to(&mut self, end: Progress, found: &Conversation) {
        let from = self.end;
        append(&mut self.items, &found.items[from.items..end.items]);
        append(&mut self.calls, &found.calls[from.calls..end.calls]);
        append(&mut self.blocks, &found.blocks[from.blocks..end.blocks]);
        append(&mut self.media, &found.media[from.media..end.media]);
        self.end = end;
    }

    fn copy_into(&self, found: &mut Conversation) {
        found.items.extend_from_slice(&self.items);
        found.calls.extend_from_slice(&self.calls);
        found.blocks.extend_from_slice(&self.blocks);
        found.media.extend_from_slice(&self.media);
    }
}

/// Appends entries, with less room to spare than a vector takes by itself.
fn append<T: Clone>(kept: &mut Vec<T>, more: &[T]) {
    if kept.capacity() - kept.len() < more.len() {
        kept.reserve_exact(more.len() + kept.len() / 8);
    }
    kept.extend_from_slice(more);
}

impl Default for KnownLists {
    fn default() -> Self {
        Self {
            kept: Mutex::new(KeptLists {
                lists: LruCache::unbounded(),
                bytes: 0,
            }),
            seed: RandomState::new().hash_one(0),
        }
    }
}

impl KeptLists {
    fn remove(&mut self, key: &ListKey) -> Option<KnownList> {
        let list = self.lists.pop(key)?;
        self.bytes -= list.bytes();
        Some(list)
    }

    /// Keeps a list, and drops others until all have room.
    fn put(&mut self, key: ListKey, list: KnownList) {
        self.bytes += list.bytes();
        self.lists.put(key, list);
        while let Some((_, oldest)) = self.lists.peek_lru()
            && (self.bytes > MAX_BYTES || oldest.used.elapsed() > MAX_IDLE)
            && let Some((_, oldest)) = self.lists.pop_lru()
        {
            self.bytes -= oldest.bytes();
        }
    }
}

/// Looks up the begin of one list, and remembers it.
pub(in crate::format) struct ListMemory<'a> {
    known: KnownOf<'a>,
    /// Entries that were read or copied.
    entries: usize,
    /// The first byte of the first entry.
    start: usize,
    /// The end of the first entries, if others follow.
    begin: Option<(ListKey, Progress)>,
    /// The end of the last entry whose index is to be kept, and the state that it leaves.
    end: Option<(Progress, u32)>,
    /// Blocks that were looked at.
    blocks: usize,
    /// The end of what was copied, and its digest.
    copied: Option<(usize, Xxh3)>,
    /// No more entries are kept: the next request may spell them in another way, or others refer to them.
    is_closed: bool,
}

impl<'a> ListMemory<'a> {
    pub(in crate::format) fn new(known: KnownOf<'a>, body: &[u8]) -> Self {
        Self {
            known: known.filter(|_| body.len() >= MIN_BODY),
            entries: 0,
            start: 0,
            begin: None,
            end: None,
            blocks: 0,
            copied: None,
            is_closed: false,
        }
    }

    /// Copies the index of the entries behind the first ones, and moves `scan` behind them. Returns the state that they leave.
    fn skip_known(&mut self, scan: &mut JsonScanner<'_>, found: &mut Conversation) -> Option<u32> {
        let (known, owner) = self.known?;
        scan.peek();
        if self.entries == 0 {
            self.start = scan.position();
        }
        if self.entries != FIRST_ENTRIES {
            return None;
        }
        let begin = Progress::new(scan.position(), found);
        let key = ListKey {
            owner,
            format: found.format,
            digest: xxh3_128_with_seed(&found.body[self.start..begin.byte], known.seed),
        };
        self.begin = Some((key, begin));
        self.blocks = begin.blocks;
        let find = |list: &KnownList| (list.begin == begin).then_some((list.end, list.digest));
        let (end, known_digest) = known.kept.lock().lists.peek(&key).and_then(find)?;
        let mut digest = Xxh3::with_seed(known.seed);
        digest.update(found.body.get(begin.byte..end.byte)?);
        if digest.digest128() != known_digest {
            return None;
        }
        let mut kept = known.kept.lock();
        let list = kept.lists.get_mut(&key);
        // Another request may have changed it in the meantime.
        let list = list.filter(|it| find(it) == Some((end, known_digest)))?;
        list.used = Instant::now();
        list.copy_into(found);
        let carried = list.carried;
        drop(kept);
        scan.go_on_at(end.byte);
        self.blocks = end.blocks;
        self.end = Some((end, carried));
        self.copied = Some((end.byte, digest));
        self.entries += 1;
        Some(carried)
    }

    /// Notes that an entry was read up to this byte. `carried`: see [`ListIndexer::carried_state`].
    fn note_entry(
        &mut self,
        at: usize,
        found: &Conversation,
        carried: Option<u32>,
        has_markers: bool,
    ) {
        self.entries += 1;
        if self.begin.is_none() || self.is_closed {
            return;
        }
        // Links refer to other entries, and a client moves its cache markers on.
        self.is_closed = !found.links.is_empty()
            || !found.annotations.is_empty()
            || has_markers && found.blocks[self.blocks..].iter().any(|it| it.marked);
        self.blocks = found.blocks.len();
        if !self.is_closed
            && let Some(carried) = carried
        {
            self.end = Some((Progress::new(at, found), carried));
        }
    }

    /// Keeps the index of the list.
    fn remember_list(&mut self, found: &Conversation) {
        let (Some((known, _)), Some((key, begin)), Some((end, carried))) =
            (self.known, self.begin, self.end)
        else {
            return;
        };
        let copied = self.copied.take();
        let copied_to = copied.as_ref().map(|(to, _)| *to);
        if copied_to == Some(end.byte) {
            return;
        }
        let (from, mut digest) = copied.unwrap_or((begin.byte, Xxh3::with_seed(known.seed)));
        digest.update(&found.body[from..end.byte]);
        let mut kept = known.kept.lock();
        let before = kept.remove(&key);
        let before = before.filter(|it| it.begin == begin && Some(it.end.byte) == copied_to);
        let mut list = before.unwrap_or_else(|| KnownList::new_empty(begin));
        list.extend_to(end, found);
        list.digest = digest.digest128();
        (list.carried, list.used) = (carried, Instant::now());
        kept.put(key, list);
    }
}

/// An indexer of a format, as far as it reads the list of a body.
pub(in crate::format) trait ListIndexer<'a> {
    fn parts(&mut self) -> (&mut ListMemory<'a>, &mut Conversation);

    fn read_entry(&mut self, scan: &mut JsonScanner<'a>) -> Result<(), IndexFailure>;

    /// What is marked mostly has a cache marker.
    const HAS_MARKERS: bool = true;

    /// What the next entries need of those before, beside the index. `None`: more than a number.
    fn carried_state(&self) -> Option<u32> {
        Some(0)
    }

    /// Goes on behind entries that left this state.
    fn resume_with(&mut self, _carried: u32) {}

    /// Reads the list, but for what is known of it. Returns its span.
    fn read_list(&mut self, scan: &mut JsonScanner<'a>) -> Result<Span, IndexFailure> {
        let list = scan.walk_array(|scan| {
            let (memory, found) = self.parts();
            if let Some(carried) = memory.skip_known(scan, found) {
                self.resume_with(carried);
                return check_item_count(self.parts().1, 0);
            }
            self.read_entry(scan)?;
            let carried = self.carried_state();
            let (memory, found) = self.parts();
            memory.note_entry(scan.position(), found, carried, Self::HAS_MARKERS);
            Ok(())
        })?;
        let (memory, found) = self.parts();
        memory.remember_list(found);
        Ok(list)
    }
}

#[cfg(test)]
mod tests;
