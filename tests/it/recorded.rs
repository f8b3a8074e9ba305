//! The recordings are as described, so that no test over them runs on nothing.

use plimsoll::guard::profile;

use crate::support::{count::TokenCounter, data, strict};

#[test]
fn recordings_are_complete_or_absent() {
    let requests = data::requests();
    if requests.is_empty() {
        return;
    }
    assert!(requests.len() >= 20 && data::unusual().len() >= 40);
    assert!(data::responses().len() >= 80 && data::errors().len() >= 50);
    let known = data::responses();
    assert!(
        known
            .iter()
            .all(|response| response.about["provider"].is_string())
    );
    let truth = data::token_truth().unwrap();
    assert!(truth.pairs.len() > 300 && truth.steps.len() == 366);
    assert!(data::request(&truth.session).is_some());
    for recorded in requests {
        let found = strict::find_violations(&recorded.body, &profile::PROFILES[0]);
        assert_eq!(found, [], "{}", recorded.name);
    }
}

#[test]
fn the_test_token_count_is_near_the_reported_usage() {
    let Some(truth) = data::token_truth() else {
        return;
    };
    let counter = TokenCounter::o200k();
    let mut off: Vec<u64> = truth
        .pairs
        .iter()
        .filter(|pair| pair.provider == "openai" && pair.prompt_tokens > 100)
        .map(|pair| {
            counter.request(&pair.request).abs_diff(pair.prompt_tokens) * 100 / pair.prompt_tokens
        })
        .collect();
    off.sort_unstable();
    assert!(!off.is_empty());
    assert!(
        off[off.len() / 2] <= 25,
        "median error {} %",
        off[off.len() / 2]
    );
}
