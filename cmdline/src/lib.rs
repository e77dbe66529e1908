//! The common parts of all command lines: usage errors on one line, the report of a failure and its exit status, hints for errors
//! of the operating system, absolute paths as values, numbers with their nouns, and, with the feature `pages`, manual pages and completions.

mod counted;
mod error_line;
mod hint;
#[cfg(feature = "pages")]
pub mod pages;

pub use counted::counted;
pub use error_line::error_line;

use std::{
    borrow::Cow,
    ffi::OsString,
    fmt,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{ArgAction, Parser, error::ErrorKind};

pub use self::hint::hint;

/// Exit status when the command line is wrong.
pub const BAD_USAGE: u8 = 2;

/// An error in the arguments that only the program itself can see; [`fail`] turns it into [`BAD_USAGE`].
#[derive(Debug)]
pub struct BadUsage(pub String);

impl fmt::Display for BadUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// The flag that every program has besides its command `version`; the program disables clap's own flag, and gives clap the version.
#[derive(Debug, clap::Args)]
pub struct VersionFlag {
    /// Print the version
    #[arg(long, short = 'V', visible_short_alias = 'v', action = ArgAction::Version)]
    pub version: Option<bool>,
}

/// Parses arguments, the program's name first, or reports a usage error and returns its exit status.
pub fn parse_or_report<T: Parser>(
    prefix: &str,
    args: impl IntoIterator<Item = OsString>,
) -> Result<T, ExitCode> {
    parse(args).map_err(|error| {
        report(prefix, &error);
        ExitCode::from(BAD_USAGE)
    })
}

/// Parses arguments, the program's name first, or returns one line that says what is wrong with them.
///
/// Help and versions are printed with clap's own layout, and end the process.
pub fn parse<T: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<T, String> {
    T::try_parse_from(args).map_err(|error| match error.kind() {
        // Without any argument the help is the answer, not a complaint.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ if error.use_stderr() => usage_line(&error),
        _ => error.exit(),
    })
}

/// Joins the paragraphs that clap lays out.
fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraphs = text.trim().trim_start_matches("error: ").split("\n\n");
    let lines = paragraphs.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}

/// Writes `<prefix>: <text>` to stderr, on one line. A closed stderr is not a failure.
pub fn report(prefix: &str, text: &str) {
    let _ = writeln!(io::stderr().lock(), "{prefix}: {}", plain(text, &[]));
}

/// Escapes the control characters of a text but for these: in the name of a file they could make a terminal show another text.
pub fn plain<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let is_plain = |char: char| !char.is_control() || kept.contains(&char);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().map(|char| {
        if is_plain(char) {
            char.to_string()
        } else {
            char.escape_default().to_string()
        }
    });
    Cow::Owned(escaped.collect())
}

/// Reports a failure on one line and returns its exit status.
pub fn fail(prefix: &str, error: &anyhow::Error) -> ExitCode {
    report(prefix, &error_line(error.as_ref()));
    failure_status(error)
}

/// Reports a failure like [`fail`], with what helps against an error of the operating system at the end of the line.
pub fn fail_with_hint(prefix: &str, error: &anyhow::Error) -> ExitCode {
    let line = error_line(error.as_ref());
    let hint = hint(error).map_or_else(String::new, |hint| format!("; {hint}"));
    report(prefix, &format!("{line}{hint}"));
    failure_status(error)
}

fn failure_status(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(if error.is::<BadUsage>() { BAD_USAGE } else { 1 })
}

/// Parses a path that means the same from every working directory, as the value of an option.
pub fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        return Ok(path);
    }
    Err("it is relative: give an absolute path".to_owned())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "sail", version = "v1 (abc)", disable_version_flag = true)]
    struct Sail {
        #[command(flatten)]
        _version: VersionFlag,
        #[arg(long, value_parser = absolute)]
        chart: Option<PathBuf>,
    }

    #[test]
    fn name_of_a_file_shows_no_other_text_on_a_terminal() {
        let forged = "x\r\u{1b}[2Kdist: release 5.0.0 is sound\u{9b}8m\n";
        let shown = r"x\r\u{1b}[2Kdist: release 5.0.0 is sound\u{9b}8m\n";
        assert_eq!(plain(forged, &[]), shown);
        assert_eq!(plain("a\tb\nü", &['\n', '\t']), "a\tb\nü");
    }

    fn parsed(args: &[&str]) -> Result<Sail, String> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn usage_error_is_one_line() {
        let line = parsed(&["sail", "--charts", "/sea"]).unwrap_err();
        assert!(
            line.starts_with("unexpected argument '--charts' found; "),
            "{line}"
        );
        assert!(line.contains("; Usage: sail "), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }

    #[test]
    fn both_short_flags_print_the_version() {
        for flag in ["-v", "-V", "--version"] {
            let error = Sail::try_parse_from(["sail", flag]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DisplayVersion);
            assert_eq!(error.to_string(), "sail v1 (abc)\n");
        }
    }

    #[test]
    fn relative_path_is_refused() {
        let sail = parsed(&["sail", "--chart", "/sea/baltic"]).unwrap();
        assert_eq!(sail.chart, Some(PathBuf::from("/sea/baltic")));
        let line = parsed(&["sail", "--chart", "sea"]).unwrap_err();
        assert!(
            line.contains("'sea'") && line.contains("give an absolute path"),
            "{line}"
        );
    }

    #[test]
    fn bad_usage_has_a_status_of_its_own() {
        let status = |error: anyhow::Error| format!("{:?}", failure_status(&error));
        let expected = |status: u8| format!("{:?}", ExitCode::from(status));
        let usage = BadUsage("--x contradicts --y".to_owned());
        assert_eq!(status(usage.into()), expected(BAD_USAGE));
        assert_eq!(status(anyhow!("x")), expected(1));
    }
}
