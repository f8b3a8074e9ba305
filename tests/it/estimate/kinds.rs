//! The estimate of texts by kind, against counts of the vocabularies themselves.

use plimsoll::{
    config::tokens::find_token_rule,
    guard::{estimate::Weights, profile::find_profile},
};

use crate::support::{
    count::TokenCounter,
    generate::figures::{KINDS, write_kind},
};

/// A model of each family, in the order of the counts.
const MODELS: [&str; 8] = [
    "gpt-4o",
    "gpt-4",
    "llama-3.3",
    "llama-4",
    "qwen3",
    "mistral-large",
    "deepseek-chat",
    "gemini-2.5-pro",
];

/// The part of each kind that the weights were not fitted on.
const PART: u64 = 8;

/// Tokens of [`PART`] of each kind by o200k, cl100k, Llama 3, Llama 4, Qwen 3, Tekken, DeepSeek V3 and Gemma 3.
#[rustfmt::skip]
const COUNTS: &[(&str, [u32; 8])] = &[
    ("column of integers", [2256, 2256, 2256, 2256, 4000, 4000, 2256, 4000]),
    ("column of long integers", [1716, 1716, 1716, 1716, 4004, 4004, 1716, 4004]),
    ("integers in a row", [2778, 2778, 2778, 2778, 4000, 4000, 2778, 4000]),
    ("integers between blanks", [2583, 2583, 2583, 2583, 4001, 4001, 2583, 4001]),
    ("matrix of small integers", [2244, 2244, 2244, 2244, 3958, 3958, 2244, 4026]),
    ("aligned columns", [1284, 1277, 1277, 1284, 1685, 1696, 1029, 1452]),
    ("CSV of figures", [2362, 2362, 2362, 2362, 3983, 3983, 2362, 3983]),
    ("CSV with names", [1394, 1378, 1378, 1395, 1782, 1814, 1538, 1949]),
    ("columns between tabs", [2047, 2039, 2039, 2047, 3256, 3276, 2051, 3279]),
    ("JSON of floats", [1930, 1921, 1921, 1930, 3822, 3831, 1930, 3831]),
    ("JSON of floats, spaced", [2030, 2030, 2030, 2030, 2785, 2785, 2030, 2855]),
    ("JSON of records", [1554, 1534, 1534, 1537, 2229, 2323, 1555, 2256]),
    ("JSON of lines", [1582, 1579, 1579, 1582, 1747, 1759, 1586, 2041]),
    ("log", [1694, 1685, 1685, 1694, 2289, 2318, 1726, 2377]),
    ("access log", [2166, 2160, 2160, 2166, 3104, 3113, 2163, 3114]),
    ("build log", [1937, 1935, 1935, 1937, 2691, 2693, 1932, 2692]),
    ("hex dump", [2554, 2554, 2552, 2557, 3290, 3309, 2573, 3341]),
    ("hashes", [2005, 1985, 1985, 1994, 2725, 2802, 2075, 2887]),
    ("hex in one line", [2318, 2303, 2303, 2319, 3513, 3563, 2346, 3526]),
    ("hex words", [2993, 2873, 2872, 3009, 3587, 3731, 2923, 3608]),
    ("UUIDs", [2563, 2575, 2575, 2572, 3478, 3499, 2598, 3632]),
    ("addresses", [2510, 2512, 2512, 2510, 3502, 3584, 2513, 3609]),
    ("base64", [2759, 2903, 2895, 2728, 2991, 3059, 2822, 2824]),
    ("base64 in one line", [2760, 2901, 2893, 2728, 2997, 3068, 2823, 2831]),
    ("keys", [2380, 2405, 2403, 2315, 2527, 2676, 2391, 2645]),
    ("random letters", [1953, 2040, 2034, 1955, 2040, 2133, 2065, 1942]),
    ("diff", [1335, 1316, 1316, 1339, 1471, 1511, 1363, 1776]),
    ("diff of figures", [1999, 1941, 1941, 1999, 2395, 2454, 1999, 2632]),
    ("table in Markdown", [2079, 2079, 2079, 2079, 2613, 2613, 2079, 2724]),
    ("aligned table in Markdown", [1669, 1669, 1669, 1669, 1995, 1995, 1470, 1875]),
    ("table in box drawing", [787, 814, 814, 652, 782, 944, 714, 736]),
    ("sentences with numbers", [1404, 1404, 1404, 1404, 1735, 1738, 1409, 1735]),
    ("dates and times", [2550, 2550, 2550, 2550, 3719, 3719, 2550, 3719]),
    ("sums of money", [1592, 1592, 1592, 1595, 2345, 2353, 1601, 2449]),
    ("telephone numbers", [2332, 2332, 2332, 2332, 3801, 3801, 2332, 3801]),
    ("metrics", [1542, 1536, 1536, 1458, 2076, 2105, 1572, 2265]),
    ("listing of files", [1674, 1673, 1673, 1611, 1973, 1987, 1550, 2041]),
    ("SQL", [1341, 1333, 1333, 1341, 1556, 1568, 1340, 1636]),
    ("minified script", [1579, 1583, 1583, 1589, 1771, 1830, 1651, 2158]),
    ("path of a drawing", [2708, 2617, 2617, 2708, 3870, 3961, 2708, 3961]),
    ("assembly", [1937, 1937, 1937, 1945, 2298, 2307, 1799, 2327]),
    ("binary digits", [1780, 1780, 1780, 1780, 4005, 4005, 1780, 4005]),
    ("one long number", [1344, 1344, 1344, 1344, 4032, 4032, 1344, 4032]),
    ("capitals", [1148, 1130, 1130, 1158, 1343, 1495, 1371, 1698]),
    ("humps", [918, 899, 899, 924, 937, 990, 961, 1169]),
    ("URLs", [1434, 1429, 1429, 1432, 1736, 1878, 1572, 2052]),
    ("settings", [1741, 1733, 1733, 1741, 2027, 2039, 1742, 2133]),
    ("traceback", [1229, 1187, 1187, 1188, 1293, 1329, 1319, 1635]),
    ("numbered lines", [1348, 1336, 1336, 1348, 1611, 1623, 1219, 1777]),
    ("found lines", [1155, 1137, 1137, 1156, 1241, 1316, 1237, 1451]),
    ("list of words", [1249, 1241, 1241, 1248, 1241, 1283, 1278, 1237]),
    ("progress", [1717, 1711, 1711, 1711, 2200, 2234, 1730, 2276]),
    ("markup", [1533, 1531, 1531, 1530, 1713, 1719, 1539, 1440]),
    ("Chinese words", [783, 1037, 834, 733, 788, 1213, 739, 760]),
    ("Japanese words", [889, 1256, 836, 736, 829, 848, 781, 642]),
    ("Korean words", [817, 1276, 882, 696, 1023, 859, 1015, 770]),
    ("emoji", [1751, 2644, 2456, 1913, 1587, 3482, 1815, 1392]),
];

pub(super) fn weigh(model: &str, text: &str) -> f64 {
    let profile = find_profile("template").unwrap();
    Weights::new(find_token_rule(model, profile), profile, None).plain_weight(text)
}

/// Row 001.1: without a setting, no kind of text is counted low.
#[test]
fn no_kind_of_text_is_counted_low_in_any_family() {
    let mut wrong = Vec::new();
    for (kind, (name, counts)) in KINDS.iter().zip(COUNTS) {
        assert_eq!(kind.0, *name);
        let text = write_kind(*kind, PART);
        for (model, &count) in MODELS.into_iter().zip(counts) {
            let ratio = weigh(model, &text) / f64::from(count);
            println!("{name}, {model}: {ratio:.2}");
            if !(0.93..1.55).contains(&ratio) {
                wrong.push(format!("{name}, {model}: {ratio:.2}"));
            }
        }
        // Half of the families take digits one by one, and nothing is known of an unknown model.
        let heaviest = counts.iter().max().copied().unwrap_or_default();
        let lightest = counts.iter().min().copied().unwrap_or_default();
        let estimate = weigh("unknown", &text);
        let [low, high] = [heaviest, lightest].map(|count| estimate / f64::from(count));
        if low < 0.88 || high > 3.0 {
            wrong.push(format!("{name}, unknown: {low:.2} to {high:.2}"));
        }
    }
    assert_eq!(KINDS.len(), COUNTS.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The estimate of most kinds is near: half of all within five hundredths.
#[test]
fn half_of_the_kinds_are_within_a_few_hundredths() {
    let mut errors: Vec<f64> = Vec::new();
    for (kind, (_, counts)) in KINDS.iter().zip(COUNTS) {
        let text = write_kind(*kind, PART);
        let of_family =
            |(model, count): (&str, &u32)| (weigh(model, &text) / f64::from(*count) - 1.0).abs();
        errors.extend(MODELS.into_iter().zip(counts).map(of_family));
    }
    errors.sort_by(f64::total_cmp);
    let [half, most] = [0.5, 0.9].map(|share| errors[(errors.len() as f64 * share) as usize]);
    assert!(half <= 0.05 && most <= 0.2, "{half:.3}, {most:.3}");
}

#[test]
fn the_counts_are_of_these_texts() {
    let counters = [TokenCounter::o200k(), TokenCounter::cl100k()];
    for (kind, (name, counts)) in KINDS.iter().zip(COUNTS) {
        let text = write_kind(*kind, PART);
        for (counter, &count) in counters.iter().zip(counts) {
            assert_eq!(counter.text(&text), u64::from(count), "{name}");
        }
    }
}
