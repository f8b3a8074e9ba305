//! What the headers of an answer tell of recovery: a clear that comes, the course, the notes.
//!
//! The same for a head, for trailers and for a comment. What is as usual is left out, so an answer
//! of a healthy first course carries none of them.

use http::{HeaderName, HeaderValue};

use super::RecoveryMemory;

/// All of them. Trailers are named beforehand, and where a later word replaces an earlier one,
/// these are to be removed first: each of them may be missing.
pub const HEADER_NAMES: &[&str] = &[
    "x-plimsoll-countdown",
    "x-plimsoll-course",
    "x-plimsoll-reminders",
];

/// `x-plimsoll-countdown`: generations left before a clear, while critical. `x-plimsoll-course`:
/// the number of the course, from the second on. `x-plimsoll-reminders`: how many the model keeps,
/// where it keeps any.
pub fn build_recovery_headers(
    memory: &RecoveryMemory,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let course = memory.course_number();
    let reminders = memory.reminders.notes().len();
    let values = [
        memory.clock.countdown().map(HeaderValue::from),
        (course > 1).then(|| course.into()),
        (reminders > 0).then(|| reminders.into()),
    ];
    HEADER_NAMES
        .iter()
        .zip(values)
        .filter_map(|(name, value)| Some((HeaderName::from_static(name), value?)))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{RecoveryClock, fixture::build_reminders},
        *,
    };
    use crate::guard::injections::Course;

    fn shown(memory: &RecoveryMemory) -> Vec<String> {
        build_recovery_headers(memory)
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn what_is_as_usual_is_left_out() {
        let mut memory = RecoveryMemory::default();
        assert!(shown(&memory).is_empty());
        memory.clock = RecoveryClock::Caution {
            due: true,
            since: 3,
        };
        assert!(shown(&memory).is_empty());
    }

    #[test]
    fn what_is_not_is_told() {
        let memory = RecoveryMemory {
            clock: RecoveryClock::Critical {
                left: 0,
                cut: true,
                told: false,
            },
            reminders: build_reminders(&[(1, "a"), (2, "b")]),
            course: Some(Course {
                number: 2,
                boundary: 9,
                preface: "p".into(),
            }),
            ..RecoveryMemory::default()
        };
        let expected = [
            "x-plimsoll-countdown: 0",
            "x-plimsoll-course: 2",
            "x-plimsoll-reminders: 2",
        ];
        assert_eq!(shown(&memory), expected);
    }
}
