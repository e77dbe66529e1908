//! How far a transfer is: a bar where a person watches, a line now and then elsewhere.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::talk;

/// Between two lines, where nobody watches.
const INTERVAL: Duration = Duration::from_secs(5);

pub(super) struct Progress {
    name: String,
    bar: Option<ProgressBar>,
    done: u64,
    total: Option<u64>,
    told: Instant,
}

impl Progress {
    pub(super) fn new(name: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            );
            let bar = ProgressBar::new(0).with_message(name.to_owned());
            bar.with_style(style.expect("the template is constant"))
        });
        Self {
            name: name.to_owned(),
            bar,
            done: 0,
            total: None,
            told: Instant::now(),
        }
    }

    /// Bytes from `from` on begin to come.
    pub(super) fn begin(&mut self, from: u64, total: Option<u64>) {
        (self.done, self.total) = (from, total);
        if let Some(bar) = &self.bar {
            bar.set_length(total.unwrap_or_default());
            bar.set_position(from);
            bar.reset_eta();
        }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        } else if self.told.elapsed() >= INTERVAL {
            self.told = Instant::now();
            talk::say(&line(&self.name, self.done, self.total));
        }
    }

    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(name: &str, done: u64, total: Option<u64>) -> String {
    let of = total.map_or_else(String::new, |total| format!(" of {}", HumanBytes(total)));
    format!("{name}: {}{of}", HumanBytes(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        assert_eq!(
            line("a.tgz", 1536, Some(4096)),
            "a.tgz: 1.50 KiB of 4.00 KiB"
        );
        assert_eq!(line("a.tgz", 10, None), "a.tgz: 10 B");
    }
}
