//! Tables of text and ages, in the format that kubectl prints.

/// Formats rows of cells under titles; each column is as wide as its widest cell, and no line ends with spaces.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let titles: Vec<_> = titles.iter().map(|&title| title.to_owned()).collect();
    let all: Vec<_> = std::iter::once(&titles).chain(rows).collect();
    let widths: Vec<_> = (0..titles.len())
        .map(|column| {
            let cells = all.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in all {
        let cells = row.iter().zip(&widths);
        let line: Vec<_> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        text.push_str(line.join("   ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats an age in at most two units.
pub(crate) fn age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}s", seconds % 60),
        600..10_800 => format!("{minutes}m"),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            vec!["a".to_owned(), "äöü".to_owned(), "x".to_owned()],
            vec!["long".to_owned(), String::new(), String::new()],
        ];
        assert_eq!(
            table(&["N", "WIDE", "E"], &rows),
            "N      WIDE   E\na      äöü    x\nlong\n"
        );
    }

    #[test]
    fn ages_are_short() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (660, "11m"),
            (10_800, "3h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(seconds), expected);
        }
    }
}
