//! Weighs what is injected.

use super::PlacedInjections;

/// The raw tokens that injections add to a request.
pub(in crate::guard) struct InjectedWeight {
    /// By unit; negative if an echoed answer gets shorter by more than what is injected.
    pub(in crate::guard) units: Vec<i64>,
    /// Tokens that no fold removes.
    pub(in crate::guard) beside: i64,
    /// Tokens of records since the last request.
    pub(in crate::guard) fresh: i64,
    /// The records between units.
    pub(in crate::guard) gaps: Vec<InjectedGap>,
}

/// The records between two units. They are left out as soon as one of the two units is.
#[derive(Clone, Copy, Debug)]
pub(in crate::guard) struct InjectedGap {
    pub(in crate::guard) before: Option<usize>,
    pub(in crate::guard) answer: Option<usize>,
    /// Raw tokens, which are counted in `units` or `beside` too.
    pub(in crate::guard) tokens: i64,
}

impl PlacedInjections<'_> {
    /// Weighs all injections; the request before had `known` messages without system messages.
    pub(in crate::guard) fn weigh_injections(&self, known: usize) -> InjectedWeight {
        let units = self.view.units;
        let mut weight = InjectedWeight {
            units: vec![0; units.len()],
            beside: self.weigh_schemas(true).into(),
            fresh: 0,
            gaps: Vec::new(),
        };
        let pinned = self.view.count_pinned();
        let is_removable = |at: &usize| *at >= pinned && units[*at].is_removable();
        for records in &self.places {
            let echo = self.edit_echoed_answer(records, true, false);
            let between = i64::from(records.between.tokens) - i64::from(echo.spared);
            let answer = records.answer.map(|answer| self.find_unit(answer));
            let before = Some(self.find_unit(records.before)).filter(is_removable);
            weight.gaps.push(InjectedGap {
                before,
                answer,
                tokens: between,
            });
            // A record after a pinned message is removed with the answer that follows.
            match before.or(answer.filter(is_removable)) {
                Some(at) => weight.units[at] += between,
                None => weight.beside += between,
            }
            if let Some(at) = answer {
                weight.units[at] += i64::from(echo.tokens);
            }
            let place = records.place as usize;
            if place > known {
                weight.fresh += between;
            }
            if place >= known {
                weight.fresh += i64::from(echo.tokens);
            }
        }
        weight
    }
}

/// Adds injected raw tokens, which may be negative, to raw tokens; at least 0.
pub(in crate::guard) fn with_injected(tokens: u32, injected: i64) -> u32 {
    let sum = i64::from(tokens).saturating_add(injected).max(0);
    u32::try_from(sum).unwrap_or(u32::MAX)
}
