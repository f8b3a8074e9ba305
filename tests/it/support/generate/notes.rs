//! Texts that clients put in the user's place.

use super::Random;

/// Elements of clients that are known by their names.
pub(crate) const KNOWN: [&str; 3] = ["system-reminder", "environment_details", "todo_list"];
/// One that is the client's once it stood behind results.
pub(crate) const LEARNT: &str = "ship_state";
/// One with words of the user.
pub(crate) const OF_USER: &str = "feedback";

/// One element or two; at times words of the user beside them.
pub(crate) fn write_note(random: &mut Random) -> String {
    let mut text = write_element(random);
    if random.chance(20) {
        text = format!("{text}\n\n{}", write_element(random));
    }
    match random.below(20) {
        0 => format!("{text}\nNow do part {}.", random.below(10_000)),
        1 => format!("Now do part {}.\n{text}", random.below(10_000)),
        _ => text,
    }
}

fn write_element(random: &mut Random) -> String {
    let [reminder, details, list] = KNOWN;
    let name = random.weighted(&[
        (8, reminder),
        (6, details),
        (2, list),
        (4, LEARNT),
        (1, OF_USER),
    ]);
    let lines = random.between(0, 40);
    let lines = format!("{} – é\n", random.below(10_000)).repeat(lines);
    format!("<{name}>\n{lines}</{name}>")
}
