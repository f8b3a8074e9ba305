//! What recovery did, as the headers of one answer tell it.

use http::HeaderMap;

/// Where a session stands in its recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recovery {
    /// From 1; a clear begins the next.
    pub(super) course: u32,
    /// Notes that the model keeps.
    pub(super) reminders: u32,
    /// Generations left before a clear, while critical.
    pub(super) countdown: Option<u32>,
    /// What happened with this request, in its order.
    pub(super) events: Vec<Event>,
}

/// Something worth a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The model was asked to write down what matters.
    Caution,
    /// The same, with the end near.
    Critical { countdown: Option<u32> },
    /// The session goes on in a new course.
    Course { number: u32, reminders: u32 },
}

impl Recovery {
    /// Reads headers and the words of `x-plimsoll-actions`; whatever is missing or odd counts as
    /// not there.
    pub(super) fn of(headers: &HeaderMap, actions: &str) -> Self {
        let number = |name: &str| {
            let value = headers.get(name)?.to_str().ok()?;
            value.trim().parse::<u32>().ok()
        };
        let countdown = number("x-plimsoll-countdown");
        let reminders = number("x-plimsoll-reminders").unwrap_or(0);
        let words = actions
            .split(',')
            .filter_map(|one| one.trim().split_once('='));
        let events = words.filter_map(|(key, value)| match (key, value) {
            ("injected", "caution") => Some(Event::Caution),
            ("injected", "critical") => Some(Event::Critical { countdown }),
            ("course", number) => Some(Event::Course {
                number: number.parse().ok()?,
                reminders,
            }),
            _ => None,
        });
        Self {
            course: number("x-plimsoll-course").unwrap_or(1).max(1),
            reminders,
            countdown,
            events: events.collect(),
        }
    }

    /// In a few words; empty while there is nothing to tell.
    pub(super) fn told(&self) -> String {
        let mut told = Vec::new();
        if self.course > 1 {
            told.push(format!("course {}", self.course));
        }
        if self.reminders > 0 {
            told.push(format!("{} reminders", self.reminders));
        }
        if let Some(left) = self.countdown {
            told.push(format!("countdown {left}"));
        }
        told.join(", ")
    }
}

impl Event {
    pub(super) fn told(self) -> String {
        match self {
            Self::Caution => "the model was asked to write down what must not be lost".to_owned(),
            Self::Critical { countdown } => {
                let told = "the model was told that a new course is near";
                match countdown {
                    None => told.to_owned(),
                    Some(0) => format!("{told}; it begins with the next request"),
                    Some(1) => format!("{told}; 1 more answer until then"),
                    Some(left) => format!("{told}; {left} more answers until then"),
                }
            }
            Self::Course { number, reminders } => format!(
                "course {number} begins: the task, {reminders} reminders and the newest steps go on"
            ),
        }
    }

    /// Whether a prompt was given.
    pub(super) const fn is_prompt(self) -> bool {
        matches!(self, Self::Caution | Self::Critical { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, value.parse().unwrap())
        });
        pairs.collect()
    }

    #[test]
    fn what_headers_tell() {
        let calm = Recovery::of(&HeaderMap::new(), "none");
        assert_eq!((calm.course, calm.told().as_str()), (1, ""));
        assert!(calm.events.is_empty());
        let critical = headers(&[("x-plimsoll-reminders", "3"), ("x-plimsoll-countdown", "4")]);
        let critical = Recovery::of(&critical, "truncated=1, injected=critical");
        assert_eq!(critical.events, [Event::Critical { countdown: Some(4) }]);
        assert_eq!(critical.told(), "3 reminders, countdown 4");
        let cleared = headers(&[("x-plimsoll-reminders", "3"), ("x-plimsoll-course", "2")]);
        let cleared = Recovery::of(&cleared, "injected=caution, course=2");
        let course = Event::Course {
            number: 2,
            reminders: 3,
        };
        assert_eq!(cleared.events, [Event::Caution, course]);
        assert_eq!(cleared.told(), "course 2, 3 reminders");
    }

    #[test]
    fn odd_headers_do_no_harm() {
        let odd = headers(&[("x-plimsoll-course", "0"), ("x-plimsoll-countdown", "soon")]);
        let odd = Recovery::of(&odd, "course=x, injected=, injected, =, course=-1");
        assert_eq!((odd.course, odd.countdown, odd.events.len()), (1, None, 0));
    }
}
