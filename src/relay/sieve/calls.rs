//! The calls of one answer: which fragments belong together, and whose call each is.
//!
//! A call is ours or the client's once its name cannot become another one: a name that is no
//! prefix of ours is the client's at once, any other is decided by the arguments that follow it,
//! by the next call, or by the end. Arguments are kept of our calls only, and bounded.

use crate::{
    json::{
        scan::{Kind, Span},
        text,
    },
    relay::Own,
    wire::chat::answer::Fragment,
};

/// Calls followed of one answer; what comes beyond them passes as the client's.
const MAX_CALLS: usize = 1_024;

/// Bytes of arguments kept of one call, and four times that of all of them.
const MAX_ARGUMENTS: usize = 64 << 10;

/// Bytes of a name or an id that are kept.
const MAX_NAME: usize = 1_024;

pub(super) struct Calls {
    /// The names of our tools.
    ours: &'static [&'static str],
    calls: Vec<Call>,
    /// Two calls had the same index, so that indices say nothing of the order.
    shared: bool,
    /// Bytes of arguments kept.
    kept: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Not known yet.
    Open,
    Ours,
    Theirs,
}

struct Call {
    index: Option<u64>,
    id: Vec<u8>,
    name: Vec<u8>,
    arguments: Vec<u8>,
    overlong: bool,
    /// Arguments came after a name.
    argued: bool,
    whose: Whose,
    legacy: bool,
}

impl Calls {
    pub(super) const fn new(ours: &'static [&'static str]) -> Self {
        Self {
            ours,
            calls: Vec::new(),
            shared: false,
            kept: 0,
        }
    }

    /// Takes the fragments of one chunk; gives the number of the call that each belongs to.
    pub(super) fn take(&mut self, json: &[u8], fragments: &[Fragment]) -> Vec<Option<usize>> {
        let mut seen = Vec::with_capacity(fragments.len());
        for fragment in fragments {
            let slot = match self.find(json, fragment, &seen) {
                Some(slot) => Some(slot),
                None => self.open(fragment),
            };
            if let Some(slot) = slot {
                self.add(slot, json, fragment);
                self.decide(slot, false);
            }
            seen.push(slot);
        }
        seen
    }

    /// The call that a fragment goes on with.
    fn find(&self, json: &[u8], fragment: &Fragment, seen: &[Option<usize>]) -> Option<usize> {
        let raw = |span: Span| &json[span.range()];
        let index = fragment.index.map(|(index, _)| index);
        let alike = |call: &Call| call.legacy == fragment.legacy && call.index == index;
        let id = fragment.id.map(|id| raw(id.span));
        let id = id.map(|id| &id[..id.len().min(MAX_NAME)]);
        if (index, id, fragment.name, fragment.legacy) == (None, None, None, false) {
            return self.calls.len().checked_sub(1);
        }
        if let (Some(id), None) = (id, index) {
            let known = |call: &Call| alike(call) && call.id == id;
            if let Some(slot) = self.calls.iter().rposition(known) {
                return Some(slot);
            }
        }
        let slot = self.calls.iter().rposition(alike)?;
        let call = &self.calls[slot];
        let again = match id {
            Some(id) => !call.id.is_empty() && call.id != id,
            // Without ids: two at once that both say their names are two.
            None => fragment.name.is_some() && seen.contains(&Some(slot)) && !call.name.is_empty(),
        };
        // A name after the arguments, and another one, begins another call.
        let renamed = fragment
            .name
            .is_some_and(|name| call.argued && call.name != raw(name.span));
        (!again && (id.is_some() || !renamed)).then_some(slot)
    }

    fn open(&mut self, fragment: &Fragment) -> Option<usize> {
        if self.calls.len() >= MAX_CALLS {
            return None;
        }
        for slot in 0..self.calls.len() {
            if !self.calls[slot].name.is_empty() {
                self.decide(slot, true);
            }
        }
        let index = fragment.index.map(|(index, _)| index);
        self.shared |= self.calls.iter().any(|call| call.index == index);
        self.calls.push(Call {
            index,
            id: Vec::new(),
            name: Vec::new(),
            arguments: Vec::new(),
            overlong: false,
            argued: false,
            whose: Whose::Open,
            legacy: fragment.legacy,
        });
        Some(self.calls.len() - 1)
    }

    fn add(&mut self, slot: usize, json: &[u8], fragment: &Fragment) {
        let call = &mut self.calls[slot];
        if let Some(id) = fragment.id.filter(|_| call.id.is_empty()) {
            let id = &json[id.span.range()];
            call.id.extend_from_slice(&id[..id.len().min(MAX_NAME)]);
        }
        if let Some(name) = fragment.name.filter(|_| call.whose == Whose::Open) {
            // Some providers say the whole name in every fragment.
            let name = &json[name.span.range()];
            let again =
                self.ours.iter().any(|ours| ours.as_bytes() == call.name) && call.name == name;
            if !again {
                let room = MAX_NAME.saturating_sub(call.name.len());
                call.name.extend_from_slice(&name[..name.len().min(room)]);
            }
        }
        let Some((span, kind)) = fragment.arguments else {
            return;
        };
        let raw = match kind {
            Kind::String => json[span.start as usize + 1..span.end as usize - 1].to_vec(),
            Kind::Null => return,
            // Some providers give the object itself.
            _ => text::escape(&String::from_utf8_lossy(&json[span.range()])).into_bytes(),
        };
        call.argued |= !call.name.is_empty() && !raw.is_empty();
        if call.whose == Whose::Theirs {
            return;
        }
        let room = MAX_ARGUMENTS.saturating_sub(call.arguments.len());
        let room = room.min((4 * MAX_ARGUMENTS).saturating_sub(self.kept));
        call.overlong |= raw.len() > room;
        let raw = &raw[..raw.len().min(room)];
        self.kept += raw.len();
        call.arguments.extend_from_slice(raw);
    }

    fn decide(&mut self, slot: usize, last: bool) {
        let call = &mut self.calls[slot];
        if call.whose != Whose::Open {
            return;
        }
        let mut ours = self.ours.iter().map(|name| name.as_bytes());
        call.whose = if !ours.clone().any(|name| name.starts_with(&call.name)) {
            Whose::Theirs
        } else if last || call.argued {
            if ours.any(|name| name == call.name) {
                Whose::Ours
            } else {
                Whose::Theirs
            }
        } else {
            return;
        };
        if call.whose == Whose::Theirs {
            self.kept -= std::mem::take(&mut call.arguments).len();
        }
    }

    /// Nothing more comes: whatever is not ours by now is the client's.
    pub(super) fn settle(&mut self) {
        for slot in 0..self.calls.len() {
            self.decide(slot, true);
        }
    }

    /// Whether there are calls of which it is not known yet whose they are.
    pub(super) fn open_ones(&self) -> bool {
        self.calls.iter().any(|call| call.whose == Whose::Open)
    }

    pub(super) fn is_ours(&self, slot: Option<usize>) -> bool {
        slot.is_some_and(|slot| self.calls[slot].whose == Whose::Ours)
    }

    /// The index by which the client knows a call, where that is another than the provider's.
    pub(super) fn renumbered(&self, slot: Option<usize>) -> Option<u64> {
        let index = self.calls[slot?].index?;
        let before = |call: &&Call| call.whose == Whose::Ours && call.index < Some(index);
        let ours = self.calls.iter().filter(before).count() as u64;
        (ours > 0 && !self.shared).then(|| index - ours.min(index))
    }

    /// How many are ours, and the client's.
    pub(super) fn count(&self) -> (u32, u32) {
        let ours = self.calls.iter().filter(|call| call.whose == Whose::Ours);
        let ours = ours.count();
        (ours as u32, (self.calls.len() - ours) as u32)
    }

    /// Our calls; `json` gives the element of a call by its number, where it was kept.
    pub(super) fn own(&self, json: impl Fn(usize) -> Option<String>) -> Vec<Own> {
        let mut theirs = 0;
        let mut own = Vec::new();
        for (slot, call) in self.calls.iter().enumerate() {
            if call.whose != Whose::Ours {
                theirs += 1;
                continue;
            }
            own.push(Own {
                id: decoded(&call.id),
                name: decoded(&call.name),
                arguments: decoded(&call.arguments),
                overlong: call.overlong,
                before: theirs,
                json: json(slot).unwrap_or_else(|| call.json()).into(),
                legacy: call.legacy,
            });
        }
        own
    }
}

impl Call {
    /// The call made anew, where the provider's text of it was not kept.
    fn json(&self) -> String {
        let [id, name, arguments] =
            [&self.id, &self.name, &self.arguments].map(|raw| text::escape(&decoded(raw)));
        let function = format!(r#"{{"name":"{name}","arguments":"{arguments}"}}"#);
        if self.legacy {
            return function;
        }
        format!(r#"{{"id":"{id}","type":"function","function":{function}}}"#)
    }
}

/// The text of what stands between quotes; what has no decoded form is given as it can be.
fn decoded(raw: &[u8]) -> Box<str> {
    let text = text::Walk::new(raw)
        .map(|character| char::from_u32(character.code).unwrap_or(char::REPLACEMENT_CHARACTER));
    text.collect::<String>().into()
}
