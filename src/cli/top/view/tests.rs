use ratatui::{Terminal, backend::TestBackend};

use super::*;
use crate::cli::top::fleet::tests::session;

fn fleet(count: u32) -> Fleet {
    let mut fleet = Fleet::default();
    let sessions =
        (0..count).map(|n| session(&format!("{n:04}"), Some(n % 1_000), 10_000 - u64::from(n)));
    fleet.replace(sessions.collect());
    fleet
}

fn scene(fleet: &Fleet) -> Scene<'_> {
    Scene {
        fleet,
        address: "http://127.0.0.1:1876",
        lost: None,
        typing: false,
        colour: false,
        now_s: 1_000,
    }
}

fn drawn(scene: &Scene<'_>, state: &mut TableState, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, scene, state)).unwrap();
    let buffer = terminal.backend().buffer();
    (0..height)
        .map(|y| {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            line.trim_end().to_owned()
        })
        .collect()
}

#[test]
fn every_session_has_its_gauge_with_the_load_line() {
    let mut fleet = Fleet::default();
    let mut full = session("b", Some(950), 940);
    full.countdown = Some(3);
    let mut busy = session("c", Some(650), 990);
    busy.compacting = true;
    fleet.replace(vec![session("a", None, 0), full, busy]);
    let lines = drawn(&scene(&fleet), &mut TableState::new(), (128, 9));
    let expected = [
        "plimsoll top http://127.0.0.1:1876  live",
        "3 sessions  critical 1  caution 1  healthy 0  unknown 1",
    ];
    assert_eq!(lines[..2], expected);
    let cells = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        cells(&lines[2]),
        "session level load tokens full model course age"
    );
    assert_eq!(
        cells(&lines[3]),
        "c caution ██████████████│█······┃· 650 / 1,000 65 % up/model-c compacting… 10 s"
    );
    assert_eq!(
        cells(&lines[4]),
        "b critical ██████████████│███████┃· 950 / 1,000 95 % up/model-b 1, clear in 3 1 m"
    );
    assert_eq!(
        cells(&lines[5]),
        "a unknown ························ ? / ? ? up/model-a 1 16 m"
    );
    assert!(lines[8].starts_with("q quit"), "{}", lines[8]);
}

#[test]
fn a_long_list_scrolls_with_the_chosen_one_and_back() {
    let mut fleet = fleet(5_000);
    let mut state = TableState::new();
    let size = (120, 14);
    let first = |lines: &[String]| lines[3].split(' ').next().unwrap().to_owned();
    for (step, expected) in [(1, "0000"), (9, "0000"), (1, "0001"), (4_990, "4990")] {
        fleet.step(step);
        assert_eq!(first(&drawn(&scene(&fleet), &mut state, size)), expected);
    }
    fleet.step(-5);
    assert_eq!(first(&drawn(&scene(&fleet), &mut state, size)), "4990");
    fleet.step(-10_000);
    assert_eq!(first(&drawn(&scene(&fleet), &mut state, size)), "0000");
}

#[test]
fn any_size_of_terminal_can_be_drawn_on() {
    let mut fleet = fleet(30);
    fleet.step(1);
    for size in [(1, 1), (10, 3), (40, 5), (80, 24), (300, 2)] {
        for typing in [false, true] {
            let scene = Scene {
                typing,
                colour: true,
                lost: Some("it ended"),
                ..scene(&fleet)
            };
            drawn(&scene, &mut TableState::new(), size);
        }
    }
}

#[test]
fn no_number_is_ever_cut() {
    let mut fleet = Fleet::default();
    let large = Session {
        context_limit: Some(2_000_000),
        hard_util: Some(0.617),
        ..session("a", Some(1_234_567), 0)
    };
    fleet.replace(vec![large]);
    for width in 14..200 {
        let lines = drawn(&scene(&fleet), &mut TableState::new(), (width, 6));
        let words: Vec<_> = lines[3].split_whitespace().collect();
        let whole = words.contains(&"1,234,567") && words.contains(&"2,000,000");
        assert!(
            whole || !lines[3].contains('/') || width < 70,
            "{width}: {}",
            lines[3]
        );
        assert!(
            words.contains(&"62") && words.contains(&"%"),
            "{width}: {}",
            lines[3]
        );
    }
}

#[test]
fn it_says_why_there_is_nothing() {
    let mut fleet = fleet(0);
    let lines = drawn(&scene(&fleet), &mut TableState::new(), (80, 6));
    assert!(
        lines[2].starts_with("No session of this key yet"),
        "{lines:?}"
    );
    fleet.update([session("a", None, 0)]);
    fleet.search("zz");
    let lines = drawn(&scene(&fleet), &mut TableState::new(), (80, 6));
    assert_eq!(lines[2], "No session has \"zz\".");
    assert!(lines[5].contains("searched: zz"), "{lines:?}");
}

#[test]
fn odd_limits_do_no_harm() {
    for (window, optimal, critical) in [(0, 1, 2), (10, 50, 50), (u32::MAX, 0, 0)] {
        let odd = Session {
            context_limit: Some(window),
            optimal_max_tokens: Some(optimal),
            critical_max_tokens: Some(critical),
            ..session("a", Some(u32::MAX), 0)
        };
        assert_eq!(load_line(&odd, 10).chars().count(), 10);
    }
}
