//! Counters, gauges and histograms, and families of them by labels. An observation is a few atomic additions: without allocation, and
//! with no lock but a shared one that is never held for long.

use std::{
    fmt::Write as _,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Upper bounds of the buckets in seconds, from plugins that answer at once to the timeouts of runtimes.
pub(crate) const BOUNDS: [(f64, &str); 16] = [
    (0.001, "0.001"),
    (0.0025, "0.0025"),
    (0.005, "0.005"),
    (0.01, "0.01"),
    (0.025, "0.025"),
    (0.05, "0.05"),
    (0.1, "0.1"),
    (0.25, "0.25"),
    (0.5, "0.5"),
    (1.0, "1"),
    (2.5, "2.5"),
    (5.0, "5"),
    (10.0, "10"),
    (30.0, "30"),
    (60.0, "60"),
    (120.0, "120"),
];
/// The value that replaces the first label of series beyond a family's limit.
pub(crate) const OTHER: &str = "other";

/// One metric without its labels.
pub(crate) trait Metric: Default {
    /// The type's name in Prometheus.
    const TYPE: &'static str;

    /// Appends the samples. `labels` is the text within the braces.
    fn write(&self, out: &mut String, name: &str, labels: &str);
}

/// A number that only increases.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Metric for Counter {
    const TYPE: &'static str = "counter";

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        sample(out, name, labels, self.get());
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicI64);

impl Gauge {
    pub(crate) fn add(&self, difference: i64) {
        self.0.fetch_add(difference, Relaxed);
    }

    pub(crate) fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

impl Metric for Gauge {
    const TYPE: &'static str = "gauge";

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        sample(out, name, labels, self.get());
    }
}

/// Durations, counted in buckets.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The counts by the first bound that a duration does not exceed; the last one is for longer durations.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < seconds);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.counts().iter().sum()
    }

    /// Returns the sum of all durations in seconds.
    pub(crate) fn sum(&self) -> f64 {
        Duration::from_nanos(self.nanoseconds.load(Relaxed)).as_secs_f64()
    }

    /// Returns the duration in seconds that this share of all durations did not exceed, or `None` without any duration. The estimate is
    /// that of Prometheus' `histogram_quantile`: linear within the bucket, and at most the last bound.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts beyond 2^52 do not happen, and it is an estimate"
    )]
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let counts = self.counts();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let rank = share * total as f64;
        let mut below = 0.0;
        let mut lower = 0.0;
        for (count, (bound, _)) in counts.into_iter().zip(BOUNDS) {
            let count = count as f64;
            if count > 0.0 && below + count >= rank {
                return Some(lower + (bound - lower) * (rank - below) / count);
            }
            below += count;
            lower = bound;
        }
        Some(lower)
    }

    fn counts(&self) -> [u64; BOUNDS.len() + 1] {
        self.buckets.each_ref().map(|bucket| bucket.load(Relaxed))
    }
}

impl Metric for Histogram {
    const TYPE: &'static str = "histogram";

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bounds = BOUNDS.iter().map(|(_, text)| *text).chain(["+Inf"]);
        let mut total = 0;
        for (count, bound) in self.counts().into_iter().zip(bounds) {
            total += count;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {total}"
            );
        }
        sample(out, &format!("{name}_sum"), labels, self.sum());
        sample(out, &format!("{name}_count"), labels, total);
    }
}

/// The metrics of one name by the values of their labels.
#[derive(Debug)]
pub(crate) struct Family<const N: usize, M> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    /// The number of distinct values of the first label.
    limit: usize,
    /// Sorted by the values.
    series: RwLock<Vec<Series<N, M>>>,
}

#[derive(Debug)]
struct Series<const N: usize, M> {
    values: [Box<str>; N],
    metric: Arc<M>,
}

impl<const N: usize, M: Metric> Family<N, M> {
    /// Creates a family whose label values come from the program.
    pub(crate) fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self::limited(name, help, labels, usize::MAX)
    }

    /// Creates a family whose first label has values from users. Beyond the limit, all new values become [`OTHER`].
    pub(crate) fn limited(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        limit: usize,
    ) -> Self {
        Self {
            name,
            help,
            labels,
            limit,
            series: RwLock::default(),
        }
    }

    /// Returns the metric with these label values, which is created if necessary.
    pub(crate) fn with(&self, mut values: [&str; N]) -> Arc<M> {
        {
            let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
            if let Ok(index) = position(&series, values) {
                return Arc::clone(&series[index].metric);
            }
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = values.first_mut() {
            let known = distinct(&series);
            if known.len() >= self.limit && !known.contains(first) {
                *first = OTHER;
            }
        }
        match position(&series, values) {
            Ok(index) => Arc::clone(&series[index].metric),
            Err(index) => {
                let metric = Arc::<M>::default();
                let one = Series {
                    values: values.map(Box::from),
                    metric: Arc::clone(&metric),
                };
                series.insert(index, one);
                metric
            }
        }
    }

    /// Calls `f` with the label values and the metric of each series, in their order.
    pub(crate) fn for_each(&self, mut f: impl FnMut([&str; N], &M)) {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        for one in &*series {
            f(one.values.each_ref().map(|value| &**value), &one.metric);
        }
    }

    /// Appends the family's text, or nothing while it has no series.
    pub(crate) fn write(&self, out: &mut String) {
        let mut is_first = true;
        self.for_each(|values, metric| {
            if std::mem::take(&mut is_first) {
                head(out, self.name, self.help, M::TYPE);
            }
            let pairs = self.labels.into_iter().zip(values);
            metric.write(out, self.name, &labels(pairs));
        });
    }
}

/// Appends the comment lines before the samples of a family.
pub(crate) fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends one sample.
pub(crate) fn sample(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = if labels.is_empty() {
        writeln!(out, "{name} {value}")
    } else {
        writeln!(out, "{name}{{{labels}}} {value}")
    };
}

/// Returns the text of labels within braces.
pub(crate) fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        let comma = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{comma}{name}=\"{}\"", escaped(value));
    }
    out
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn position<const N: usize, M>(series: &[Series<N, M>], values: [&str; N]) -> Result<usize, usize> {
    series.binary_search_by(|one| one.values.iter().map(|value| &**value).cmp(values))
}

/// Returns the distinct values of the first label.
fn distinct<const N: usize, M>(series: &[Series<N, M>]) -> Vec<&str> {
    let first = series.iter().filter_map(|one| one.values.first());
    let mut values: Vec<&str> = first.map(|value| &**value).collect();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_that_includes_it() {
        let histogram = Histogram::default();
        for milliseconds in [1, 2, 3, 200_000] {
            histogram.observe(Duration::from_millis(milliseconds));
        }
        let mut out = String::new();
        histogram.write(&mut out, "x", "a=\"b\"");
        for line in [
            "x_bucket{a=\"b\",le=\"0.001\"} 1\n",
            "x_bucket{a=\"b\",le=\"0.0025\"} 2\n",
            "x_bucket{a=\"b\",le=\"0.005\"} 3\n",
            "x_bucket{a=\"b\",le=\"120\"} 3\n",
            "x_bucket{a=\"b\",le=\"+Inf\"} 4\n",
            "x_sum{a=\"b\"} 200.006\n",
            "x_count{a=\"b\"} 4\n",
        ] {
            assert!(out.contains(line), "{out}");
        }
    }

    #[test]
    fn the_bounds_are_sorted_and_match_their_text() {
        assert!(BOUNDS.is_sorted_by(|(a, _), (b, _)| a < b));
        for (bound, text) in BOUNDS {
            assert_eq!(bound.to_string(), text);
        }
    }

    #[test]
    fn quantiles_are_estimated_within_a_bucket() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for _ in 0..100 {
            histogram.observe(Duration::from_millis(15));
        }
        let median = histogram.quantile(0.5).unwrap();
        assert!((0.017..0.018).contains(&median), "{median}");
        for _ in 0..100 {
            histogram.observe(Duration::from_mins(10));
        }
        assert_eq!(histogram.quantile(0.99), Some(120.0));
        assert_eq!(histogram.quantile(0.5), Some(0.025));
    }

    #[test]
    fn values_beyond_the_limit_are_counted_together() {
        let family = Family::<2, Counter>::limited("x", "X", ["plugin", "command"], 2);
        for plugin in ["a", "b", "c", "d", "a"] {
            family.with([plugin, "ADD"]).increment();
            family.with([plugin, "DEL"]).increment();
        }
        let mut out = String::new();
        family.write(&mut out);
        let expected = "# HELP x X\n# TYPE x counter\n\
            x{plugin=\"a\",command=\"ADD\"} 2\nx{plugin=\"a\",command=\"DEL\"} 2\n\
            x{plugin=\"b\",command=\"ADD\"} 1\nx{plugin=\"b\",command=\"DEL\"} 1\n\
            x{plugin=\"other\",command=\"ADD\"} 2\nx{plugin=\"other\",command=\"DEL\"} 2\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(labels([("a", "\"\\\n")]), r#"a="\"\\\n""#);
    }
}
