//! The output of xtask: data on stdout, everything else on stderr, with a progress bar or spinner on a terminal.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Writes one line for the user to stderr. A closed stderr is not a failure.
pub fn note(text: &str) {
    let text = cmdline::plain(text, &['\n', '\t']);
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Writes data to stdout.
pub fn data(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let text = cmdline::plain(text, &['\n', '\t']);
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}

/// Writes a value to stdout as one line of JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    data(&format!("{}\n", serde_json::to_string(value)?))
}

/// The progress of bytes: a bar on a terminal, and a line at the end.
pub struct Progress {
    bar: Option<ProgressBar>,
    name: String,
    start: Instant,
}

impl Progress {
    /// Starts at no bytes; a total of 0 means that it is unknown.
    pub fn new(name: &str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (bar, template) = match total {
                0 => (ProgressBar::no_length(), "{spinner} {msg} {bytes}"),
                total => (
                    ProgressBar::new(total),
                    "{bar:30} {msg} {bytes} of {total_bytes}",
                ),
            };
            let style = ProgressStyle::with_template(template);
            bar.with_message(name.to_owned())
                .with_style(style.expect("the template is constant"))
        });
        Self {
            bar,
            name: name.to_owned(),
            start: Instant::now(),
        }
    }

    pub fn add(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        note(&format!("{}: {seconds:.1} s", self.name));
    }
}

/// Runs one step and notes how long it took.
pub fn step<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let start = Instant::now();
    let bar = std::io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        let bar = ProgressBar::new_spinner().with_message(name.to_owned());
        let bar = bar.with_style(style.expect("the template is constant"));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    });
    let result = work();
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    if result.is_ok() {
        note(&format!("{name}: {:.1} s", start.elapsed().as_secs_f64()));
    }
    result
}
