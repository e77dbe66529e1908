//! Programs run and waited for: bounded in time, their words kept for the error.

use std::{
    fmt,
    io::Write as _,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// Pause between two looks at something that takes its time.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Runs to the end and returns what was printed; a failure carries the command and its last words.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    feed(command, b"")
}

/// The same with an input.
pub(crate) fn feed(command: &mut Command, input: &[u8]) -> anyhow::Result<String> {
    let output = output(command, input)?;
    if !output.status.success() {
        bail!("{}", Failed(command, &output));
    }
    String::from_utf8(output.stdout).context("a program printed something else than text")
}

/// The same, whatever the exit status.
pub(crate) fn output(command: &mut Command, input: &[u8]) -> anyhow::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", line(command)))?;
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    let input = input.to_owned();
    // Beside the reading, so that neither side waits for the other; who does not read its input says why on stderr.
    let writer = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    let _ = writer.join();
    Ok(output)
}

/// Looks again and again until there is an answer; after `seconds`, the last reason is the error.
pub(crate) fn until<T>(
    seconds: u64,
    what: &str,
    mut look: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > end => {
                return Err(error.context(format!("not within {seconds} s: {what}")));
            }
            Err(_) => thread::sleep(LOOK_AGAIN),
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
