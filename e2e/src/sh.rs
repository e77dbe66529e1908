//! Commands whose output becomes part of the error, and waiting for a condition with a deadline.

use std::{
    ffi::OsStr,
    fmt,
    io::Write as _,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// Pause between two attempts of [`until`].
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Returns the words of a command, which it has like `format!` and which have no blanks.
macro_rules! words {
    ($($text:tt)*) => { format!($($text)*).split(' ').collect::<Vec<_>>() };
}
pub(crate) use words;

/// Runs a command to its end and returns its stdout; an error has the command line, the exit status and the output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    feed(command, b"")
}

/// Copies a directory with everything in it to a place that does not exist.
pub(crate) fn copy_directory(from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> anyhow::Result<()> {
    run(Command::new("cp").arg("--recursive").arg(from).arg(to)).map(drop)
}

/// Like [`run`], with this stdin.
pub(crate) fn feed(command: &mut Command, input: &[u8]) -> anyhow::Result<String> {
    let output = output(command, input)?;
    if !output.status.success() {
        bail!("{}", Failed(command, &output));
    }
    String::from_utf8(output.stdout).context("the output of a program is not UTF-8")
}

/// Like [`feed`], for any exit status.
pub(crate) fn output(command: &mut Command, input: &[u8]) -> anyhow::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", line(command)))?;
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    let input = input.to_owned();
    // On a thread of its own, so that a full pipe blocks neither side. A program that does not read its stdin prints why on stderr.
    let writer = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    let _ = writer.join();
    Ok(output)
}

/// Repeats `attempt` until it succeeds; after `seconds`, fails with the last error.
pub(crate) fn until<T>(
    seconds: u64,
    what: &str,
    mut attempt: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        match attempt() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > end => {
                return Err(error.context(format!("not within {seconds} s: {what}")));
            }
            Err(_) => thread::sleep(RETRY_PAUSE),
        }
    }
}

struct Failed<'a>(&'a Command, &'a Output);

impl fmt::Display for Failed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(command, output) = self;
        let words = [&output.stderr, &output.stdout]
            .map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned())
            .join("\n");
        write!(
            formatter,
            "{}: {}: {}",
            line(command),
            output.status,
            words.trim()
        )
    }
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
