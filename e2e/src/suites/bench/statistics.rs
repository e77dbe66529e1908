//! Median and range of measurements.

use serde_json::{Value, json};

/// The summary of at least one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Summary {
    /// Returns the summary of the finite values, or `None` when there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self {
            median,
            min,
            max,
            count: values.len(),
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({"median": self.median, "min": self.min, "max": self.max, "count": self.count})
    }
}

/// Returns the median of the finite values, or not-a-number when there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Summary::of(values).map_or(f64::NAN, |summary| summary.median)
}

/// Returns the mean, or not-a-number without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "there are fewer than 2^52 measurements"
    )]
    let count = values.len() as f64;
    values.iter().sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], expected: Option<(f64, f64, f64)>) {
        let summary = Summary::of(values.iter().copied());
        assert_eq!(summary.map(|s| (s.median, s.min, s.max)), expected);
    }

    #[test]
    fn median_is_the_middle_value_or_between_the_two() {
        check(&[], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[9.0, 1.0, 2.0], Some((2.0, 1.0, 9.0)));
        check(&[4.0, 1.0, 2.0, 10.0], Some((3.0, 1.0, 10.0)));
    }

    #[test]
    fn non_finite_values_are_ignored() {
        check(&[f64::NAN, 2.0, f64::INFINITY], Some((2.0, 2.0, 2.0)));
        check(&[f64::NAN], None);
        assert!(mean(&[]).is_nan());
        assert!((mean(&[1.0, 2.0]) - 1.5).abs() < 1e-9);
    }
}
