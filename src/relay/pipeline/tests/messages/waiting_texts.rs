//! Texts that wait until it is known whose they are.

use super::*;

#[test]
fn texts_wait_only_while_they_may_be_the_proxys() {
    let answer = answer_of(
        &[text_block(&["Hello", " <b>", " <cont", "rol>"])],
        "end_turn",
    );
    let stream = answer.stream("msg_0");
    let events: Vec<_> = stream.split_inclusive("\n\n").collect();
    let mut pipeline = filtering_as(FORMAT, BOTH, false);
    let mut counts = Vec::new();
    for event in &events {
        let mut out = VecDeque::new();
        pipeline.push(Bytes::copy_from_slice(event.as_bytes()), &mut out);
        let sent = out.iter().map(|piece| match piece {
            PipelineOutput::Bytes(bytes) => bytes.windows(2).filter(|it| it == b"\n\n").count(),
            PipelineOutput::End => 0,
        });
        counts.push(sent.sum::<usize>());
    }
    // message_start, block start (waits for its text), four pieces, stop, delta, stop.
    assert_eq!(counts, [1, 0, 2, 1, 0, 2, 1, 1, 1]);
}

#[test]
fn a_text_that_cannot_be_waited_for_is_the_clients() {
    let start = answer_of(&[text_block(&[OPENING, "a", CLOSING])], "end_turn").stream("msg_0");
    let (before, after) = start.split_once("event: content_block_stop").unwrap();
    let space = event(
        &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " "}}),
    );
    let stream = format!(
        "{before}{}event: content_block_stop{after}",
        space.repeat(2_000)
    );
    let relay = |size: usize| {
        let pipeline = filtering_as(FORMAT, BOTH, false);
        run_pipeline(
            pipeline,
            &[&stream, &answer_of(&[], "end_turn").stream("b")],
            |answer| cut_at(answer, size),
        )
    };
    let relayed = relay(usize::MAX);
    assert_eq!(relay(1_000), relayed);
    assert_eq!(
        accumulate(&relayed.bytes)["content"][0]["text"],
        " ".repeat(2_000)
    );
}
