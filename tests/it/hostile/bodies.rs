//! Hostile bodies: JSON that is expensive to read, or that proxy and provider may read differently.

use super::{ASK, pair};

/// A body that is not understood, or only looks odd, is forwarded unchanged.
#[tokio::test]
async fn odd_json_is_forwarded_unchanged() {
    let (up, proxy) = pair().await;
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let talk = |text: &str| {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#)
    };
    let beside = |more: &str| ASK.replacen('{', &format!("{{{more},"), 1);
    let bodies: Vec<Vec<u8>> = vec![
        beside(&format!("\"x\":{}", deep(120))).into(),
        beside(&format!("\"x\":{}", deep(100_000))).into(),
        beside(&format!(
            "\"x\":{}",
            "{\"a\":".repeat(50_000) + "1" + &"}".repeat(50_000)
        ))
        .into(),
        ASK.replacen(
            "\"content\":\"x\"",
            &format!("\"content\":{}", deep(100_000)),
            1,
        )
        .into(),
        beside("\"model\":\"m\"").into(),
        ASK.replacen("\"role\"", "\"role\":\"system\",\"role\"", 1)
            .into(),
        beside("\"messages\":[]").into(),
        talk("\\ud800 \\udc00\\ud800").into(),
        talk("\\u0000").into(),
        talk("\\x").into(),
        talk("~")
            .bytes()
            .map(|byte| if byte == b'~' { 0xff } else { byte })
            .collect(),
        [b"\xef\xbb\xbf".as_slice(), ASK.as_bytes()].concat(),
        beside(&format!("\"seed\":{}", "9".repeat(1_000_000))).into(),
        beside(&format!("\"temperature\":0.{}", "1".repeat(1_000_000))).into(),
        beside(&format!("\"max_tokens\":1e{}", "9".repeat(10_000))).into(),
        beside(&format!("\"{}\":1", "k".repeat(1_000_000))).into(),
        beside(
            &(0..5_000)
                .map(|at| format!("\"k{at}\":1"))
                .collect::<Vec<_>>()
                .join(","),
        )
        .into(),
        format!(
            r#"{{"model":"m","messages":[{}]}}"#,
            vec![r#"{"role":"user","content":""}"#; 2_000].join(",")
        )
        .into(),
    ];
    for (count, body) in bodies.into_iter().enumerate() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(90)]).into_owned();
        let got = proxy.chat(body.clone()).await;
        assert_eq!(got.status, 200, "{shown}: {}", got.text());
        let seen = up.requests(count + 1).await.pop().unwrap();
        assert!(
            seen.body == body,
            "{shown}: {} bytes became {}",
            body.len(),
            seen.body.len()
        );
    }
}

/// Invalid JSON is refused with the position of the fault.
#[tokio::test]
async fn invalid_json_is_refused() {
    let (up, proxy) = pair().await;
    for body in [
        b"".to_vec(),
        b"\0".to_vec(),
        vec![b'['; 1_000_000],
        vec![b'"'; 999_999],
        ASK.as_bytes()[..ASK.len() - 1].to_vec(),
        format!("{ASK}{ASK}").into(),
        format!("{ASK}\0").into(),
        ASK.replace("\"x\"", "NaN").replace("}]", "}],}").into(),
        ASK.encode_utf16().flat_map(u16::to_le_bytes).collect(),
    ] {
        let got = proxy.chat(body.clone()).await;
        assert_eq!(
            got.status,
            400,
            "{:?}",
            String::from_utf8_lossy(&body[..body.len().min(80)])
        );
        got.is_error(400, "invalid_json");
        assert!(got.body.len() < 2_000, "the body is not repeated");
    }
    assert_eq!(up.count_requests(), 0);
}
