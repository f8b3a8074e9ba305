//! What a refusal teaches of a window that is not known.

use super::*;

#[tokio::test]
async fn one_refusal_teaches_the_window_of_an_unknown_model() {
    for (model, streams, profile, refusal) in [
        (
            "nobody-knows-me",
            false,
            "openai",
            refuse_as_openai as fn(u32, u64) -> Vec<ProviderStep>,
        ),
        ("nobody-knows-me", true, "openai", refuse_as_openai),
        ("nobody-knows-me", true, "template", refuse_in_stream),
        ("nobody-knows-me", false, "openai", refuse_without_numbers),
        ("gpt-4-prod", false, "openai", refuse_as_openai),
        ("gpt-4-prod", false, "openai", refuse_without_numbers),
    ] {
        let provider = counting(32_768, refusal).await;
        let proxy = provider.up.proxy().providers(|provider| {
            provider.profile = find_profile(profile).unwrap();
        });
        let proxy = proxy.start().await;
        let mut talk = Talk {
            streams,
            ..Talk::new(model)
        };
        let (mut attempts, mut cut) = (Vec::new(), 0);
        for _ in 0..20 {
            talk.grow();
            let came = talk.ask(&proxy, "off").await;
            assert_eq!(came.status, 200, "{}", came.text());
            attempts.push(header(&came, "attempts").to_owned());
            cut += usize::from(is_cut(&came));
        }
        assert_eq!(provider.refused.load(SeqCst), 1, "{attempts:?}");
        let refitted = attempts.iter().filter(|attempts| *attempts == "2").count();
        assert_eq!((refitted, attempts.len()), (1, 20), "{attempts:?}");
        assert!(cut > 10, "{cut}");
    }
}

#[tokio::test]
async fn a_long_first_request_heals_without_numbers() {
    let provider = counting(32_768, refuse_without_numbers).await;
    let proxy = provider.up.proxy().start().await;
    let mut talk = Talk::new("nobody-knows-me");
    for _ in 0..50 {
        talk.grow();
    }
    let came = talk.ask(&proxy, "off").await;
    // What is assumed is tried next, and then less.
    assert_eq!(came.status, 200, "{}", came.text());
    assert!(
        header(&came, "actions").ends_with("refitted=2"),
        "{}",
        header(&came, "actions")
    );
    talk.grow();
    let came = talk.ask(&proxy, "off").await;
    assert_eq!(header(&came, "attempts"), "1");
}

/// The last try keeps only what must stay.
#[tokio::test]
async fn a_first_request_far_beyond_the_window_heals_without_numbers() {
    for (window, steps, most) in [(6_000, 17, 3), (6_000, 150, 3), (6_000, 300, 3)] {
        for refusal in [
            refuse_without_numbers as fn(u32, u64) -> Vec<ProviderStep>,
            refuse_without_words,
        ] {
            let provider = counting(window, refusal).await;
            let proxy = provider.up.proxy().start().await;
            let mut talk = Talk::new("nobody-knows-me");
            talk.lines = 100;
            for _ in 0..steps {
                talk.grow();
            }
            let came = talk.ask(&proxy, "on").await;
            assert_eq!(came.status, 200, "{window} {steps}: {}", came.text());
            // What stays is whole.
            let newest = talk.messages.last().unwrap()["content"].as_str().unwrap();
            let sent = String::from_utf8_lossy(&provider.up.last_request().body).into_owned();
            assert!(sent.contains(newest), "{window} {steps}");
            let refused = provider.refused.load(SeqCst);
            assert!(refused <= most, "{window} {steps}: {refused}");
            // Each request is answered, and most at once.
            let mut attempts = Vec::new();
            for _ in 0..5 {
                talk.grow();
                let came = talk.ask(&proxy, "on").await;
                assert_eq!(came.status, 200, "{window} {steps}: {}", came.text());
                attempts.push(header(&came, "attempts").to_owned());
            }
            let again = attempts.iter().filter(|it| *it != "1").count();
            assert!(again <= 2, "{window} {steps} {attempts:?}");
        }
    }
}

/// Where what must stay is refused too, the refusal is about something else.
#[tokio::test]
async fn a_refusal_of_the_least_teaches_others_nothing() {
    let up = ScriptedProvider::start_answering(|seen: &ReceivedRequest| {
        let body = String::from_utf8_lossy(&seen.body);
        if body.contains("BADDOC") {
            refuse_without_numbers(0, 0)
        } else {
            let message = json!({"role": "assistant", "content": "Well."});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            let usage = json!({"prompt_tokens": body.len() / 4, "completion_tokens": 3});
            let body = json!({"object": "chat.completion", "choices": [choice], "usage": usage});
            vec![answer("200 OK", "", body.to_string())]
        }
    })
    .await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(200_000))
        .start()
        .await;
    let mut talk = Talk::new("m");
    for _ in 0..10 {
        talk.grow();
    }
    assert_eq!(talk.ask(&proxy, "on").await.status, 200);
    let mut bad = Talk::new("m");
    bad.messages[0]["content"] = "BADDOC".into();
    for _ in 0..10 {
        bad.grow();
    }
    assert_eq!(bad.ask(&proxy, "on").await.status, 400);
    talk.messages[0]["content"] = "Another session.".into();
    let came = talk.ask(&proxy, "on").await;
    assert!(!is_cut(&came), "{}", header(&came, "actions"));
}
