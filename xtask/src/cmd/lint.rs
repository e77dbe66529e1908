//! `lint`: formatting, clippy, tidy files, a sound chart, sound workflows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use xshell::{Shell, cmd};

use crate::{charts, project::Project, talk};

/// Check formatting, clippy, tidiness, the chart and the workflows
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask lint --install")]
pub(crate) struct Args {
    /// Get actionlint, with Go, if it is missing
    #[arg(long)]
    pub(crate) install: bool,
}

const ACTIONLINT: &str = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7";
/// A longer file is worth a second look; an idea that needs more lines keeps them.
const LONG_FILE: usize = 800;

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let shell = project.shell()?;
    talk::say("fmt");
    cmd!(shell, "cargo fmt --all --check").quiet().run()?;
    talk::say("tidy");
    tidy(&project.root)?;
    talk::say("chart");
    charts::check(project.version)?;
    workflows(&project, &shell, args.install)?;
    talk::say("clippy");
    cmd!(
        shell,
        "cargo clippy --locked --workspace --all-targets -- --deny warnings"
    )
    .quiet()
    .run()?;
    Ok(())
}

fn workflows(project: &Project, shell: &Shell, install: bool) -> anyhow::Result<()> {
    let own = project.memory().join("tools/actionlint");
    let found = match cmd!(shell, "actionlint --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
    {
        Ok(()) => PathBuf::from("actionlint"),
        Err(_) if own.exists() => own,
        Err(_) if install => {
            talk::say("installing actionlint");
            let dir = own.parent().context("the tool lies in a folder")?;
            cmd!(shell, "go install {ACTIONLINT}")
                .env("GOBIN", dir)
                .quiet()
                .run()
                .context("cannot get actionlint; is Go installed?")?;
            own
        }
        Err(_) => {
            talk::say("actionlint: not installed, workflows NOT checked (--install gets it)");
            return Ok(());
        }
    };
    talk::say("actionlint");
    cmd!(shell, "{found}").quiet().run()?;
    Ok(())
}

/// Every complaint about every file, in one error.
fn tidy(root: &Path) -> anyhow::Result<()> {
    let mut complaints = Vec::new();
    let files = Shell::new()?;
    files.change_dir(root);
    let listed = cmd!(
        files,
        "git -c safe.directory=* ls-files --cached --others --exclude-standard"
    )
    .quiet()
    .read()
    .context("cannot list the files of the checkout")?;
    for name in listed.lines() {
        let path = root.join(name);
        if let Ok(text) = fs::read_to_string(&path) {
            complaints.extend(complaints_about(name, &text));
            if let Some(warning) = length_warning(name, &text) {
                talk::say(&warning);
            }
        }
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("{}", complaints.join("\n"))
}

fn complaints_about(name: &str, text: &str) -> Vec<String> {
    let is_fixture = name.contains("/fixtures/") || name.contains("/testdata/");
    let is_listing = name.ends_with("Cargo.lock") || name.ends_with("go.sum");
    let mut complaints = Vec::new();
    if is_fixture || is_listing {
        return complaints;
    }
    let is_rust = name.rsplit_once('.').is_some_and(|(_, end)| end == "rs");
    if is_rust && !text.starts_with("//!") {
        complaints.push(format!("{name}: does not open with //! and what it is for"));
    }
    for (number, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", number + 1);
        if line.ends_with([' ', '\t']) {
            complaints.push(format!("{at}: blanks at the end of the line"));
        }
        let marker = concat!("TO", "DO");
        if line.contains(marker) || line.contains(concat!("todo", "!(")) {
            complaints.push(format!("{at}: {marker} left"));
        }
    }
    complaints
}

/// Points at a source file that has become long; length alone fails nothing.
fn length_warning(name: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let is_long = Path::new(name).extension() == Some("rs".as_ref()) && lines > LONG_FILE;
    is_long.then(|| format!("warning: {name} has {lines} lines: does it hold a second idea?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expected: &[&str]) {
        assert_eq!(complaints_about(name, text), expected);
    }

    #[test]
    fn untidy_files_are_named() {
        check("a.rs", "//! X.\nfn f() {}\n", &[]);
        let header = "a.rs: does not open with //! and what it is for";
        check("a.rs", "fn f() {}\n", &[header]);
        check("a.md", "x \n", &["a.md:1: blanks at the end of the line"]);
        let text = format!("//! X.\n// {}\n", concat!("TO", "DO"));
        check("a.rs", &text, &[concat!("a.rs:2: TO", "DO left")]);
        check("a/fixtures/x.rs", "x ", &[]);
    }

    #[test]
    fn long_files_are_a_warning() {
        let text = format!("//! X.\n{}", "\n".repeat(LONG_FILE));
        check("a.rs", &text, &[]);
        assert!(length_warning("a.rs", &text).is_some_and(|text| text.contains("801 lines")));
        assert_eq!(length_warning("a.md", &text), None);
        assert_eq!(length_warning("a.rs", "//! X.\n"), None);
    }
}
