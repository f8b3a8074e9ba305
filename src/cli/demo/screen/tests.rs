//! What is drawn.

use super::*;
use crate::cli::demo::event::{Event, Recovery};

fn scale() -> Scale {
    Scale {
        model: "m".to_owned(),
        window: 1_000,
        limits: Limits {
            optimal_max_tokens: 500,
            critical_max_tokens: Some(750),
        },
        steps: 9,
    }
}

fn cleared() -> Reading {
    let number = 2;
    Reading {
        prompt_tokens: Some(400),
        level: "healthy".to_owned(),
        actions: "course=2".to_owned(),
        recovery: Recovery {
            course: number,
            reminders: 3,
            countdown: None,
            events: vec![Event::Course {
                number,
                reminders: 3,
            }],
        },
        ..Reading::default()
    }
}

#[test]
fn a_new_course_has_a_line_of_its_own() {
    let (mut out, mut tally) = (Vec::new(), Tally::default());
    let reading = cleared();
    tally.add(&reading);
    let mut screen = Screen::plain(&mut out);
    screen.step(&scale(), &reading, &tally).unwrap();
    screen.close(&scale(), &tally).unwrap();
    drop(screen);
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("course=2  (course 2, 3 reminders)"));
    assert_eq!(
        lines[1],
        "  ==> course 2 begins: the task, 3 reminders and the newest steps go on"
    );
    assert!(
        lines
            .last()
            .unwrap()
            .contains("1 new courses, 3 reminders kept")
    );
}

#[test]
fn the_panel_has_always_as_many_rows() {
    let mut tally = Tally::default();
    let calm = Reading::default();
    let first = rows(&scale(), &calm, &tally);
    assert!(first[COLOURED[1]].starts_with("level"));
    for _ in 0..5 {
        tally.add(&cleared());
    }
    let last = rows(&scale(), &cleared(), &tally);
    assert_eq!(first.len(), last.len());
    assert!(
        last.last()
            .unwrap()
            .starts_with("step    5: course 2 begins")
    );
}
