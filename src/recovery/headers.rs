//! Response headers of recovery: countdown, course, number of reminders.
//!
//! The same values are sent in headers, in trailers and in stream comments. Default values are left out: an answer in a
//! healthy first course has none of these headers.

use http::{HeaderName, HeaderValue};

use super::RecoveryMemory;

/// All names, by which trailers are announced. Before later values are set, earlier ones are removed by these names,
/// since a later value may be missing.
pub const HEADER_NAMES: &[&str] = &[
    "x-plimsoll-countdown",
    "x-plimsoll-course",
    "x-plimsoll-reminders",
];

/// Builds the headers of recovery. `x-plimsoll-countdown`: generations left before a clear, while critical.
/// `x-plimsoll-course`: the number of the course, from the second on. `x-plimsoll-reminders`: the number of reminders,
/// unless it is 0.
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
    fn default_values_have_no_header() {
        let mut memory = RecoveryMemory::default();
        assert!(shown(&memory).is_empty());
        memory.clock = RecoveryClock::Caution {
            due: true,
            since: 3,
        };
        assert!(shown(&memory).is_empty());
    }

    #[test]
    fn countdown_course_and_reminders_have_headers() {
        let memory = RecoveryMemory {
            clock: RecoveryClock::Critical {
                left: 0,
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
