//! No text of a summary or of its messages in the log or the metrics.

use tracing::Level;

use super::{Pair, agent_past_threshold, bad, good_summary, wait_for_summary};
use crate::support::{ModelReply, log::ThreadLog, wait_until};

#[tokio::test]
async fn the_log_of_summaries_has_no_text() {
    let log = ThreadLog::begin(Level::TRACE);
    let pair = Pair::new(|heard, nth| match nth {
        0 => good_summary(heard, nth),
        1 => ModelReply::text("The keel is of secret oak."),
        _ => bad::BAD[nth % (bad::BAD.len() - 1)].1(heard),
    })
    .await;
    let proxy = pair.proxy().start().await;
    for nth in 0..6 {
        let mut agent = agent_past_threshold(&proxy).with("authorization", "Bearer sk-secret-own");
        agent.messages[1]["content"] = format!("Ship {nth} of secret oak").into();
        let generation = agent.step().await;
        wait_for_summary(&agent, &generation).await;
    }
    // Logged after the summary is stored with the session, which the test waits for.
    let told = |word: &str| {
        let text = log.text();
        text.lines().filter(|line| line.contains(word)).count()
    };
    wait_until(|| told("was summarised") == 1 && told("summary failed") >= 4).await;
    let text = log.text();
    for word in [r#""replaced_tokens":"#, r#""calls":1"#, r#""ms":"#] {
        assert!(text.contains(word), "{word}");
    }
    let metrics = proxy.client().get("/metrics").await;
    for said in [
        "secret oak",
        "Afloat",
        "keel",
        "sk-secret",
        "next_steps",
        "deck_",
    ] {
        assert!(!text.contains(said), "{said} in the log");
        assert!(!metrics.text().contains(said), "{said} in the metrics");
    }
}
