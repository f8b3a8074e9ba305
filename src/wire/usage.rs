//! The tokens a provider reported, in every shape seen.
//!
//! Usage is the only source of health, so nothing is guessed here: a number that cannot be a
//! count of tokens is no number.

use serde_json::Value;

/// What one answer cost, as its provider counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: Option<u32>,
    /// The part of the prompt that came from the provider's cache.
    pub cached_tokens: Option<u32>,
    pub total_tokens: Option<u32>,
}

impl Usage {
    /// Reads a `usage` object (the text of its JSON).
    pub fn read(json: &str) -> Option<Self> {
        if !json.starts_with('{') {
            return None;
        }
        let usage: Value = serde_json::from_str(json).ok()?;
        let first = |names: &[&str]| names.iter().find_map(|name| count(usage.get(name)));
        Some(Self {
            prompt_tokens: first(&["prompt_tokens", "input_tokens"])?,
            completion_tokens: first(&["completion_tokens", "output_tokens"]),
            cached_tokens: ["prompt_tokens_details", "input_tokens_details"]
                .iter()
                .find_map(|details| count(usage.get(details)?.get("cached_tokens")))
                .or_else(|| {
                    first(&[
                        "prompt_cache_hit_tokens",
                        "num_cached_tokens",
                        "cached_tokens",
                    ])
                }),
            total_tokens: first(&["total_tokens"]),
        })
    }

    /// The later of two reports of one answer: reports are cumulative, but some providers fill
    /// in zeros where they have nothing to say.
    pub fn later(earlier: Option<Self>, later: Self) -> Self {
        match earlier {
            Some(earlier) if later.prompt_tokens == 0 => earlier,
            _ => later,
        }
    }
}

/// A count of tokens: a whole number of 32 bits, however it is spelt (`12`, `12.0`).
fn count(value: Option<&Value>) -> Option<u32> {
    let number = value?.as_number()?;
    if let Some(whole) = number.as_u64() {
        return u32::try_from(whole).ok();
    }
    let float = number.as_f64()?;
    (float.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&float)).then_some(float as u32)
}

#[cfg(test)]
mod tests {
    use super::Usage;

    #[test]
    fn reads_every_shape() {
        let check = |json: &str, expected: Option<(u32, Option<u32>, Option<u32>)>| {
            let found = Usage::read(json).map(|usage| {
                (
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.cached_tokens,
                )
            });
            assert_eq!(found, expected, "{json}");
        };
        check(
            r#"{"prompt_tokens":3,"completion_tokens":4}"#,
            Some((3, Some(4), None)),
        );
        check(
            r#"{"prompt_tokens":3.0,"completion_tokens":null}"#,
            Some((3, None, None)),
        );
        check(
            r#"{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}"#,
            Some((3, None, Some(2))),
        );
        check(
            r#"{"prompt_tokens":3,"prompt_tokens_details":null,"prompt_cache_hit_tokens":2}"#,
            Some((3, None, Some(2))),
        );
        check(
            r#"{"prompt_tokens":3,"num_cached_tokens":1}"#,
            Some((3, None, Some(1))),
        );
        check(
            r#"{"prompt_tokens":3,"cached_tokens":1,"cost":0.01}"#,
            Some((3, None, Some(1))),
        );
        check(
            r#"{"prompt_tokens":3,"completion_tokens":-4}"#,
            Some((3, None, None)),
        );
        for absurd in ["-1", "4294967296", "1e300", "1.5", "\"3\"", "null", "[]"] {
            check(&format!(r#"{{"prompt_tokens":{absurd}}}"#), None);
        }
        check("null", None);
        check("{}", None);
    }
}
