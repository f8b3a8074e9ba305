//! Aligned columns, grouped digits and bars for the terminal.

use std::io::{self, Write};

pub(super) use crate::telemetry::record::group_digits;

/// Writes rows with aligned columns. Two spaces begin each row and separate columns; lines have no trailing space.
pub(super) fn write_table<const N: usize>(
    out: &mut impl Write,
    rows: &[[String; N]],
) -> io::Result<()> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("  {cell:<width$}"));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A bar of `cells` characters. Any part above zero fills at least one.
#[cfg(feature = "simulated")]
pub(super) fn draw_bar(part: u64, whole: u64, cells: usize) -> String {
    let filled = (part * cells as u64).div_ceil(whole.max(1)) as usize;
    let filled = filled.min(cells);
    "#".repeat(filled) + &".".repeat(cells - filled)
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_space() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["a", "bbb", "c"]), row(["aaaa", "ü", ""])];
        let mut out = Vec::new();
        super::write_table(&mut out, &rows).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "  a     bbb  c\n  aaaa  ü\n"
        );
    }

    #[test]
    fn a_bar_fills_and_keeps_its_length() {
        for (part, filled) in [(0, 0), (1, 1), (500, 28), (1_000, 56), (5_000, 56)] {
            let bar = super::draw_bar(part, 1_000, 56);
            assert_eq!(bar, "#".repeat(filled) + &".".repeat(56 - filled));
        }
        assert_eq!(super::draw_bar(10, 0, 3), "###");
    }

    #[test]
    fn digits_are_grouped_by_thousands() {
        assert_eq!(super::group_digits(7), "7");
        assert_eq!(super::group_digits(1_000), "1,000");
        assert_eq!(super::group_digits(12_345_678), "12,345,678");
    }
}
