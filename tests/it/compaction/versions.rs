//! Both versions of Anthropic's API: the proxy's own requests carry that of the client, and nothing goes out that only the
//! older one takes.

use plimsoll::guard::profile::find_profile;
use serde_json::json;

use super::{Pair, good_summary};
use crate::support::{
    MessagesAgent, ModelReply, ProxyBuilder, strict::version::NEW_VERSION, words,
};

/// An agent of this version, whose conversation begins with a cited answer.
fn agent_of_version(
    client: impl Into<crate::support::client::TestClient>,
    version: &str,
) -> MessagesAgent {
    let mut agent = MessagesAgent::new(client).with("anthropic-version", version);
    agent.result = 500;
    let source = json!({"type": "char_location", "cited_text": "tar", "document_index": 0});
    let cited = json!([{"type": "text", "text": words(200, 1), "citations": [source]}]);
    agent.push("assistant", cited);
    agent.push("user", "Go on.");
    agent
}

fn speak_messages(proxy: ProxyBuilder) -> ProxyBuilder {
    let profile = find_profile("anthropic").unwrap();
    proxy.providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    })
}

#[tokio::test]
async fn a_summary_has_the_version_of_the_client_wherever_it_is_made() {
    for (version, elsewhere) in [
        ("2023-06-01", false),
        ("2023-06-01", true),
        (NEW_VERSION, false),
        (NEW_VERSION, true),
    ] {
        let pair = Pair::new(good_summary).await;
        let other = Pair::new(good_summary).await;
        let summariser = if elsewhere { &other } else { &pair };
        let proxy = speak_messages(pair.proxy().provider("other", &other.up.provider));
        let proxy = proxy.set(|config| {
            config.default_provider = Some("up".into());
            config.compaction.model = elsewhere.then(|| "other/tiny".into());
            config.recovery.enabled = true;
            for provider in config.providers.values_mut() {
                provider.auth = plimsoll::config::Auth::None;
            }
        });
        let proxy = proxy.start().await;
        let mut agent = agent_of_version(&proxy, version);
        let mut steps = 0;
        while summariser.summary_requests() == 0 {
            agent.step().await;
            steps += 1;
            assert!(steps < 60, "no summary");
        }
        // Cut and prompted, with the summary in its place.
        agent.steps(20).await;
        for model in [&pair.up, &other.up] {
            model.assert_no_faults();
            let seen = model.provider.requests(model.count()).await;
            for request in seen {
                assert_eq!(request.header("anthropic-version"), Some(version));
                assert!(request.header("x-api-key").is_none());
            }
        }
        assert_eq!(other.up.count() > 0, elsewhere);
    }
}

#[tokio::test]
async fn the_members_of_the_older_version_go_on_and_their_refusal_too() {
    let pair = Pair::new(|_, _| ModelReply::text("not asked")).await;
    let proxy = speak_messages(pair.proxy()).start().await;
    let agent = agent_of_version(&proxy, "2023-06-01").set("temperature", 1.0);
    assert_eq!(agent.send().await.status, 200);
    let refused = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "temperature: Extra inputs are not permitted"}});
    let refusal = crate::support::answer("400 Bad Request", "", refused.to_string());
    pair.up.provider.script_next([refusal]);
    let agent = agent.with("anthropic-version", NEW_VERSION);
    let got = agent.send().await;
    assert_eq!((got.status.as_u16(), got.json()), (400, refused));
    assert_eq!(
        pair.up.provider.last_request().header("anthropic-version"),
        Some(NEW_VERSION)
    );
}
