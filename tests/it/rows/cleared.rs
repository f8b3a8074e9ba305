//! Row 003.2: old tool content that is cleared from every request.

use super::{Meter, Program, messages_of, model_lines, say, tool_step, user};
use crate::support::words;

/// 003.2: with `clear_tools_at = 0` tool content older than the newest 2 rounds is cleared from what is sent, in
/// every request, before counting; texts and pairs stay, and so do the client's own messages.
#[tokio::test]
async fn row_003_2_old_tool_content_is_cleared() {
    let meter = Meter::start(say).await;
    let lines = model_lines(100_000, "[guard]\nclear_tools_at = 0\n");
    let program = Program::start(&meter.up, &lines).await;
    let mut agent = program.agent();
    agent.messages.truncate(1);
    for round in 1..=6 {
        agent.messages.push(user(&format!("Look at deck {round}.")));
        agent
            .messages
            .extend(tool_step(round, &[&words(300, round)]));
        let before = agent.messages.clone();
        let answered = agent.step().await;
        // The next question is the test's.
        agent.messages.truncate(before.len() + 1);
        assert_eq!(
            agent.messages[..before.len()],
            before,
            "the client's own messages"
        );
        let sent = meter.last_body();
        assert_eq!(messages_of(&sent).len(), before.len(), "round {round}");
        // Rounds that the model has answered: those before this one.
        let cleared = round.saturating_sub(3);
        for (message, now) in before.iter().zip(messages_of(&sent)) {
            let id = message["tool_call_id"].as_str().unwrap_or("");
            let nth: Option<usize> = id.split('_').nth(1).map(|nth| nth.parse().unwrap());
            if nth.is_some_and(|nth| nth <= cleared) {
                assert_eq!(message["tool_call_id"], now["tool_call_id"]);
                let text = now["content"].as_str().unwrap();
                assert!(text.len() < 300, "round {round}: {text}");
            } else {
                assert_eq!(message, now, "round {round}")
            }
        }
        assert_eq!(answered.action("dropped"), None);
        let told = answered
            .action("cleared")
            .map_or(0, |count| count.parse().unwrap());
        assert_eq!(told, cleared, "round {round}");
    }
}
