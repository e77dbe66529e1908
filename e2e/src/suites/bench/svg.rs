//! The rows as an SVG picture: a group of bars per row, scaled to the longest bar of the row.

use std::fmt::Write as _;

use super::row::{Form, Row, Verdict, number};

const WIDTH: u32 = 980;
const NAME_WIDTH: u32 = 400;
const BAR_WIDTH: f64 = 360.0;
const BAR_HEIGHT: u32 = 12;
/// Space between two rows.
const GAP: u32 = 12;
const TOP: u32 = 52;

/// Sides, with their colours.
const SIDES: [(&str, &str); 3] = [
    ("ours", "#2f6db3"),
    ("peer", "#c9782e"),
    ("floor", "#9aa0a6"),
];

/// Draws the rows that have a value.
pub(crate) fn render(rows: &[Row], form: Form, title: &str) -> String {
    let mut body = String::new();
    let mut top = TOP;
    for row in rows {
        let sides = [row.ours, row.peer, row.floor].map(|side| side.map(|summary| summary.median));
        let longest = sides
            .iter()
            .flatten()
            .fold(0.0_f64, |most, value| most.max(*value));
        if longest <= 0.0 {
            continue;
        }
        let name = escape(&format!("{}, {}", row.name, row.unit));
        text(&mut body, 12, top + BAR_HEIGHT, "#202124", &name);
        let verdict = row.verdict(form);
        if !matches!(verdict, Verdict::NotJudged) {
            let color = match verdict {
                Verdict::Ok => "#188038",
                Verdict::NoPeer => "#5f6368",
                _ => "#c5221f",
            };
            let line = escape(&format!("{}: {}", row.target_text(), verdict.name()));
            text(&mut body, 24, top + 2 * BAR_HEIGHT + 2, color, &line);
        }
        let first = top;
        for ((_, color), value) in SIDES.iter().zip(sides) {
            let Some(value) = value else { continue };
            let length = (value / longest).max(0.0) * BAR_WIDTH;
            // Writing to a string cannot fail.
            let _ = writeln!(
                body,
                r#"<rect x="{NAME_WIDTH}" y="{top}" width="{length:.1}" height="{BAR_HEIGHT}" fill="{color}"/>"#
            );
            let end = f64::from(NAME_WIDTH) + length + 6.0;
            let _ = writeln!(
                body,
                r##"<text x="{end:.1}" y="{}" fill="#202124">{}</text>"##,
                top + BAR_HEIGHT - 2,
                number(value)
            );
            top += BAR_HEIGHT + 2;
        }
        top = top.max(first + 2 * (BAR_HEIGHT + 2)) + GAP;
    }
    let mut legend = String::new();
    for ((name, color), x) in SIDES
        .iter()
        .zip([NAME_WIDTH, NAME_WIDTH + 80, NAME_WIDTH + 160])
    {
        let _ = writeln!(
            legend,
            r#"<rect x="{x}" y="24" width="{BAR_HEIGHT}" height="{BAR_HEIGHT}" fill="{color}"/>"#
        );
        text(&mut legend, x + BAR_HEIGHT + 4, 34, "#202124", name);
    }
    let title = escape(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" viewBox=\"0 0 {WIDTH} {top}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{WIDTH}\" height=\"{top}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"34\" font-size=\"15\" fill=\"#202124\">{title}</text>\n{legend}{body}</svg>\n"
    )
}

fn text(to: &mut String, x: u32, y: u32, color: &str, content: &str) {
    let _ = writeln!(
        to,
        r#"<text x="{x}" y="{y}" fill="{color}">{content}</text>"#
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::bench::row::{Bound, Subject, Target};

    #[test]
    fn bars_are_proportional_to_the_sides_values() {
        let rows = [
            Row::new("a <b>", "ms", [&[5.0], &[20.0], &[]]).with(Target::portable(
                Subject::PeerRatio,
                Bound::AtMost,
                0.2,
            )),
            Row::new("nothing", "ms", [&[], &[], &[]]),
        ];
        let svg = render(&rows, Form::Full, "bench");
        assert!(
            svg.contains(r##"width="90.0" height="12" fill="#2f6db3""##),
            "{svg}"
        );
        assert!(
            svg.contains(r##"width="360.0" height="12" fill="#c9782e""##),
            "{svg}"
        );
        assert!(
            svg.contains("a &lt;b&gt;, ms") && !svg.contains("nothing"),
            "{svg}"
        );
        assert!(svg.contains("ours / peer &lt;= 0.20: over"), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }
}
