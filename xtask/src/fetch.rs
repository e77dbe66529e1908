//! Downloads one file from one address with curl: resumes where an attempt ended, follows redirects and proxies, retries what may be temporary.
//!
//! Status, range and length in a server's answer are checked here; whether the bytes are the right ones is for the caller to check.

use std::{
    fs::{self, OpenOptions},
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::ui;

/// Attempts in a row without a new byte, after which the download fails.
const ATTEMPTS: u32 = 4;
/// The pause after the first of these attempts; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// curl's exit statuses for failures that may be temporary: timeouts, cut and reset connections.
const TEMPORARY: [i32; 8] = [16, 18, 28, 52, 55, 56, 92, 95];
/// curl's exit status for an HTTP error.
const HTTP_ERROR: i32 = 22;

/// Completes `part`, from the bytes that it already has.
pub(crate) fn fetch(name: &str, address: &str, part: &Path) -> anyhow::Result<()> {
    let mut fruitless = 0;
    let mut progress = TransferProgress::new(name);
    loop {
        let before = length(part);
        match attempt(address, part, before, &mut progress)? {
            AttemptEnd::Complete => {
                progress.finish();
                return Ok(());
            }
            AttemptEnd::Restart => {
                remove(part)?;
                fruitless += 1;
            }
            AttemptEnd::Broken(_) if length(part) > before => fruitless = 0,
            AttemptEnd::Broken(reason) => {
                fruitless += 1;
                if fruitless == ATTEMPTS {
                    bail!("{reason}, {ATTEMPTS} times in a row");
                }
                thread::sleep(PAUSE * 2_u32.pow(fruitless - 1));
            }
            AttemptEnd::Refused(reason) => bail!("{reason}"),
        }
        if fruitless == ATTEMPTS {
            bail!("its server contradicts itself, {ATTEMPTS} times in a row");
        }
    }
}

enum AttemptEnd {
    Complete,
    /// The bytes in `part` are no beginning of the server's file.
    Restart,
    /// A later attempt may succeed.
    Broken(String),
    Refused(String),
}

fn attempt(
    address: &str,
    part: &Path,
    start: u64,
    progress: &mut TransferProgress,
) -> anyhow::Result<AttemptEnd> {
    let heads = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut child = curl(address, heads.path(), start)
        .spawn()
        .context("cannot start curl: install it")?;
    let mut body = child.stdout.take().context("curl's output is piped")?;
    let mut out = None;
    let mut buffer = vec![0; 1 << 16];
    let mut is_wrong_range = false;
    loop {
        let read = body.read(&mut buffer).context("cannot read from curl")?;
        if read == 0 {
            break;
        }
        if out.is_none() {
            // curl writes the head of a response before the first byte of its body.
            let head = ResponseHead::parse(&fs::read(heads.path())?);
            let from = match head.resume(start) {
                Resume::Append => start,
                Resume::StartOver => 0,
                Resume::Refuse => {
                    is_wrong_range = true;
                    child.kill().context("cannot end curl")?;
                    break;
                }
            };
            progress.begin(from, head.length.map(|length| from + length));
            out = Some(open(part, from)?);
        }
        if let Some(out) = &mut out {
            out.write_all(&buffer[..read])
                .with_context(|| format!("cannot write {}", part.display()))?;
            progress.add(read as u64);
        }
    }
    let output = child.wait_with_output().context("cannot wait for curl")?;
    if is_wrong_range {
        return Ok(AttemptEnd::Restart);
    }
    let head = ResponseHead::parse(&fs::read(heads.path())?);
    if output.status.success() {
        if out.is_none() {
            // The file, or the rest of it, is empty.
            let from = if head.resume(start) == Resume::Append {
                start
            } else {
                0
            };
            open(part, from)?;
        }
        return Ok(AttemptEnd::Complete);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().last().unwrap_or("curl gave no reason");
    let reason = last.trim().to_owned();
    Ok(match (output.status.code(), head.status) {
        (Some(HTTP_ERROR), Some(416)) if start > 0 => AttemptEnd::Restart,
        (Some(HTTP_ERROR), Some(408 | 425 | 429 | 500..)) => AttemptEnd::Broken(reason),
        (Some(code), _) if TEMPORARY.contains(&code) => AttemptEnd::Broken(reason),
        _ => AttemptEnd::Refused(reason),
    })
}

fn open(part: &Path, from: u64) -> anyhow::Result<fs::File> {
    let open = || {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).open(part)?;
        file.set_len(from)?;
        Ok::<_, io::Error>(file)
    };
    open().with_context(|| format!("cannot write {}", part.display()))
}

/// Removes the file, which is absent when no byte has arrived.
fn remove(part: &Path) -> anyhow::Result<()> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", part.display()))
        }
        _ => Ok(()),
    }
}

fn length(part: &Path) -> u64 {
    fs::metadata(part).map_or(0, |metadata| metadata.len())
}

fn curl(address: &str, heads: &Path, start: u64) -> Command {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--fail", "--location"])
        .args(["--proto", "=http,https", "--max-redirs", "10"])
        .args(["--connect-timeout", "20"])
        // A server that sends nothing for a minute counts as cut off.
        .args(["--speed-limit", "1", "--speed-time", "60"])
        .arg("--suppress-connect-headers")
        .arg("--dump-header")
        .arg(heads);
    if start > 0 {
        command.args(["--range", &format!("{start}-")]);
    }
    // curl reads this variable in lower case alone, unlike HTTPS_PROXY and NO_PROXY, and unlike other programs.
    if let (None, Some(proxy)) = (
        std::env::var_os("http_proxy"),
        std::env::var_os("HTTP_PROXY"),
    ) {
        command.env("http_proxy", proxy);
    }
    command
        .args(["--", address])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The parts of a response's head that decide about its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ResponseHead {
    status: Option<u16>,
    /// Bytes of the body.
    length: Option<u64>,
    /// The offset of the body's first byte in the file.
    first: Option<u64>,
}

/// How a body continues the bytes that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resume {
    Append,
    /// The body is the complete file, although a range was requested.
    StartOver,
    /// The body is another part of the file than the requested one.
    Refuse,
}

impl ResponseHead {
    /// Parses heads, of which the last one counts when there are several, as after redirects.
    fn parse(heads: &[u8]) -> Self {
        let mut head = Self::default();
        for line in String::from_utf8_lossy(heads).lines() {
            if line.starts_with("HTTP/") {
                let status = line.split_whitespace().nth(1);
                head = Self {
                    status: status.and_then(|status| status.parse().ok()),
                    ..Self::default()
                };
            }
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = value.parse().ok(),
                "content-range" => head.first = range_start(value),
                _ => {}
            }
        }
        head
    }

    /// Decides about the answer to a request for the bytes from `start` on.
    fn resume(&self, start: u64) -> Resume {
        match self.status {
            Some(206) if self.first == Some(start) => Resume::Append,
            Some(200) => Resume::StartOver,
            _ => Resume::Refuse,
        }
    }
}

/// Returns the first offset of `bytes 5-22/23`.
fn range_start(range: &str) -> Option<u64> {
    let range = range.strip_prefix("bytes")?.trim_start();
    range.split_once('-')?.0.parse().ok()
}

/// The time between two progress lines where stderr is not a terminal.
const INTERVAL: Duration = Duration::from_secs(5);

/// The progress of a download: a bar on a terminal, else a line now and then.
struct TransferProgress {
    name: String,
    bar: Option<ProgressBar>,
    done: u64,
    total: Option<u64>,
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
            done: 0,
            total: None,
            last_line: Instant::now(),
        }
    }

    /// Starts a body whose first byte is at `from` in the file.
    fn begin(&mut self, from: u64, total: Option<u64>) {
        (self.done, self.total) = (from, total);
        if let Some(bar) = &self.bar {
            bar.set_length(total.unwrap_or_default());
            bar.set_position(from);
            bar.reset_eta();
        }
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        } else if self.last_line.elapsed() >= INTERVAL {
            self.last_line = Instant::now();
            ui::note(&progress_line(&self.name, self.done, self.total));
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

    fn check(heads: &str, start: u64, expected: Resume) {
        let head = ResponseHead::parse(heads.as_bytes());
        assert_eq!(head.resume(start), expected, "{heads}");
    }

    #[test]
    fn body_is_appended_only_at_its_offset() {
        let range = "HTTP/2 206 \r\ncontent-range: bytes 5-22/23\r\nContent-Length: 18\r\n\r\n";
        check(range, 5, Resume::Append);
        check(range, 4, Resume::Refuse);
        check(range, 0, Resume::Refuse);
        check("HTTP/1.1 206 Partial Content\r\n\r\n", 5, Resume::Refuse);
        check("HTTP/1.1 200 OK\r\n\r\n", 5, Resume::StartOver);
        check("HTTP/1.1 204 No Content\r\n\r\n", 0, Resume::Refuse);
        check("", 0, Resume::Refuse);
        assert_eq!(ResponseHead::parse(range.as_bytes()).length, Some(18));
    }

    #[test]
    fn last_head_counts() {
        let heads = "HTTP/1.1 302 Found\r\nContent-Length: 3\r\nLocation: /x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        let head = ResponseHead::parse(heads.as_bytes());
        assert_eq!((head.status, head.length), (Some(200), None));
    }

    #[test]
    fn progress_line_has_bytes_and_total() {
        assert_eq!(
            progress_line("a.tgz", 1536, Some(4096)),
            "a.tgz: 1.50 KiB of 4.00 KiB"
        );
        assert_eq!(progress_line("a.tgz", 10, None), "a.tgz: 10 B");
    }
}
