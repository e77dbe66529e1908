//! The rows as a text table.

use super::{
    row::{Form, Row, number},
    statistics::Summary,
};

const HEAD: [&str; 8] = [
    "", "unit", "ours", "peer", "floor", "value", "target", "verdict",
];

/// Renders the rows in columns; each side has its median with its minimum and maximum.
pub(crate) fn render(rows: &[Row], form: Form) -> String {
    let mut lines = vec![HEAD.map(ToOwned::to_owned)];
    for row in rows {
        let [ours, peer, floor] = row.summaries().map(column);
        lines.push([
            row.kind.name.to_owned(),
            row.kind.unit.to_owned(),
            ours,
            peer,
            floor,
            row.value().map(number).unwrap_or_default(),
            row.target_text(),
            row.verdict(form).name().to_owned(),
        ]);
    }
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let padded: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn column(summary: Option<Summary>) -> String {
    match summary {
        None => "-".to_owned(),
        Some(one) if one.count == 1 => number(one.median),
        Some(many) => format!(
            "{} ({}..{})",
            number(many.median),
            number(many.min),
            number(many.max)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::bench::row::{Bound, RowKind, Subject, Target};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let target = Target::absolute(Subject::OverFloor, Bound::AtMost, 2.5);
        let times = [vec![3.0, 2.0, 4.0], vec![14.0], vec![0.36]];
        let rows = [
            (RowKind::new("wall of one ADD", "ms").with(target), times),
            (RowKind::new("idle RSS", "MB"), [vec![7.0], vec![], vec![]]),
        ];
        let rows = rows.map(|(kind, columns)| Row { kind, columns });
        let expected = "                 unit  ours              peer  floor  value  target                verdict\n\
                        wall of one ADD  ms    3.00 (2.00..4.00)  14.0  0.36   2.64   ours - floor <= 2.50  over\n\
                        idle RSS         MB    7.00               -     -\n";
        let got = render(&rows, Form::Full);
        assert_eq!(
            got.lines().map(words).collect::<Vec<_>>(),
            expected.lines().map(words).collect::<Vec<_>>()
        );
        let starts: Vec<_> = got
            .lines()
            .take(2)
            .map(|line| line.find(" ms").or(line.find(" unit")))
            .collect();
        assert_eq!(starts[0], starts[1]);
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }
}
