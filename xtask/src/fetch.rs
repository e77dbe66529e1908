//! One file from one address, with curl: it goes on where it ended, follows redirects and proxies, tries again what may pass.
//!
//! Whether the bytes are the right ones is not known here; what a server says of them (status, range, length) is checked.

mod answer;
mod progress;

use std::{
    fs::{self, OpenOptions},
    io::{self, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};

use self::{
    answer::{Answer, Plan},
    progress::Progress,
};

/// Attempts that bring nothing, in a row, before it is given up.
const ATTEMPTS: u32 = 4;
/// The pause after the first of them; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(250);
/// curl's words for what may pass: timeouts, cut and reset connections.
const MAY_PASS: [i32; 8] = [16, 18, 28, 52, 55, 56, 92, 95];
/// An HTTP error.
const HTTP_ERROR: i32 = 22;

/// Brings `part` to its end, from where it is.
pub(crate) fn fetch(name: &str, address: &str, part: &Path) -> anyhow::Result<()> {
    let mut fruitless = 0;
    let mut progress = Progress::new(name);
    loop {
        let before = length(part);
        match attempt(address, part, before, &mut progress)? {
            End::Complete => {
                progress.finish();
                return Ok(());
            }
            End::Restart => {
                remove(part)?;
                fruitless += 1;
            }
            End::Broken(_) if length(part) > before => fruitless = 0,
            End::Broken(reason) => {
                fruitless += 1;
                if fruitless == ATTEMPTS {
                    bail!("{reason}, {ATTEMPTS} times in a row");
                }
                thread::sleep(PAUSE * 2_u32.pow(fruitless - 1));
            }
            End::Refused(reason) => bail!("{reason}"),
        }
        if fruitless == ATTEMPTS {
            bail!("its server contradicts itself, {ATTEMPTS} times in a row");
        }
    }
}

/// How an attempt ended.
enum End {
    Complete,
    /// What is there is no beginning of what the server has.
    Restart,
    /// May be better next time.
    Broken(String),
    Refused(String),
}

fn attempt(address: &str, part: &Path, begun: u64, progress: &mut Progress) -> anyhow::Result<End> {
    let head = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut child = curl(address, head.path(), begun)
        .spawn()
        .context("cannot start curl: install it")?;
    let mut body = child.stdout.take().context("curl's output is piped")?;
    let mut out = None;
    let mut buffer = vec![0; 1 << 16];
    let mut wrong_range = false;
    loop {
        let read = body.read(&mut buffer).context("cannot read from curl")?;
        if read == 0 {
            break;
        }
        if out.is_none() {
            // curl writes the head of an answer before anything of its body.
            let answer = Answer::read(&fs::read(head.path())?);
            let from = match answer.plan(begun) {
                Plan::Append => begun,
                Plan::Begin => 0,
                Plan::Refuse => {
                    wrong_range = true;
                    child.kill().context("cannot end curl")?;
                    break;
                }
            };
            progress.begin(from, answer.length.map(|length| from + length));
            out = Some(open(part, from)?);
        }
        if let Some(out) = &mut out {
            out.write_all(&buffer[..read])
                .with_context(|| format!("cannot write {}", part.display()))?;
            progress.add(read as u64);
        }
    }
    let output = child.wait_with_output().context("cannot wait for curl")?;
    if wrong_range {
        return Ok(End::Restart);
    }
    let answer = Answer::read(&fs::read(head.path())?);
    if output.status.success() {
        if out.is_none() {
            // An empty file, or an empty rest.
            let from = if answer.plan(begun) == Plan::Append {
                begun
            } else {
                0
            };
            open(part, from)?;
        }
        return Ok(End::Complete);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let last = words.lines().last().unwrap_or("curl: it said nothing");
    let reason = last.trim().to_owned();
    Ok(match (output.status.code(), answer.status) {
        (Some(HTTP_ERROR), Some(416)) if begun > 0 => End::Restart,
        (Some(HTTP_ERROR), Some(408 | 425 | 429 | 500..)) => End::Broken(reason),
        (Some(code), _) if MAY_PASS.contains(&code) => End::Broken(reason),
        _ => End::Refused(reason),
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

/// What is not there, because nothing of it came, is gone as well.
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

fn curl(address: &str, head: &Path, begun: u64) -> Command {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--fail", "--location"])
        .args(["--proto", "=http,https", "--max-redirs", "10"])
        .args(["--connect-timeout", "20"])
        // A server that goes silent is one that is cut off.
        .args(["--speed-limit", "1", "--speed-time", "60"])
        .arg("--suppress-connect-headers")
        .arg("--dump-header")
        .arg(head);
    if begun > 0 {
        command.args(["--range", &format!("{begun}-")]);
    }
    // curl takes this one in lower case alone, unlike everybody's HTTPS_PROXY and NO_PROXY.
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
