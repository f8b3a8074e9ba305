//! Generated sessions of clients that edit their own history. `cargo bench --bench million -- edits` runs many more.

use crate::support::client_sessions::edits::{DrawnEdits, run_edited};

/// Cases by their seeds: `EDITS_FIRST` and the `EDITS_COUNT` behind it, to look into a failure.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str, default| {
        let set = std::env::var(name).ok();
        set.map_or(default, |it| it.parse().unwrap())
    };
    let first = number("EDITS_FIRST", 0);
    first..first + number("EDITS_COUNT", count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_whose_clients_edit_their_history_stay_whole() {
    let (figures, failures) = run_edited(seeds(150).map(DrawnEdits::new), 8).await;
    println!("{figures:#?}");
    assert!(
        failures.is_empty(),
        "{failures:#?} {figures:#?}\nOne alone: EDITS_FIRST=seed EDITS_COUNT=1 cargo test --test it edited_histories"
    );
    assert!(figures["requests that must continue their session"] > 500);
    // Where few messages are left as they were, a session is not known again.
    let lost = figures.get("requests that got another session");
    assert!(10 * lost.unwrap_or(&0) < figures["requests that must continue their session"]);
    assert!(figures["reminders"] > 50);
}
