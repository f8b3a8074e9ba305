use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::{collection::vec, prelude::*};

use super::{MAX_RETRY_AFTER, RetryBudget, RetryClass, classify_status, parse_retry_after};
use crate::config::RetryConfig;

const MS: Duration = Duration::from_millis(1);

fn rules() -> RetryConfig {
    RetryConfig {
        max_retries: 3,
        max_attempts: 6,
        max_time: 60_000 * MS,
        base_delay: 500 * MS,
        max_delay: 8_000 * MS,
    }
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_static(name);
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

#[test]
fn every_status_has_its_class() {
    use RetryClass::{Busy, Denied, Failed, Final};
    let successes_and_refusals = [
        100, 200, 204, 301, 304, 400, 404, 409, 413, 422, 499, 501, 505,
    ];
    for (statuses, configured_key, client_key) in [
        (&[429][..], Busy, Busy),
        (&[408, 500, 502, 503, 504, 520, 529], Failed, Failed),
        (&[401, 402, 403], Denied, Final),
        (&successes_and_refusals, Final, Final),
    ] {
        for status in statuses {
            let status = StatusCode::from_u16(*status).unwrap();
            assert_eq!(classify_status(status, true), configured_key, "{status}");
            assert_eq!(classify_status(status, false), client_key, "{status}");
        }
    }
}

#[test]
fn retry_after_is_read_in_all_its_forms() {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    let check = |lines: &[(&'static str, &str)], expected: Option<Duration>| {
        let found = parse_retry_after(&headers(lines), now);
        assert_eq!(found, expected, "{lines:?}");
    };
    check(&[], None);
    for (value, expected) in [
        ("7", Some(7_000 * MS)),
        (" 7 ", Some(7_000 * MS)),
        ("0", Some(Duration::ZERO)),
        ("1.5", Some(1_500 * MS)),
        ("1e2", Some(100_000 * MS)),
        ("99999999999999999999", Some(MAX_RETRY_AFTER)),
        ("Sun, 06 Nov 1994 08:49:49 GMT", Some(12_000 * MS)),
        ("Sunday, 06-Nov-94 08:49:49 GMT", Some(12_000 * MS)),
        ("Sun Nov  6 08:49:49 1994", Some(12_000 * MS)),
        ("Sun, 06 Nov 1994 08:49:00 GMT", Some(Duration::ZERO)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Some(MAX_RETRY_AFTER)),
        ("-1", None),
        ("NaN", None),
        ("inf", None),
        ("1e999", None),
        ("7 seconds", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("", None),
    ] {
        check(&[("retry-after", value)], expected);
    }
    let both = [("retry-after-ms", "250"), ("retry-after", "9")];
    check(&both, Some(250 * MS));
    check(&[("retry-after-ms", "0.5")], Some(MS / 2));
    // An unreadable header does not hide the other.
    let both = [("retry-after-ms", "soon"), ("retry-after", "9")];
    check(&both, Some(9_000 * MS));
}

#[test]
fn waits_double_up_to_their_limit_and_retries_end() {
    let now = Instant::now();
    let budget = |rules| RetryBudget::new(rules, &HeaderMap::new(), now);
    let many = RetryConfig {
        max_retries: 20,
        ..rules()
    };
    let wait = |retries, chance| budget(many).retry_delay(retries, None, now, chance);
    for (retries, longest) in [(0, 500), (1, 1_000), (2, 2_000), (4, 8_000), (19, 8_000)] {
        assert_eq!(wait(retries, 0.0), Some(longest * MS / 2), "{retries}");
        assert_eq!(wait(retries, 1.0), Some(longest * MS), "{retries}");
    }
    assert!(budget(rules()).retry_delay(2, None, now, 0.5).is_some());
    assert_eq!(budget(rules()).retry_delay(3, None, now, 0.5), None);
    let off = RetryConfig {
        max_retries: 0,
        ..rules()
    };
    assert_eq!(budget(off).retry_delay(0, None, now, 0.5), None);
}

#[test]
fn retry_after_is_honoured_up_to_the_longest_delay() {
    let now = Instant::now();
    let budget = RetryBudget::new(rules(), &HeaderMap::new(), now);
    let wait = |after| budget.retry_delay(0, Some(after), now, 0.0);
    assert_eq!(wait(3 * MS), Some(3 * MS));
    assert_eq!(wait(8_000 * MS), Some(8_000 * MS));
    assert_eq!(wait(8_001 * MS), None);
    // Zero counts as none.
    assert_eq!(wait(Duration::ZERO), Some(250 * MS));
}

#[test]
fn attempts_and_time_run_out() {
    let begun = Instant::now();
    let mut budget = RetryBudget::new(rules(), &HeaderMap::new(), begun);
    for spent in 1..6 {
        budget.count_attempt();
        assert_eq!(budget.attempts, spent);
        assert!(budget.has_attempts_left(begun + 59_999 * MS), "{spent}");
        assert!(!budget.has_attempts_left(begun + 60_000 * MS), "{spent}");
    }
    budget.count_attempt();
    assert!(!budget.has_attempts_left(begun));
    assert_eq!(budget.retry_delay(0, None, begun, 0.0), None);

    let mut budget = RetryBudget::new(rules(), &HeaderMap::new(), begun);
    budget.count_attempt();
    let late = begun + 59_800 * MS;
    assert!(budget.has_attempts_left(late));
    assert_eq!(budget.retry_delay(0, None, late, 0.0), None);
    assert_eq!(
        budget.retry_delay(0, Some(100 * MS), late, 0.0),
        Some(100 * MS)
    );

    // Without time for a second attempt there is a first one all the same.
    let hasty = RetryConfig {
        max_time: Duration::ZERO,
        ..rules()
    };
    let mut budget = RetryBudget::new(hasty, &HeaderMap::new(), begun);
    assert!(budget.has_attempts_left(begun));
    budget.count_attempt();
    assert!(!budget.has_attempts_left(begun));
}

#[test]
fn nothing_is_retried_for_a_client_that_retries() {
    let now = Instant::now();
    let budget = |lines| {
        let mut budget = RetryBudget::new(rules(), &headers(lines), now);
        budget.count_attempt();
        budget
    };
    let retries = |lines| budget(lines).retry_delay(0, None, now, 0.0).is_some();
    assert!(retries(&[("x-stainless-retry-count", "0")]));
    assert!(retries(&[("x-stainless-retry-count", "many")]));
    assert!(!retries(&[("x-stainless-retry-count", "1")]));
    // A fallback is still tried.
    assert!(budget(&[("x-stainless-retry-count", "1")]).has_attempts_left(now));

    let wait = |lines, after| budget(lines).retry_delay(0, Some(after), now, 0.0);
    let patient = &[("x-stainless-timeout", "2")];
    assert_eq!(wait(patient, 1_999 * MS), Some(1_999 * MS));
    assert_eq!(wait(patient, 2_000 * MS), None);
    // Libraries that count whole seconds write less than one as zero.
    assert_eq!(wait(&[("x-stainless-timeout", "0")], MS), None);
    for nonsense in ["NOT_GIVEN", "-1", "NaN", ""] {
        let budget = RetryBudget::new(rules(), &headers(&[("x-stainless-timeout", nonsense)]), now);
        let wait = budget.retry_delay(0, Some(5_000 * MS), now, 0.0);
        assert_eq!(wait, Some(5_000 * MS), "{nonsense}");
    }
    let spent = budget(patient).retry_delay(0, Some(MS), now + 2_000 * MS, 0.0);
    assert_eq!(spent, None, "counted from the beginning");
}

fn any_rules() -> impl Strategy<Value = RetryConfig> {
    let ms = |most: u32| (0..most).prop_map(|ms| ms * MS);
    (0_u32..30, 1_u32..30, ms(100_000), ms(20_000), ms(20_000)).prop_map(
        |(max_retries, max_attempts, max_time, base_delay, max_delay)| RetryConfig {
            max_retries,
            max_attempts,
            max_time,
            base_delay,
            max_delay,
        },
    )
}

proptest! {
    #[test]
    fn any_header_is_read_within_a_day(name in 0..2, value in vec(any::<u8>(), 0..40)) {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            let names = ["retry-after", "retry-after-ms"];
            headers.append(names[name as usize], value.clone());
            headers.append("x-stainless-timeout", value.clone());
            headers.append("x-stainless-retry-count", value);
        }
        prop_assert!(parse_retry_after(&headers, SystemTime::now()).is_none_or(|after| after <= MAX_RETRY_AFTER));
        let budget = RetryBudget::new(rules(), &headers, Instant::now());
        prop_assert!(budget.client_timeout.is_none_or(|timeout| timeout <= MAX_RETRY_AFTER));
    }

    /// Whatever the failures and the `Retry-After` of each, a request stays within its bounds.
    #[test]
    fn a_request_stays_within_its_bounds(
        rules in any_rules(),
        timeout in proptest::option::of(0_u32..100),
        fates in vec((any::<f64>(), proptest::option::of(0_u32..30_000), 0_u32..5_000), 1..60),
    ) {
        let begun = Instant::now();
        let timeout = timeout.map(|timeout| timeout.to_string());
        let lines: Vec<_> = timeout.iter().map(|t| ("x-stainless-timeout", t.as_str())).collect();
        let mut budget = RetryBudget::new(rules, &headers(&lines), begun);
        let (mut now, mut retries, mut before) = (begun, 0, 0);
        for (chance, after, takes) in fates {
            prop_assert!(budget.has_attempts_left(now));
            budget.count_attempt();
            prop_assert_eq!(budget.attempts, before + 1);
            before = budget.attempts;
            now += takes * MS;
            let after = after.map(|ms| ms * MS);
            let Some(wait) = budget.retry_delay(retries, after, now, chance) else {
                break;
            };
            prop_assert!(wait <= rules.max_delay);
            prop_assert!(after.is_none_or(|after| after.is_zero() || wait == after));
            now += wait;
            prop_assert!(now - begun < rules.max_time);
            let given_up = timeout.as_ref().map(|t| Duration::from_secs(t.parse().unwrap()));
            prop_assert!(given_up.is_none_or(|given_up| now - begun < given_up));
            retries += 1;
        }
        prop_assert!(retries <= rules.max_retries);
        prop_assert!(budget.attempts <= rules.max_attempts);
    }

    #[test]
    fn without_a_header_waits_never_shrink_but_by_jitter(rules in any_rules(), chance in 0.0..1.0) {
        let rules = RetryConfig { max_time: MAX_RETRY_AFTER, max_retries: 100, ..rules };
        let now = Instant::now();
        let budget = RetryBudget::new(rules, &HeaderMap::new(), now);
        let waits: Vec<_> = (0..100).map(|n| budget.retry_delay(n, None, now, chance).unwrap()).collect();
        prop_assert!(waits.is_sorted());
    }
}
