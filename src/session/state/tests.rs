use proptest::prelude::*;

use super::*;
use crate::format::block_binding::MismatchField;
use crate::guard::injections::{
    Course, InjectedAuthor, InjectedMessage, InjectionContent, InjectionRecord, ToolSet,
};

fn state() -> SessionState {
    SessionState {
        generations: 12,
        model: "gpt-4o".into(),
        provider: "openai".into(),
        window: Some(128_000),
        prompt_tokens: Some(70_000),
        health: HealthLevel::Healthy,
        sample: None,
        ..SessionState::new(SessionId::from_bytes([9; 16]))
    }
}

#[test]
fn a_stored_state_is_read_back() {
    let bytes = state().encode_bounded().unwrap().bytes;
    assert_eq!(SessionState::from_bytes(&bytes).unwrap(), state());
    assert!(bytes.len() <= 132, "{}", bytes.len());
    let mut long = SessionState {
        format: Format::Responses,
        largest_answer: 900,
        cap_was_hit: true,
        caution_waits_since_ms: Some(1_795_000_000_000),
        reasoning: ReasoningMemory {
            is_bound: true,
            drop_by: Some(MismatchField::Any),
            turn_without_thinking: Some(7),
            leaves_out_all: true,
        },
        ..state()
    };
    long.guard.alternates = Some(true);
    let bytes = long.encode_bounded().unwrap().bytes;
    assert_eq!(SessionState::from_bytes(&bytes).unwrap(), long);
}

#[test]
fn other_versions_and_trailing_bytes_are_refused() {
    let current = SessionState {
        largest_answer: 900,
        ..state()
    };
    let mut bytes = current.encode_bounded().unwrap().bytes;
    bytes.push(0);
    let refusal = |bytes: &[u8]| SessionState::from_bytes(bytes).unwrap_err();
    assert!(matches!(refusal(&bytes), StateError::Length));
    bytes[0] = VERSION - 1;
    assert!(matches!(refusal(&bytes), StateError::Unreleased(_)));
    bytes[0] = VERSION + 1;
    assert!(matches!(refusal(&bytes), StateError::Newer(_)));
    assert!(matches!(refusal(&[]), StateError::Length));
    let long = vec![VERSION; MAX_BYTES + 1];
    assert!(matches!(refusal(&long), StateError::TooLarge(_)));
}

#[test]
fn an_oversize_state_is_shed_or_refused() {
    // The memory of a guard that tightened very many results.
    let tight: Vec<(u128, u32)> = (0..12_000).map(|at| (u128::MAX - at, 9_000)).collect();
    let mut memory = postcard::to_stdvec(&GuardMemory::default()).unwrap();
    // Its list of limits is empty: the byte behind ground, cut and messages.
    let tight = postcard::to_stdvec(&tight).unwrap();
    memory.splice(5..6, tight);
    let large = SessionState {
        guard: postcard::from_bytes(&memory).unwrap(),
        ..state()
    };
    assert_eq!(large.guard.count_tightened(), 12_000);
    let bytes = large.encode_bounded().unwrap().bytes;
    assert!(bytes.len() <= MAX_BYTES);
    let read = SessionState::from_bytes(&bytes).unwrap();
    assert!((1..12_000).contains(&read.guard.count_tightened()));
    let hopeless = SessionState {
        model: "m".repeat(MAX_BYTES).into(),
        ..large
    };
    let refused = hopeless.encode_bounded();
    assert!(matches!(refused, Err(StateError::TooLarge(_))));
}

/// Alternating prompts and rounds of so many characters each, two at each place.
fn records(count: u32, chars: usize) -> Vec<InjectionRecord> {
    let what = |at: u32| {
        let text: Box<str> = format!("{at}{}", "x".repeat(chars)).into();
        match at % 2 {
            0 => InjectionContent::Prompt(text),
            _ => InjectionContent::Round(vec![InjectedMessage {
                by: InjectedAuthor::User,
                json: text,
            }]),
        }
    };
    let record = |at: u32| InjectionRecord {
        place: at / 2 * 4,
        what: what(at),
    };
    (0..count).map(record).collect()
}

fn with_records(records: Vec<InjectionRecord>) -> SessionState {
    let mut state = state();
    state.recovery.records = records;
    state
}

#[test]
fn digests_of_dropped_rounds_and_tools_are_stored() {
    let record = |place| InjectionRecord {
        place,
        what: InjectionContent::DroppedRound {
            blocks: vec![0, u128::MAX],
        },
    };
    let tools = InjectionRecord {
        place: 4,
        what: InjectionContent::Tools {
            set: ToolSet::All,
            json: "{}".into(),
        },
    };
    let state = with_records(vec![record(2), record(4), tools]);
    let bytes = state.encode_bounded().unwrap().bytes;
    assert_eq!(SessionState::from_bytes(&bytes).unwrap(), state);
}

#[test]
fn the_oldest_records_are_shed_first_and_places_stay_whole() {
    let large = with_records(records(101, 3_000));
    let encoded = large.encode_bounded().unwrap();
    assert!(encoded.bytes.len() <= MAX_BYTES);
    let read = SessionState::from_bytes(&encoded.bytes).unwrap();
    let kept = read.recovery.records.len();
    assert_eq!(kept + encoded.records_shed, 101);
    // 101, of which 52 go (51 and its neighbour), then 26 of 49.
    assert_eq!(encoded.records_shed, 78);
    assert_eq!(read.recovery.records, large.recovery.records[78..]);
    let what_fits = with_records(records(20, 3_000)).encode_bounded().unwrap();
    assert_eq!(what_fits.records_shed, 0);
    // A single record that is too large is dropped as well.
    let huge = with_records(records(1, MAX_BYTES));
    assert_eq!(huge.encode_bounded().unwrap().records_shed, 1);
}

#[test]
fn digests_stay_of_rounds_that_are_shed() {
    let round = |at: u32| {
        let encrypted = "x".repeat(3_000);
        let json = format!(
            r#"{{"type":"reasoning","id":"rs_{at}","summary":[],"encrypted_content":"{encrypted}"}}"#
        );
        let by = InjectedAuthor::Model { calls: 0 };
        InjectionRecord {
            place: at,
            what: InjectionContent::Round(vec![InjectedMessage {
                by,
                json: json.into(),
            }]),
        }
    };
    let large = SessionState {
        format: Format::Responses,
        ..with_records((0..101).map(round).collect())
    };
    let encoded = large.encode_bounded().unwrap();
    assert!(encoded.bytes.len() <= MAX_BYTES && encoded.records_shed > 50);
    let read = SessionState::from_bytes(&encoded.bytes).unwrap();
    let (digests, kept) = read.recovery.records.split_at(encoded.records_shed);
    let is_digest = |record: &InjectionRecord| matches!(&record.what, InjectionContent::DroppedRound { blocks } if blocks.len() == 1);
    assert!(digests.iter().all(is_digest));
    assert_eq!(kept, &large.recovery.records[encoded.records_shed..]);
    assert!(!kept.is_empty());
    // Digests alone are dropped too.
    let many = (0..MAX_BYTES as u32).map(|at| InjectionRecord {
        place: at,
        what: InjectionContent::DroppedRound { blocks: vec![1] },
    });
    let many = with_records(many.collect()).encode_bounded().unwrap();
    assert!(many.bytes.len() <= MAX_BYTES && many.records_shed > 0);
}

#[test]
fn records_are_dropped_before_the_memory_of_the_guard() {
    let tight = vec![(7_u128, 9_000_u32)];
    let mut memory = postcard::to_stdvec(&GuardMemory::default()).unwrap();
    // Its list of limits is empty: the byte behind ground, cut and messages.
    let tight = postcard::to_stdvec(&tight).unwrap();
    memory.splice(5..6, tight);
    let large = SessionState {
        guard: postcard::from_bytes(&memory).unwrap(),
        ..with_records(records(200, 3_000))
    };
    let read = SessionState::from_bytes(&large.encode_bounded().unwrap().bytes).unwrap();
    assert_eq!(read.guard.count_tightened(), 1);
}

/// Places of records at 1, 5, 9 and 9 after the answer was found at `answer_at`.
fn check_places(answer_at: u32, expected: &[u32], boundary: u32, messages: u32) {
    let at = |place| InjectionRecord {
        place,
        what: InjectionContent::Prompt("p".into()),
    };
    let mut state = SessionState {
        messages: 9,
        ..with_records([1, 5, 9, 9].map(at).to_vec())
    };
    state.recovery.course = Some(Course {
        number: 2,
        boundary: 8,
        preface: "p".into(),
    });
    state.realign_places(answer_at);
    let recall = state.to_knowledge();
    let records = recall.injections.records.iter();
    let places: Vec<u32> = records.map(|record| record.place).collect();
    assert_eq!(places, expected, "answer at {answer_at}");
    let course = recall.injections.course.unwrap();
    assert_eq!(course.boundary, boundary, "answer at {answer_at}");
    assert_eq!(
        recall.sent_messages, messages as usize,
        "answer at {answer_at}"
    );
}

#[test]
fn places_move_with_the_answer() {
    check_places(9, &[1, 5, 9, 9], 8, 9);
    // Remarks before it were removed,
    check_places(8, &[1, 5, 8, 8], 8, 8);
    // with the one that the course began with,
    check_places(7, &[1, 5, 7, 7], 7, 7);
    // or added.
    check_places(11, &[1, 5, 11, 11], 8, 9);
    // Only a store that returns a wrong state leads to this.
    check_places(3, &[1, 3, 3], 3, 3);
}

#[test]
fn session_ids_are_parsed_from_lower_case_hex() {
    let id = SessionId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
    assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
    assert_eq!(SessionId::parse_hex(&id.to_string()), Some(id));
    for none in [
        "",
        "00",
        "000102030405060708090A0B0C0D0EFF",
        &"g".repeat(32),
    ] {
        assert_eq!(SessionId::parse_hex(none), None);
    }
}

proptest! {
    #[test]
    fn any_records_are_stored_within_the_bound(count in 0..300_u32, chars in 0..5_000_usize) {
        let state = with_records(records(count, chars));
        let encoded = state.encode_bounded().unwrap();
        prop_assert!(encoded.bytes.len() <= MAX_BYTES);
        let read = SessionState::from_bytes(&encoded.bytes).unwrap();
        let records = &state.recovery.records;
        prop_assert_eq!(&read.recovery.records, &records[encoded.records_shed..]);
        let (shed, kept) = records.split_at(encoded.records_shed);
        let places = shed.last().zip(kept.first());
        prop_assert!(places.is_none_or(|(shed, kept)| shed.place < kept.place));
    }

    #[test]
    fn places_never_fall_behind_the_answer(
        mut places in prop::collection::vec(0..40_u32, 0..12),
        messages in 0..40_u32,
        answer_at in 0..40_u32,
        boundary in 0..40_u32,
    ) {
        places.sort_unstable();
        let what = InjectionContent::Prompt("p".into());
        let record = |place| InjectionRecord { place, what: what.clone() };
        let mut state = with_records(places.into_iter().map(record).collect());
        state.messages = messages;
        state.recovery.course = Some(Course { number: 2, boundary, preface: "p".into() });
        state.realign_places(answer_at);
        let recall = state.to_knowledge();
        prop_assert!(recall.sent_messages <= answer_at as usize);
        prop_assert!(recall.injections.records.iter().all(|record| record.place <= answer_at));
        prop_assert!(recall.injections.course.unwrap().boundary <= answer_at);
        let again = state.clone();
        state.realign_places(answer_at);
        prop_assert_eq!(again, state);
    }

    #[test]
    fn reading_anything_never_panics(mut bytes: Vec<u8>, versioned: bool) {
        if versioned {
            bytes.insert(0, VERSION);
        }
        let _ = SessionState::from_bytes(&bytes);
    }

    #[test]
    fn reading_a_damaged_state_never_panics(at: prop::sample::Index, to: u8) {
        let mut bytes = state().encode_bounded().unwrap().bytes;
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = SessionState::from_bytes(&bytes);
        let _ = SessionState::from_bytes(&bytes[..at]);
    }
}
