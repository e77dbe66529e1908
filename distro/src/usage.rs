//! What is the command line's fault: refused with status 2, before anything is touched.

use std::path::PathBuf;

/// Words that contradict each other, the program or the host.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadUsage(pub(crate) String);

/// A path that means the same from everywhere.
pub(crate) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        return Ok(path);
    }
    Err("it is relative: name it by its whole path".to_owned())
}

/// What clap lays out in paragraphs, as one line after the program's name.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraphs = text.trim().trim_start_matches("error: ").split("\n\n");
    let lines = paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}
