//! The gauge: how full the window is, with the load line.

use crate::health::limits::Limits;

/// Cells of the bar.
pub(super) const CELLS: usize = 56;

/// A bar of [`CELLS`] characters: filled, free, and the two marks where they lie.
///
/// `fill` and `free` are one character each; marks lie over both.
pub(super) fn bar(
    prompt_tokens: u32,
    window: u32,
    limits: &Limits,
    fill: char,
    free: char,
) -> String {
    let filled = cell(prompt_tokens, window);
    let (optimal, critical) = marks(window, limits);
    (0..CELLS)
        .map(|at| match at {
            _ if at == critical => '┃',
            _ if at == optimal => '│',
            _ if at < filled => fill,
            _ => free,
        })
        .collect()
}

/// The names of the marks, each under its own.
pub(super) fn legend(window: u32, limits: &Limits) -> String {
    let (optimal, critical) = marks(window, limits);
    let (first, second) = ("optimal ↑", "↑ load line");
    let start = (optimal + 1).saturating_sub(first.chars().count());
    let mut line = " ".repeat(start);
    line.push_str(first);
    while line.chars().count() < critical {
        line.push(' ');
    }
    line.push_str(second);
    line
}

/// Marks under the bar where the model was given a prompt, in tokens.
pub(super) fn prompts(at: &[u32], window: u32) -> String {
    let cells: Vec<usize> = at
        .iter()
        .map(|tokens| cell(*tokens, window).min(CELLS - 1))
        .collect();
    let marked = |at| if cells.contains(&at) { '▲' } else { ' ' };
    let line: String = (0..CELLS).map(marked).collect();
    match cells.is_empty() {
        true => String::new(),
        false => format!("{} prompts", line.trim_end()),
    }
}

/// Cells of the optimal and of the critical limit, never the same one.
fn marks(window: u32, limits: &Limits) -> (usize, usize) {
    let critical = cell(limits.critical_max_tokens.unwrap_or(window), window).clamp(1, CELLS - 1);
    let optimal = cell(limits.optimal_max_tokens, window).min(critical - 1);
    (optimal, critical)
}

fn cell(tokens: u32, window: u32) -> usize {
    let share = f64::from(tokens) / f64::from(window.max(1));
    ((share * CELLS as f64).round() as usize).min(CELLS)
}

/// A level as a sentence.
pub(super) fn level(word: &str) -> &'static str {
    match word {
        "healthy" => "healthy: room to work in",
        "caution" => "caution: past the optimal line, answers get worse from here",
        "critical" => "critical: down to the load line, take nothing more on",
        _ => "unknown: the provider reported no usage",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        optimal_max_tokens: 500,
        critical_max_tokens: Some(750),
    };

    #[test]
    fn the_bar_fills_and_keeps_its_marks() {
        for tokens in [0, 1, 250, 500, 999, 1_000, 5_000] {
            let bar = bar(tokens, 1_000, &LIMITS, '#', '.');
            assert_eq!(bar.chars().count(), CELLS);
            assert_eq!(bar.chars().position(|one| one == '│'), Some(28));
            assert_eq!(bar.chars().position(|one| one == '┃'), Some(42));
        }
        assert!(bar(0, 1_000, &LIMITS, '#', '.').starts_with('.'));
        assert!(!bar(2_000, 1_000, &LIMITS, '#', '.').contains('.'));
        let legend = legend(1_000, &LIMITS);
        assert_eq!(legend.chars().position(|one| one == '↑'), Some(28));
        assert_eq!(legend.chars().filter(|one| *one == '↑').count(), 2);
        assert_eq!(legend.chars().nth(42), Some('↑'));
    }

    #[test]
    fn prompts_are_marked_where_they_were_given() {
        assert_eq!(prompts(&[], 1_000), "");
        let line = prompts(&[500, 501, 2_000], 1_000);
        assert_eq!(line.chars().position(|one| one == '▲'), Some(28));
        assert_eq!(line.chars().filter(|one| *one == '▲').count(), 2);
        assert_eq!(line.chars().nth(CELLS - 1), Some('▲'));
    }

    #[test]
    fn odd_limits_do_no_harm() {
        for (optimal, critical) in [(0, 0), (2_000, 2_000), (900, 100)] {
            let limits = Limits {
                optimal_max_tokens: optimal,
                critical_max_tokens: Some(critical),
            };
            assert_eq!(bar(10, 0, &limits, '#', '.').chars().count(), CELLS);
            assert!(!legend(1_000, &limits).is_empty());
        }
    }
}
