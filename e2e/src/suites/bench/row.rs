//! One row of the result: the measurements of each side, the number with a target, and the verdict.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde_json::{Value, json};

use super::statistics::{Summary, median};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    AtMost,
    AtLeast,
}

/// The number that is compared with the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Our median, in the row's unit.
    Ours,
    /// Ours minus the floor, in the row's unit.
    OverFloor,
    /// Ours divided by the peer's.
    PeerRatio,
    /// Ours divided by the floor.
    FloorRatio,
}

/// A target of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Target {
    pub(crate) subject: Subject,
    pub(crate) bound: Bound,
    pub(crate) limit: f64,
    /// Whether the verdict is the same on a busy or slow machine, so that CI can use it.
    pub(crate) is_portable: bool,
}

impl Target {
    /// Returns a target for a ratio or for bytes, which are the same on every machine.
    pub(crate) const fn portable(subject: Subject, bound: Bound, limit: f64) -> Self {
        Self {
            subject,
            bound,
            limit,
            is_portable: true,
        }
    }

    /// Returns a target for a time or a rate, which depend on the machine.
    pub(crate) const fn absolute(subject: Subject, bound: Bound, limit: f64) -> Self {
        Self {
            is_portable: false,
            ..Self::portable(subject, bound, limit)
        }
    }
}

/// The verdict on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    /// The target is missed.
    Over,
    /// It is missed by more than a factor of two.
    FarOver,
    /// The target is a ratio to the peer, and there was no peer.
    NoPeer,
    /// The row has no target, or none that applies in this form.
    NotJudged,
    /// A side that the target needs has no values.
    Missing,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Over => "over",
            Self::FarOver => "over (more than twice)",
            Self::NoPeer => "no peer",
            Self::NotJudged => "",
            Self::Missing => "missing",
        }
    }
}

/// The form of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Full,
    /// For CI: few rounds, and only targets that are the same on every machine.
    Short,
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Ours,
    Peer,
    Floor,
}

/// A row of a table without its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowKind {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    target: Option<Target>,
}

impl RowKind {
    pub(crate) const fn new(name: &'static str, unit: &'static str) -> Self {
        let target = None;
        Self { name, unit, target }
    }

    pub(crate) const fn with(self, target: Target) -> Self {
        Self {
            target: Some(target),
            ..self
        }
    }
}

/// The values of every row by its name and column, one a round.
#[derive(Debug, Default)]
pub(crate) struct Measured(BTreeMap<String, [Vec<f64>; 3]>);

impl Measured {
    pub(crate) fn push(&mut self, row: impl Into<String>, column: Column, value: f64) {
        self.0.entry(row.into()).or_default()[column as usize].push(value);
    }

    /// Adds the values of a further round.
    pub(crate) fn extend(&mut self, round: Self) {
        for (name, columns) in round.0 {
            let row = self.0.entry(name).or_default();
            for (all, values) in row.iter_mut().zip(columns) {
                all.extend(values);
            }
        }
    }

    /// Adds a row with what ours and the peer have more than the floor, round by round.
    pub(crate) fn over_floor(&mut self, row: &str, name: &str) {
        let Some([ours, peer, floor]) = self.0.get(row).cloned() else {
            return;
        };
        for (column, values) in [(Column::Ours, ours), (Column::Peer, peer)] {
            for (value, floor) in values.iter().zip(&floor) {
                self.push(name, column, value - floor);
            }
        }
    }

    /// Returns the rows of the table; fails when something was measured that has none.
    pub(crate) fn rows(mut self, table: &[RowKind]) -> anyhow::Result<Vec<Row>> {
        let rows = table.iter().map(|kind| Row {
            kind: *kind,
            columns: self.0.remove(kind.name).unwrap_or_default(),
        });
        let rows = rows.collect();
        ensure!(self.0.is_empty(), "no row has the values {:?}", self.0);
        Ok(rows)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) kind: RowKind,
    /// The values of each [`Column`] by round; one that was not measured has none.
    pub(crate) columns: [Vec<f64>; 3],
}

impl Row {
    /// Returns the summaries of the columns.
    pub(crate) fn summaries(&self) -> [Option<Summary>; 3] {
        let summary = |values: &Vec<f64>| Summary::of(values.iter().copied());
        self.columns.each_ref().map(summary)
    }

    /// Returns the number that the target is about, or `None` when a side is missing.
    ///
    /// For two sides with the same rounds it is the median of the rounds' numbers, because a machine that is busy in a round is busy for both.
    pub(crate) fn value(&self) -> Option<f64> {
        let [ours, peer, floor] = &self.columns;
        let both = |other: &[f64], of: fn(f64, f64) -> f64| {
            if other.is_empty() || ours.is_empty() {
                f64::NAN
            } else if other.len() == ours.len() {
                median(ours.iter().zip(other).map(|(one, other)| of(*one, *other)))
            } else {
                of(median(ours.iter().copied()), median(other.iter().copied()))
            }
        };
        let value = match self.kind.target?.subject {
            Subject::Ours => median(ours.iter().copied()),
            Subject::OverFloor => both(floor, |one, other| one - other),
            Subject::PeerRatio => both(peer, |one, other| one / other),
            Subject::FloorRatio => both(floor, |one, other| one / other),
        };
        value.is_finite().then_some(value)
    }

    pub(crate) fn verdict(&self, form: Form) -> Verdict {
        let Some(target) = self.kind.target else {
            return Verdict::NotJudged;
        };
        if form == Form::Short && !target.is_portable {
            return Verdict::NotJudged;
        }
        let Some(value) = self.value() else {
            let [ours, peer, _] = &self.columns;
            let lacks_peer = target.subject == Subject::PeerRatio && peer.is_empty();
            return if lacks_peer && !ours.is_empty() {
                Verdict::NoPeer
            } else {
                Verdict::Missing
            };
        };
        // How many times the limit is exceeded, for either bound.
        let excess = match target.bound {
            Bound::AtMost => value / target.limit,
            Bound::AtLeast => target.limit / value,
        };
        if excess <= 1.0 {
            Verdict::Ok
        } else if excess <= 2.0 {
            Verdict::Over
        } else {
            Verdict::FarOver
        }
    }

    /// Returns the target as text: `ours / peer <= 0.20`.
    pub(crate) fn target_text(&self) -> String {
        let Some(target) = self.kind.target else {
            return String::new();
        };
        let subject = match target.subject {
            Subject::Ours => "ours",
            Subject::OverFloor => "ours - floor",
            Subject::PeerRatio => "ours / peer",
            Subject::FloorRatio => "ours / floor",
        };
        let sign = match target.bound {
            Bound::AtMost => "<=",
            Bound::AtLeast => ">=",
        };
        format!("{subject} {sign} {}", number(target.limit))
    }

    pub(crate) fn json(&self, form: Form) -> Value {
        let json = |summary: Option<Summary>| summary.map_or(Value::Null, |summary| summary.json());
        let [ours, peer, floor] = self.summaries().map(json);
        let target = self.kind.target.map_or(Value::Null, |target| {
            json!({"text": self.target_text(), "limit": target.limit, "portable": target.is_portable})
        });
        json!({
            "name": self.kind.name, "unit": self.kind.unit, "ours": ours, "peer": peer, "floor": floor,
            "value": self.value(), "target": target, "verdict": self.verdict(form).name(),
        })
    }
}

/// Formats a number with about three significant digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Bound::{AtLeast, AtMost},
        Subject::{FloorRatio, Ours, OverFloor, PeerRatio},
        *,
    };

    fn row(ours: &[f64], peer: &[f64], floor: &[f64]) -> Row {
        let columns = [ours, peer, floor].map(<[f64]>::to_vec);
        let kind = RowKind::new("r", "ms");
        Row { kind, columns }
    }

    fn with(row: Row, target: Target) -> Row {
        let kind = row.kind.with(target);
        Row { kind, ..row }
    }

    fn check(row: Row, target: Target, expected: Verdict) {
        assert_eq!(with(row, target).verdict(Form::Full), expected);
    }

    #[test]
    fn rounds_are_rows_of_the_table() {
        let mut measured = Measured::default();
        for value in [1.0, 2.0] {
            let mut round = Measured::default();
            round.push("a", Column::Ours, value);
            round.push("a", Column::Floor, 4.0);
            measured.extend(round);
        }
        let table = ["a", "b"].map(|name| RowKind::new(name, "ms"));
        let rows = measured.rows(&table).unwrap();
        assert_eq!(rows[0].columns, [vec![1.0, 2.0], vec![], vec![4.0, 4.0]]);
        assert!(rows[1].columns.iter().all(Vec::is_empty));
        let mut other = Measured::default();
        other.push("c", Column::Ours, 1.0);
        assert!(other.rows(&table).is_err());
    }

    #[test]
    fn a_row_is_ok_over_or_far_over() {
        for (ours, expected) in [
            (2.0, Verdict::Ok),
            (2.1, Verdict::Over),
            (4.0, Verdict::Over),
            (4.1, Verdict::FarOver),
        ] {
            check(
                row(&[ours], &[10.0], &[]),
                Target::portable(PeerRatio, AtMost, 0.2),
                expected,
            );
        }
        for (ours, expected) in [
            (600.0, Verdict::Ok),
            (599.0, Verdict::Over),
            (299.0, Verdict::FarOver),
        ] {
            check(
                row(&[ours], &[], &[]),
                Target::absolute(Ours, AtLeast, 600.0),
                expected,
            );
        }
    }

    #[test]
    fn the_floor_is_subtracted_or_divided_by() {
        let over = Target::absolute(OverFloor, AtMost, 2.5);
        check(row(&[3.0], &[], &[0.5]), over, Verdict::Ok);
        // A row that is faster than the floor meets every target.
        check(row(&[0.4], &[], &[0.5]), over, Verdict::Ok);
        let ratio = Target::portable(FloorRatio, AtMost, 1.2);
        check(row(&[1.3], &[], &[1.0]), ratio, Verdict::Over);
    }

    #[test]
    fn sides_are_compared_round_by_round() {
        let target = Target::portable(FloorRatio, AtMost, 1.2);
        // In its second round the machine was busy.
        let row = with(row(&[1.1, 11.0, 1.1], &[], &[1.0, 10.0, 1.0]), target);
        assert!(row.value().is_some_and(|value| (value - 1.1).abs() < 1e-9));
        assert_eq!(row.verdict(Form::Full), Verdict::Ok);
    }

    #[test]
    fn without_a_side_there_is_no_verdict() {
        let peer = Target::portable(PeerRatio, AtMost, 0.2);
        check(row(&[1.0], &[], &[]), peer, Verdict::NoPeer);
        check(row(&[], &[1.0], &[]), peer, Verdict::Missing);
        let floor = Target::portable(FloorRatio, AtMost, 1.2);
        check(row(&[1.0], &[], &[]), floor, Verdict::Missing);
        assert_eq!(
            row(&[1.0], &[], &[]).verdict(Form::Full),
            Verdict::NotJudged
        );
    }

    #[test]
    fn short_form_judges_only_rows_that_do_not_depend_on_the_machine() {
        let row = row(&[9.0], &[], &[1.0]);
        let absolute = with(row.clone(), Target::absolute(Ours, AtMost, 1.0));
        assert_eq!(absolute.verdict(Form::Short), Verdict::NotJudged);
        assert_eq!(absolute.verdict(Form::Full), Verdict::FarOver);
        let portable = with(row, Target::portable(FloorRatio, AtMost, 1.0));
        assert_eq!(portable.verdict(Form::Short), Verdict::FarOver);
    }

    #[test]
    fn json_has_every_side_and_the_verdict() {
        let target = Target::portable(PeerRatio, AtMost, 0.2);
        let row = with(row(&[1.0, 3.0], &[10.0], &[]), target);
        let expected = json!({
            "name": "r", "unit": "ms",
            "ours": {"median": 2.0, "min": 1.0, "max": 3.0, "count": 2},
            "peer": {"median": 10.0, "min": 10.0, "max": 10.0, "count": 1},
            "floor": null, "value": 0.2,
            "target": {"text": "ours / peer <= 0.20", "limit": 0.2, "portable": true},
            "verdict": "ok",
        });
        assert_eq!(row.json(Form::Full), expected);
    }
}
