//! The tables of an offer, without a request.

use super::*;

#[test]
#[rustfmt::skip]
fn each_pair_of_tools_has_its_sets() {
    use ReminderTools::{Begin, Later, Never, Stay, Wait};
    use ToolSet::{All, Nothing, Recall, Reminders};
    // In each row: the sets now and with a cut, where `recall` never comes, comes later, and stays.
    for (reminders, never, later, stays) in [
        (Never, [Nothing, Nothing], [Nothing, Recall], [Recall, Recall]),
        (Later, [Nothing, Nothing], [Nothing, All], [Recall, All]),
        (Wait, [Nothing, Reminders], [Nothing, All], [Recall, All]),
        (Begin, [Reminders, Reminders], [All, All], [All, All]),
        (Stay, [Reminders, Reminders], [Reminders, All], [All, All]),
    ] {
        for (recall, [now, when_cut]) in [
            (RecallTool::Never, never),
            (RecallTool::Later, later),
            (RecallTool::Stay, stays),
        ] {
            let found = choose_sets(reminders, recall);
            assert_eq!(found, ToolSets { now, when_cut }, "{reminders:?} {recall:?}");
        }
    }
}

#[test]
#[rustfmt::skip]
fn the_tools_for_reminders_begin_when_a_prompt_is_due() {
    use AddTools::{Always, WhenDue};
    use ReminderTools::{Begin, Later, Never, Stay, Wait};
    use ToolSet::{Nothing, Recall, Reminders};
    let (on, always, never) = (settings(WhenDue), settings(Always), settings(AddTools::Never));
    let off = RecoveryConfig { enabled: false, ..settings(Always) };
    // In each row: a prompt is due, reminders may begin, and the tools can be called.
    for (name, settings, had, facts, expected) in [
        ("nothing is due", &on, Nothing, [false, true, true], Later),
        ("a prompt is due", &on, Nothing, [true, true, true], Begin),
        ("beside recall", &on, Recall, [true, true, true], Begin),
        ("they cannot be called", &on, Nothing, [true, true, false], Later),
        ("they are held back", &on, Nothing, [true, false, true], Never),
        ("they are held back, and were sent", &on, Reminders, [true, false, true], Stay),
        ("always", &always, Nothing, [false, true, false], Begin),
        ("always, and held back", &always, Nothing, [true, false, true], Never),
        ("never", &never, Reminders, [true, true, true], Never),
        ("recovery is off", &off, Reminders, [true, true, true], Never),
    ] {
        let [prompt_is_due, may_begin, callable] = facts;
        let memory = RecoveryMemory::default();
        let rules = OfferRules { prompt_is_due, may_begin, ..rules(settings, false, &memory) };
        assert_eq!(ReminderTools::choose(rules, had, callable), expected, "{name}");
    }
    assert_eq!(Begin.or_wait(true), Wait);
    for other in [Never, Later, Stay] {
        assert_eq!(other.or_wait(true), other);
    }
}
