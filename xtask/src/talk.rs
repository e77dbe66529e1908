//! What xtask says: data on stdout, everything else on stderr; a spinner where a person watches.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// A line for people. A closed stderr is nobody listening, not a failure.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Data, whole lines.
pub(crate) fn data(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}

/// Data for a program, in one line.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    data(&format!("{}\n", serde_json::to_string(value)?))
}

/// Bytes that move: a bar where a person watches, nothing elsewhere but the line at the end.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    start: Instant,
}

impl Progress {
    /// Nothing has moved yet; a total of 0 is not known.
    pub(crate) fn new(what: &str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (bar, template) = match total {
                0 => (ProgressBar::no_length(), "{spinner} {msg} {bytes}"),
                total => (
                    ProgressBar::new(total),
                    "{bar:30} {msg} {bytes} of {total_bytes}",
                ),
            };
            let style = ProgressStyle::with_template(template);
            bar.with_message(what.to_owned())
                .with_style(style.expect("the template is constant"))
        });
        Self {
            bar,
            what: what.to_owned(),
            start: Instant::now(),
        }
    }

    /// So many bytes more.
    pub(crate) fn moved(&self, len: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(len);
        }
    }

    /// All is done.
    pub(crate) fn done(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        say(&format!("{}: {seconds:.1} s", self.what));
    }
}

/// Runs one step and says how long it took.
pub(crate) fn step<T>(what: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let start = Instant::now();
    let bar = std::io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        let bar = bar.with_style(style.expect("the template is constant"));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    });
    let result = work();
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    if result.is_ok() {
        say(&format!("{what}: {:.1} s", start.elapsed().as_secs_f64()));
    }
    result
}
