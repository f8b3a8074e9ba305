use std::sync::Arc;

use super::{Begun, Compacting, Ticket};
use crate::{
    compaction::{JobId, Outcome},
    guard::record::Summary,
    session::SessionId,
    store::Key,
    telemetry::metrics::{Metrics, Now},
};

fn all() -> (Arc<Compacting>, Metrics) {
    let metrics = Metrics::default();
    (Arc::new(Compacting::new(&metrics)), metrics)
}

fn key(of: u8) -> Key {
    Key::from_bytes([of; 16])
}

/// One request in one session.
fn request(of: u8) -> (Key, SessionId) {
    (key(of), SessionId::from_bytes([of; 16]))
}

fn id(of: u8) -> JobId {
    JobId::from_bytes([of; 8])
}

#[track_caller]
fn new(begun: Begun) -> Ticket {
    match begun {
        Begun::New(ticket) => ticket,
        _ => panic!("a new job was to be begun"),
    }
}

fn outcome(of: u8, text: Option<&str>) -> Outcome {
    let summary = text.map(|text| Summary {
        boundary: 3,
        text: text.into(),
    });
    Outcome {
        job: id(of),
        summary,
    }
}

#[test]
fn the_same_request_has_one_job() {
    let (all, _metrics) = all();
    let ticket = new(all.begin(request(1), id(1), 9));
    assert!(matches!(all.begin(request(1), id(2), 9), Begun::Same(it) if it == id(1)));
    ticket.tell(outcome(1, Some("s")));
    drop(ticket);
    assert!(matches!(all.begin(request(1), id(3), 9), Begun::Same(it) if it == id(1)));
    let there = all.result(id(1)).unwrap();
    assert_eq!(*there.borrow(), Some(outcome(1, Some("s"))));
    // Another request has its own.
    let other = new(all.begin(request(2), id(4), 9));
    other.tell(outcome(4, None));
    assert!(matches!(all.begin(request(2), id(5), 9), Begun::Failed));
}

#[test]
fn a_job_that_was_dropped_leaves_its_place() {
    let (all, metrics) = all();
    let ticket = new(all.begin(request(1), id(1), 1));
    assert!(matches!(all.begin(request(2), id(2), 1), Begun::Full));
    drop(ticket);
    assert!(all.result(id(1)).is_none());
    let again = new(all.begin(request(1), id(3), 1));
    drop(again);
    let text = metrics.text(std::iter::empty(), Now::default());
    assert!(text.contains("plimsoll_summaries_running 0\n"), "{text}");
    // The one that found no place, and the two that were not run.
    let skipped = r#"plimsoll_summaries_total{outcome="skipped"} 3"#;
    assert!(text.contains(skipped), "{text}");
}

#[test]
fn a_first_request_that_is_sent_again_is_of_several_sessions() {
    let (all, _metrics) = all();
    let ticket = new(all.begin(request(1), id(1), 9));
    let again = SessionId::from_bytes([2; 16]);
    for _ in 0..2 {
        let same = all.begin((key(1), again), id(2), 9);
        assert!(matches!(same, Begun::Same(it) if it == id(1)));
    }
    let told = ticket.tell(outcome(1, Some("s")));
    assert_eq!(told, [SessionId::from_bytes([1; 16]), again]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let (all, _metrics) = all();
    for of in 0..=255 {
        let ticket = new(all.begin(request(of), id(of), 1));
        ticket.tell(outcome(of, None));
    }
    assert!(all.result(id(0)).is_none());
    assert!(all.result(id(255)).is_some());
}

#[test]
fn one_that_others_have_taken_the_place_of_is_left_beside_its_session() {
    let (all, _metrics) = all();
    let slow = new(all.begin(request(0), id(0), 2));
    for of in 1..=255 {
        new(all.begin(request(of), id(of), 2)).tell(outcome(of, None));
    }
    let told = slow.tell(outcome(0, Some("s")));
    assert_eq!(told, [SessionId::from_bytes([0; 16])]);
}
