//! Distinguishes the user's words from texts that clients put in the user's place, such as `<system-reminder>…`.
//!
//! A message in the user's place is the client's in two cases only. First, it directly follows results and consists of
//! closed elements alone, none of which holds words of the user. Second, it directly follows an answer without calls and
//! begins as clients begin results that they write as texts. Both cases also apply after another message of the client's.
//! The message and those before it decide, never a later message. In doubt, a message is the user's.

mod written_result;

use std::{collections::HashSet, ops::Range};

use smallvec::SmallVec;

pub(crate) use self::written_result::find_result_head;
use super::{Author, BlockKind, Content, Conversation, Item};
use crate::json::text::TextWalk;

/// Elements in which clients put words of the user. An element whose name begins with `user` is one too, unless it is among
/// [`CLIENT_ELEMENTS`]. Capitals, `-` and `_` make no difference.
const USER_ELEMENTS: &str = "answer bash_input channel command_args comment feedback followup \
    followup_message goal human input instruction instructions issue issue_description message new_task objective \
    pr_description prompt query question reply request response slash_command task teammate_message";

/// Elements in which clients put texts of their own: the state of their lists, files and windows, the time, and what their
/// own commands and hooks say. An element whose name ends with `reminder` is one too.
const CLIENT_ELEMENTS: &str = "additional_context additional_data app_context attached_files available_deferred_tools \
    available_skills available_subagent_types background_task bash_stderr bash_stdout changed_files \
    codex_internal_context collaboration_mode command_message context_window current_date current_file current_time \
    diagnostics edited_files editor_context environment_context environment_details environment_info extra_info \
    file_changes files_changed files_edited git_status goal_context hook_context hook_prompt ide_diagnostics \
    ide_opened_file ide_selection ide_state internal_model_context linter_errors local_command_caveat \
    local_command_stderr local_command_stdout modified_files new_diagnostics open_and_recently_viewed_files open_files \
    persisted_output plan_mode post_tool_use_hook project_layout recently_viewed_files recommended_plugins \
    reminder_instructions repo_context runtime_information session_context skill subagent_notification system_info \
    system_information system_notification task_list task_notification task_progress tick timestamp todo todo_list todos \
    token_budget token_usage tool_use_error turn_aborted updated_todos user_environment user_info user_information \
    user_memories user_rules workspace_info";

/// Bytes of the longest name of an element.
const MAX_NAME: usize = 64;
/// Most names that are learnt from one conversation.
const MAX_LEARNT: usize = 256;
/// Most bytes that are searched for the next element of a known name.
const MAX_LOOK: usize = 8 << 10;

type Name = SmallVec<[u8; 32]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementOwner {
    User,
    Client,
}

/// Whose words an element of this name holds; `None` for an unknown name.
fn find_owner(name: &[u8]) -> Option<ElementOwner> {
    let name = normalize_name(name);
    if name.ends_with(b"reminder") || is_in(&name, CLIENT_ELEMENTS) {
        return Some(ElementOwner::Client);
    }
    (name.starts_with(b"user") || is_in(&name, USER_ELEMENTS)).then_some(ElementOwner::User)
}

fn normalize_name(name: &[u8]) -> Name {
    let letters = |byte: &u8| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    name.iter().map(letters).collect()
}

fn is_in(name: &Name, list: &str) -> bool {
    list.split(' ').any(|it| it.as_bytes() == &name[..])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TagKind {
    Opening,
    Closing,
    /// It closes itself.
    Empty,
}

struct Tag {
    name: Name,
    kind: TagKind,
    bytes: Range<usize>,
}

/// The first tag of a text, as spelled in JSON, that begins at byte `from` or later. A tag has no `<` in it.
fn find_tag(raw: &[u8], mut from: usize) -> Option<Tag> {
    loop {
        let at = from + memchr::memchr2(b'<', b'\\', raw.get(from..)?)?;
        let is_open;
        (is_open, from) = match &raw[at..] {
            [b'<', ..] => (true, at + 1),
            [b'\\', b'u', b'0', b'0', b'3', b'c' | b'C', ..] => (true, at + 6),
            // Any other escape.
            _ => (false, at + 2),
        };
        if let Some(tag) = is_open.then(|| read_tag(raw, at, from)).flatten() {
            return Some(tag);
        }
    }
}

/// The tag that begins at byte `at`, and whose name or slash begins at byte `inside`.
fn read_tag(raw: &[u8], at: usize, inside: usize) -> Option<Tag> {
    let chars = TextWalk::new(raw.get(inside..)?);
    let mut chars = chars.map(|it| (it.to_char(), inside + it.at + it.len));
    let (mut next, mut kind) = (chars.next()?, TagKind::Opening);
    if next.0 == '/' {
        (next, kind) = (chars.next()?, TagKind::Closing);
    }
    let mut name = Name::new();
    let is_of_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | ':');
    while is_of_name(next.0) && name.len() < MAX_NAME {
        name.push(next.0 as u8);
        next = chars.next()?;
    }
    let ends_name = next.0.is_whitespace() || matches!(next.0, '>' | '/');
    if !(ends_name && name.first().is_some_and(u8::is_ascii_alphabetic)) {
        return None;
    }
    while next.0 != '>' {
        if next.0 == '/' && kind == TagKind::Opening {
            kind = TagKind::Empty;
        } else if kind == TagKind::Empty {
            // The slash was part of an attribute.
            kind = TagKind::Opening;
        }
        next = chars.next().filter(|it| it.0 != '<')?;
    }
    let bytes = at..next.1;
    Some(Tag { name, kind, bytes })
}

/// Words of a text, and the closed element after them, in bytes as spelled in JSON. The last part may have no element.
pub(crate) struct TextPart {
    pub(crate) words: Range<usize>,
    pub(crate) element: Option<Element>,
}

pub(crate) struct Element {
    name: Name,
    pub(crate) owner: Option<ElementOwner>,
    pub(crate) inner: Range<usize>,
}

/// The parts of a text, in order.
pub(crate) struct TextParts<'a> {
    raw: &'a [u8],
    /// Elements of unknown names are words.
    only_known: bool,
    /// The bytes before this position were read.
    at: usize,
    /// Elements of one name may be nested. Once such an element has no end, this is switched off: then the first closing tag
    /// closes an element.
    nests: bool,
}

impl<'a> TextParts<'a> {
    pub(crate) const fn new(raw: &'a [u8], only_known: bool) -> Self {
        Self {
            raw,
            only_known,
            at: 0,
            nests: true,
        }
    }

    /// The next element and its bytes. After a tag without an end, no element is looked for, so that a text takes linear
    /// time.
    fn find_element(&mut self) -> Option<(Range<usize>, Element)> {
        let end = if self.only_known {
            self.raw.len().min(self.at + MAX_LOOK)
        } else {
            self.raw.len()
        };
        let mut from = self.at;
        loop {
            let Tag { name, kind, bytes } = find_tag(&self.raw[..end], from)?;
            from = bytes.end;
            let owner = find_owner(&name);
            if kind == TagKind::Closing || self.only_known && owner.is_none() {
                continue;
            }
            let mut closing = match kind {
                TagKind::Empty => Some(from..from),
                _ => self.find_end(&name, from),
            };
            if closing.is_none() && std::mem::take(&mut self.nests) {
                closing = self.find_end(&name, from);
            }
            let closing = closing?;
            let inner = from..closing.start;
            let element = Element { name, owner, inner };
            return Some((bytes.start..closing.end, element));
        }
    }

    /// The closing tag of an element of this name, whose opening tag ends at byte `at`.
    fn find_end(&self, name: &Name, mut at: usize) -> Option<Range<usize>> {
        let mut depth = 1;
        loop {
            let tag = find_tag(self.raw, at)?;
            at = tag.bytes.end;
            match tag.kind {
                _ if tag.name != *name => {}
                TagKind::Closing if depth == 1 => return Some(tag.bytes),
                TagKind::Closing => depth -= 1,
                TagKind::Opening => depth += usize::from(self.nests),
                TagKind::Empty => {}
            }
        }
    }
}

impl Iterator for TextParts<'_> {
    type Item = TextPart;

    fn next(&mut self) -> Option<TextPart> {
        let (start, end) = (self.at, self.raw.len());
        if start == end {
            return None;
        }
        let (bytes, element) = match self.find_element() {
            Some((bytes, element)) => (bytes, Some(element)),
            None => (end..end, None),
        };
        self.at = bytes.end;
        let words = start..bytes.start;
        Some(TextPart { words, element })
    }
}

/// Whether a text, as spelled in JSON, is white space.
pub(crate) fn is_blank(raw: &[u8]) -> bool {
    TextWalk::new(raw).all(|it| it.to_char().is_whitespace())
}

/// The words of the user in a text, as spelled in JSON: everything outside the client's elements, without the tags of the
/// user's elements.
pub(crate) fn list_user_words(raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    TextParts::new(raw, true).flat_map(move |TextPart { words, element }| {
        let is_of_user = |it: &Element| it.owner == Some(ElementOwner::User);
        let inner = element.filter(is_of_user).map(|it| it.inner);
        [Some(words), inner]
            .into_iter()
            .flatten()
            .map(move |it| &raw[it])
    })
}

impl Item {
    /// Whether it is the user's, and not a text of the client's own.
    pub(crate) fn is_by_user(&self) -> bool {
        self.author == Author::User && !self.by_client
    }
}

impl Conversation {
    /// Marks the items that are texts of the client's own, once all items are indexed.
    pub(crate) fn with_client_texts(mut self) -> Self {
        let mut learnt = HashSet::new();
        for at in 1..self.items.len() {
            let before = &self.items[at - 1];
            let follows_result = before.author.is_tool() || before.by_client;
            let follows_answer = before.author == Author::Model && before.calls.is_empty();
            if self.items[at].author == Author::User {
                self.items[at].by_client = follows_result && self.is_of_client(at, &mut learnt)
                    || (follows_answer || before.by_client)
                        && self.is_written_result(&self.items[at]);
            }
        }
        self
    }

    /// The tag with which an item begins, if it is text alone.
    fn find_first_tag(&self, item: &Item) -> Option<Tag> {
        let mut blocks = self.blocks_of(item).iter();
        let has_texts_alone = matches!(item.content, Content::Text(_) | Content::Blocks(..))
            && blocks.all(|block| matches!(block.kind, BlockKind::Text(_)));
        let first = self.texts_of(item).next().filter(|_| has_texts_alone)?;
        let raw = self.raw_bytes(first);
        let mut chars = TextWalk::new(raw);
        let begin = chars.find(|it| !it.to_char().is_whitespace());
        let begin = begin.filter(|it| it.to_char() == '<')?;
        read_tag(raw, begin.at, begin.at + begin.len)
    }

    /// Whether an item is text alone in which the user says nothing.
    pub(crate) fn says_nothing(&self, item: &Item) -> bool {
        let first = self.find_first_tag(item);
        let is_of_client = |tag: &Tag| find_owner(&tag.name) == Some(ElementOwner::Client);
        first.as_ref().is_some_and(is_of_client) && self.user_words(item).all(is_blank)
    }

    /// Whether an item after results is the client's. Names of elements that are in no table are added to `learnt`: from
    /// their next occurrence on, these elements are the client's.
    fn is_of_client(&self, at: usize, learnt: &mut HashSet<Name>) -> bool {
        let item = &self.items[at];
        if self.find_first_tag(item).is_none() {
            return false;
        }
        let (mut by_client, mut has_elements, mut found) = (true, false, Vec::new());
        for raw in self.texts_of(item).map(|text| self.raw_bytes(text)) {
            for TextPart { words, element } in TextParts::new(raw, false) {
                if !is_blank(&raw[words]) {
                    return false;
                }
                has_elements |= element.is_some();
                let Some(Element { name, owner, .. }) = element else {
                    continue;
                };
                by_client &= match owner {
                    Some(owner) => owner == ElementOwner::Client,
                    None => learnt.contains(&name),
                };
                found.extend((owner.is_none() && found.len() < MAX_LEARNT).then_some(name));
            }
        }
        let room = MAX_LEARNT.saturating_sub(learnt.len());
        learnt.extend(found.into_iter().take(room));
        by_client && has_elements
    }

    /// The words of the user in an item of the user, text by text, as spelled in JSON.
    pub(crate) fn user_words<'a>(&'a self, item: &'a Item) -> impl Iterator<Item = &'a [u8]> + 'a {
        let texts = self.texts_of(item).filter(|_| !item.by_client);
        texts.flat_map(|text| list_user_words(self.raw_bytes(text)))
    }
}

#[cfg(test)]
mod tests;
