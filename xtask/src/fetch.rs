//! Shows the progress of a download, and reads the settings of the HTTP client from the environment.

use std::{
    cell::RefCell,
    io::IsTerminal as _,
    path::Path,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use registry::http::{
    Arrived, Environment, Http,
    download::{self, Address},
    variable,
};

use crate::ui;

/// Makes the client of downloads.
pub(crate) fn client() -> anyhow::Result<Http> {
    let environment = Environment {
        variable: &variable,
        certs_d: &[],
    };
    Ok(Http::new(&environment, None)?)
}

/// Completes `part`, from the bytes that it already has.
pub(crate) fn fetch(http: &Http, name: &str, address: &Address, part: &Path) -> anyhow::Result<()> {
    let progress = RefCell::new(TransferProgress::new(name));
    let show = |arrived: Arrived| progress.borrow_mut().show(arrived);
    download::fetch(http, address, part, &show)?;
    progress.into_inner().finish();
    Ok(())
}

/// The time between two progress lines where stderr is not a terminal.
const INTERVAL: Duration = Duration::from_secs(5);

/// The progress of a download: a bar on a terminal, else a line now and then.
struct TransferProgress {
    name: String,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl TransferProgress {
    fn new(name: &str) -> Self {
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
            last_line: Instant::now(),
        }
    }

    fn show(&mut self, arrived: Arrived) {
        if let Some(bar) = &self.bar {
            bar.set_length(arrived.total.unwrap_or_default());
            bar.set_position(arrived.done);
        } else if self.last_line.elapsed() >= INTERVAL {
            self.last_line = Instant::now();
            ui::note(&progress_line(&self.name, arrived.done, arrived.total));
        }
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn progress_line(name: &str, done: u64, total: Option<u64>) -> String {
    let of = total.map_or_else(String::new, |total| format!(" of {}", HumanBytes(total)));
    format!("{name}: {}{of}", HumanBytes(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_bytes_and_total() {
        assert_eq!(
            progress_line("a.tgz", 1536, Some(4096)),
            "a.tgz: 1.50 KiB of 4.00 KiB"
        );
        assert_eq!(progress_line("a.tgz", 10, None), "a.tgz: 10 B");
    }
}
