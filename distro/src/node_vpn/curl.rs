//! Requests to servers of the distro, by curl: a TLS client of our own would be a large part of this program, for a few answers.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use vpn::program::run_program;

/// The options of all requests. Redirects are not followed.
pub(super) const OPTIONS: &str = "silent\nshow-error\nfail\ngloboff\nproto = \"=https\"\nmax-time = 10\nmax-filesize = 1048576\n";
/// The deadline of a request; curl's own ends before.
const LIMIT: Duration = Duration::from_secs(15);

/// Runs curl with these options, which may hold secrets and go through its stdin.
pub(crate) fn curl(options: &str) -> anyhow::Result<String> {
    let args = ["-q", "-K", "-"].map(str::to_owned);
    let output = run_program("curl", &args, options.as_bytes(), LIMIT);
    let output = output
        .ok()
        .context("curl, which asks it, is not installed or does not end")?;
    ensure!(output.is_success, "{}", output.stderr.trim());
    Ok(output.stdout)
}

/// Returns a value of curl's configuration.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
