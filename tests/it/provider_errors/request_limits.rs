//! A limit of tokens a minute that is smaller than the one request is a limit of that request: it is fitted once.

use plimsoll::conversation::FORMATS;
use serde_json::{Value, json};

use super::{Talk, check, count_tokens, header, start_provider};
use crate::support::{ProviderStep, answer, model_with_window};

const LIMIT: u64 = 6_000;

fn refuse(status: u16, tokens: u64) -> Vec<ProviderStep> {
    let message = format!(
        "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit {LIMIT}, Requested {tokens}, please reduce your message size and try again."
    );
    let error =
        json!({"error": {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}});
    vec![answer(&format!("{status} Refused"), "", error.to_string())]
}

/// Prompt and cap, as the limit counts them.
fn count_asked(body: &Value, tokens: u64) -> u64 {
    let caps = ["max_tokens", "max_output_tokens"];
    tokens
        + caps
            .iter()
            .filter_map(|cap| body[cap].as_u64())
            .sum::<u64>()
}

#[tokio::test]
async fn a_request_beyond_a_limit_a_minute_is_fitted_once() {
    for format in FORMATS {
        for (status, cap) in [(413, None), (429, None), (429, Some(4_000))] {
            let up = start_provider(move |body, tokens| {
                let asked = count_asked(body, tokens);
                (asked > LIMIT).then(|| refuse(status, asked))
            })
            .await;
            let proxy = up
                .proxy()
                .model("m", model_with_window(131_072))
                .start()
                .await;
            let mut talk = Talk::new(format, "one");
            talk.cap = cap;
            let came = talk.grow(9_000).ask(&proxy).await;
            check(&came, 200, "2", &format!("{format:?} {status} {cap:?}"));
            // It is no window.
            assert_eq!(header(&came, "context-limit"), "131072");
            assert!(count_tokens(&up.last_request().body) < LIMIT);
        }
    }
}

#[tokio::test]
async fn the_error_passes_where_fitting_does_not_help_or_the_limit_is_only_used_up() {
    for format in FORMATS {
        for status in [413, 429] {
            let up = start_provider(move |_, _| Some(refuse(status, 9_000))).await;
            let proxy = up
                .proxy()
                .model("m", model_with_window(131_072))
                .start()
                .await;
            let came = Talk::new(format, "one").grow(9_000).ask(&proxy).await;
            check(&came, status, "2", "fitted once");
            assert!(came.text().contains("Limit 6000"), "{}", came.text());
            let up = start_provider(move |_, _| Some(refuse(status, 5_000))).await;
            let proxy = up
                .proxy()
                .model("m", model_with_window(131_072))
                .start()
                .await;
            let came = Talk::new(format, "one").grow(9_000).ask(&proxy).await;
            check(&came, status, "1", "used up");
        }
    }
}
