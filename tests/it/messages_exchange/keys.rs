//! Which credentials reach the provider.

use http::HeaderName;
use plimsoll::config::{Auth, secret::Secret};

use super::{message, text};
use crate::support::{MessagesAgent, SECRET, ScriptedProvider, answer};

#[tokio::test]
async fn both_kinds_of_credentials_pass_or_are_replaced() {
    let up = ScriptedProvider::start().await;
    let theirs = format!("{SECRET}-theirs");
    let ours = format!("{SECRET}-ours");
    let bearer = format!("Bearer {theirs}");
    let as_bearer = ("authorization", format!("Bearer {ours}"));
    let header = HeaderName::from_static("x-api-key");
    let key = Auth::Key(Secret::new(ours.clone()), "KEY".into());
    for (auth, key_header, expected) in [
        (Auth::Client, None, None),
        (Auth::None, None, Some(vec![])),
        (key.clone(), None, Some(vec![as_bearer])),
        (key, Some(header), Some(vec![("x-api-key", ours)])),
    ] {
        let proxy = up.proxy().providers(|provider| {
            provider.auth = auth.clone();
            provider.key_header = key_header.clone();
        });
        let proxy = proxy.start().await;
        let as_key = ("x-api-key", theirs.clone());
        let as_bearer = ("authorization", bearer.clone());
        for sent in [
            vec![as_key.clone()],
            vec![as_bearer.clone()],
            vec![as_bearer, as_key],
        ] {
            let mut agent = MessagesAgent::new(&proxy);
            for (name, value) in &sent {
                agent = agent.with(name, value);
            }
            let said = message(&[text("a")], "end_turn", 7);
            up.script_next([answer("200 OK", "", said)]);
            agent.ask().await;
            let seen = up.last_request();
            let names = ["authorization", "x-api-key"].into_iter();
            let found = names.filter_map(|name| Some((name, seen.header(name)?.to_owned())));
            let expected = expected.clone().unwrap_or(sent);
            assert_eq!(found.collect::<Vec<_>>(), expected);
            assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
        }
    }
}
