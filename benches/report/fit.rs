//! Whether sent requests fit, by counts other than the guard's.

use std::io::{self, Write};

use plimsoll::{
    config::GuardConfig,
    guard::profile::{self, Profile},
};

use crate::support::{
    count::TokenCounter,
    data,
    drive::{GuardedSession, SessionOutcome, TokenMeter, make_policy},
    generate::{ConversationSize, Recipe, SHAPES, Session},
    strict,
};

const WINDOWS: &[u32] = &[4_096, 8_192, 16_384, 32_768, 131_072];

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nfit: every session grown request by request, at windows {WINDOWS:?}, for every profile \
         that takes it as it came\n(over: the provider's count was over the window at the first \
         try; lost: still so after two more; hopeless: of\nthese, pinned messages and newest step \
         are over it with all results cut to the bone)\n"
    )?;
    let sessions = sessions();
    writeln!(out, "{} sessions", sessions.len())?;
    writeln!(
        out,
        "  profile    counts by    requests   edited  refused     over     lost  hopeless"
    )?;
    let (newer, older) = (TokenCounter::o200k(), TokenCounter::cl100k());
    let meters = [
        ("o200k", TokenMeter::Foreign(&newer)),
        ("cl100k", TokenMeter::Foreign(&older)),
        ("0.8 x ours", TokenMeter::Times(0.8)),
        ("1.0 x ours", TokenMeter::Times(1.0)),
        ("1.2 x ours", TokenMeter::Times(1.2)),
        ("1.4 x ours", TokenMeter::Times(1.4)),
    ];
    for profile in ["openai", "mistral", "gemini", "anthropic", "template"] {
        let profile = profile::find_profile(profile).expect("a row of the table");
        for (name, meter) in meters {
            let total = total(&sessions, profile, meter, &newer);
            writeln!(
                out,
                "  {:<10} {name:<12} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
                profile.name,
                total.requests,
                total.edited,
                total.refused + total.unsound,
                total.over,
                total.lost,
                total.hopeless,
            )?;
        }
    }
    writeln!(out)
}

/// Recorded sessions, thinned to about 24 requests, and generated ones.
fn sessions() -> Vec<Session> {
    let recorded = data::requests();
    let recorded = recorded
        .iter()
        .filter_map(|it| Session::from_recorded(&it.body));
    let generated = SHAPES.iter().flat_map(|&shape| {
        [false, true].map(|strict| {
            let recipe = Recipe {
                strict,
                ..Recipe::new(shape)
            };
            Session::new(31, recipe, ConversationSize::Messages(90))
        })
    });
    recorded
        .chain(generated)
        .map(|session| session.thinned(24))
        .collect()
}

fn total(
    sessions: &[Session],
    profile: &Profile,
    meter: TokenMeter<'_>,
    counter: &TokenCounter,
) -> SessionOutcome {
    let settings = GuardConfig::default();
    let mut total = SessionOutcome::default();
    for session in sessions {
        if !strict::find_violations(&session.whole(), profile).is_empty() {
            continue;
        }
        for &window in WINDOWS {
            let drive = GuardedSession {
                policy: make_policy(profile, window, &settings),
                meter,
                counter,
                keeps: true,
            };
            total.add(&drive.run(session));
        }
    }
    total
}
