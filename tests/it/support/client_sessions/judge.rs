//! What must hold of each request that reaches the provider. It shares no code with the proxy.

use std::collections::BTreeMap;

use plimsoll::guard::profile::find_profile;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::{super::strict, transcript::Wire};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Check {
    /// A body that a real provider refuses.
    Valid,
    /// Words of another session.
    Foreign,
    /// The user's newest words are not there; a quotation among the facts of a cut does not count.
    Question,
    /// A request that continues a session got another one.
    Session,
    /// A reminder is not in the request any more, though nothing new was cut, or a new course began without it.
    Notes,
    /// The answer tells fewer reminders than the model wrote down.
    Told,
    /// What was sent before changed, though nothing new was cut and the client did not change it.
    Prefix,
    /// The client's own request is invalid: a fault of the test.
    Client,
}

#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) check: Check,
    /// The number of the request at the provider, from 1.
    pub(crate) request: usize,
    pub(crate) what: String,
}

/// How the client's list differs from that of its last request, beside what it appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListChange {
    #[default]
    Appended,
    /// At most so many of the last entries changed.
    Tail(usize),
    /// Any of them.
    Anywhere,
}

/// What is known of a session at the provider.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionRecord {
    /// Stands in all words, results and reminders of this session, and in no other.
    pub(crate) word: String,
    /// The id that its last answer told.
    pub(super) id: Option<String>,
    /// The user's newest words.
    pub(crate) newest: Option<String>,
    /// What the model wrote down by calls.
    pub(crate) notes: Vec<String>,
    /// Of these, the ones in the last request, and what was written since.
    pub(super) shown: Vec<String>,
    /// A reminder that a new cut may explain; the client looks at it with the answer.
    pub(super) missing: Option<String>,
    pub(crate) change: ListChange,
    pub(crate) requests: usize,
    pub(crate) prompts: usize,
    /// Reminders by a call.
    pub(crate) saved: usize,
    /// Reminders in a text.
    pub(crate) blocks: usize,
    /// Requests without some of the reminders.
    pub(crate) hidden: usize,
    pub(crate) faults: Vec<Fault>,
    /// A change of the prefix that a new cut may explain; the client looks at it with the answer.
    pub(crate) changed: Option<String>,
    /// Digests of the entries of the last request.
    pub(super) last: Vec<u64>,
}

impl SessionRecord {
    pub(crate) fn fault(&mut self, check: Check, what: impl Into<String>) {
        self.faults.push(Fault {
            check,
            request: self.requests,
            what: what.into(),
        });
    }

    pub(crate) fn count(&self, check: Check) -> usize {
        self.faults.iter().filter(|it| it.check == check).count()
    }

    /// Judges a request. `others` are the words of other sessions.
    pub(super) fn judge(&mut self, wire: Wire, body: &[u8], others: &[String]) {
        self.requests += 1;
        for found in find_violations(wire, body) {
            self.fault(Check::Valid, found);
        }
        let text = String::from_utf8_lossy(body);
        for other in others.iter().filter(|it| text.contains(*it)) {
            self.fault(Check::Foreign, format!("{other} is of another session"));
        }
        let newest = self.newest.clone();
        if let Some(newest) = newest.filter(|it| !says_openly(&text, it)) {
            self.fault(Check::Question, newest);
        }
        let is_there = |note: &&String| text.contains(*note);
        let missing = self.shown.iter().find(|it| !is_there(it)).cloned();
        self.shown = self.notes.iter().filter(is_there).cloned().collect();
        self.missing = self.missing.take().or(missing);
        self.hidden += usize::from(self.shown.len() < self.notes.len());
        self.compare(wire, body);
    }

    fn compare(&mut self, wire: Wire, body: &[u8]) {
        let now = digest_entries(wire, body);
        let last = std::mem::replace(&mut self.last, now);
        let stable = match self.change {
            ListChange::Appended => last.len(),
            // The proxy's own entries may stand among the last ones.
            ListChange::Tail(changed) => last.len().saturating_sub(changed + 4 + 3 * self.saved),
            ListChange::Anywhere => 0,
        };
        let same = last.iter().zip(&self.last).take_while(|(a, b)| a == b);
        let same = same.count();
        if same < stable {
            let (request, of) = (self.requests, last.len());
            self.changed = Some(format!(
                "request {request}: {same} of {of} entries are as before, and {stable} must be"
            ));
        }
        // Rounds of the proxy follow the same list of the client.
        self.change = ListChange::Appended;
    }
}

/// Records a fault at each session whose last answer told the id of another one's.
pub(super) fn compare_ids(records: &mut [SessionRecord]) {
    let ids: Vec<Option<String>> = records.iter().map(|it| it.id.clone()).collect();
    for (place, record) in records.iter_mut().enumerate() {
        if ids[..place].contains(&record.id) {
            record.fault(Check::Foreign, format!("{:?} is another's too", ids[place]));
        }
    }
}

/// Whether the words stand in a body, facts that the proxy picked apart.
fn says_openly(body: &str, words: &str) -> bool {
    let mut rest = body;
    while let Some((before, behind)) = rest.split_once("<facts of=") {
        if before.contains(words) {
            return true;
        }
        rest = behind.split_once("</facts>").map_or("", |it| it.1);
    }
    rest.contains(words)
}

/// The rules of the strict checker that a body breaks, in words.
pub(crate) fn find_violations(wire: Wire, body: &[u8]) -> Vec<String> {
    let found = match wire {
        Wire::Chat => strict::find_violations(body, find_profile(wire.profile()).unwrap()),
        Wire::Messages => strict::messages::find_violations(body),
        Wire::Responses => strict::responses::find_violations(body),
    };
    found.iter().map(|it| format!("{it:?}")).collect()
}

/// Digests of the bytes of each entry, cache markers apart, which move.
fn digest_entries(wire: Wire, body: &[u8]) -> Vec<u64> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let list = members.get(wire.list()).map_or("[]", |it| it.get());
    let entries: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    let marker = r#""cache_control":{"type":"ephemeral"}"#;
    let (before, after) = (format!(",{marker}"), format!("{marker},"));
    let digests = entries.iter().map(|entry| match entry.get() {
        text if text.contains(marker) => {
            xxh3_64(text.replace(&before, "").replace(&after, "").as_bytes())
        }
        text => xxh3_64(text.as_bytes()),
    });
    digests.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(record: &mut SessionRecord, entries: &[Value]) -> Vec<Check> {
        let before = record.faults.len();
        let body = json!({ "messages": entries }).to_string();
        record.judge(Wire::Chat, body.as_bytes(), &["ship-2".to_owned()]);
        record.faults[before..].iter().map(|it| it.check).collect()
    }

    fn says(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    #[test]
    fn each_fault_is_found() {
        let mut record = SessionRecord {
            newest: Some("mend ship-1".into()),
            ..SessionRecord::default()
        };
        assert_eq!(judged(&mut record, &[says("mend ship-1")]), []);
        assert_eq!(judged(&mut record, &[says("go on")]), [Check::Question]);
        let quoted = "<facts of=\"the user\">mend ship-1</facts>";
        assert_eq!(judged(&mut record, &[says(quoted)]), [Check::Question]);
        let both = format!("{quoted} and mend ship-1");
        assert_eq!(judged(&mut record, &[says(&both)]), []);
        let foreign = "mend ship-1, and ship-2";
        assert_eq!(judged(&mut record, &[says(foreign)]), [Check::Foreign]);
        let orphan = json!({"role": "tool", "tool_call_id": "c", "content": "mend ship-1"});
        assert_eq!(judged(&mut record, &[orphan]), [Check::Valid]);
    }

    #[test]
    fn a_prefix_may_change_where_the_client_changed_it_alone() {
        let entries: Vec<Value> = (0..20).map(|nth| says(&nth.to_string())).collect();
        for (change, changed, found) in [
            (ListChange::Appended, 19, true),
            (ListChange::Tail(3), 17, false),
            (ListChange::Tail(3), 5, true),
            (ListChange::Anywhere, 5, false),
        ] {
            let mut record = SessionRecord::default();
            judged(&mut record, &entries);
            let mut edited = entries.clone();
            edited[changed] = says("edited");
            record.change = change;
            judged(&mut record, &edited);
            assert_eq!(record.changed.is_some(), found, "{change:?} {changed}");
        }
        let marked = json!({"role": "user", "content": [{"type": "text", "text": "a",
            "cache_control": {"type": "ephemeral"}}]});
        let bare = json!({"role": "user", "content": [{"type": "text", "text": "a"}]});
        let mut record = SessionRecord::default();
        judged(&mut record, &[marked]);
        judged(&mut record, &[bare]);
        assert_eq!(record.changed, None, "a marker moves");
    }

    #[test]
    fn a_reminder_that_is_gone_is_found() {
        let mut record = SessionRecord {
            notes: vec!["note 1".into()],
            shown: vec!["note 1".into()],
            ..SessionRecord::default()
        };
        judged(&mut record, &[says("a"), says("note 1")]);
        assert_eq!(record.missing, None);
        judged(&mut record, &[says("a")]);
        assert_eq!(record.missing.as_deref(), Some("note 1"));
        assert_eq!(record.hidden, 1);
    }
}
