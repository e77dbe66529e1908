//! What the command lines of all programs have in common: one line for what is wrong with one, paths that mean the same
//! from everywhere, and, with the feature `pages`, manual pages and completions.

mod causes;
#[cfg(feature = "pages")]
pub mod pages;

pub use causes::causes;

use std::{ffi::OsString, path::PathBuf};

use clap::{Parser, error::ErrorKind};

/// Exit status when the command line is wrong.
pub const BAD_USAGE: u8 = 2;

/// A command line, the program's name in first place, or one line that says what is wrong with it.
///
/// Help and versions are printed as they are laid out, and end the process.
pub fn parse<T: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<T, String> {
    T::try_parse_from(words).map_err(|error| match error.kind() {
        // There is nothing to complain of: nothing was asked for.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ if error.use_stderr() => one_line(&error),
        _ => error.exit(),
    })
}

/// What clap lays out in paragraphs.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraphs = text.trim().trim_start_matches("error: ").split("\n\n");
    let lines = paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}

/// A path that means the same from everywhere, for a value of a command line.
pub fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        return Ok(path);
    }
    Err("it is relative: name it by its whole path".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "sail")]
    struct Sail {
        #[arg(long, value_parser = absolute)]
        chart: Option<PathBuf>,
    }

    fn parsed(words: &[&str]) -> Result<Sail, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        let line = parsed(&["sail", "--charts", "/sea"]).unwrap_err();
        assert!(
            line.starts_with("unexpected argument '--charts' found; "),
            "{line}"
        );
        assert!(line.contains("; Usage: sail "), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }

    #[test]
    fn paths_are_whole() {
        let sail = parsed(&["sail", "--chart", "/sea/baltic"]).unwrap();
        assert_eq!(sail.chart, Some(PathBuf::from("/sea/baltic")));
        let line = parsed(&["sail", "--chart", "sea"]).unwrap_err();
        assert!(
            line.contains("'sea'") && line.contains("by its whole path"),
            "{line}"
        );
    }
}
