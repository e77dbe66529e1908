//! `size`: counts the lines of Rust of each folder, so that growth is seen where it happens.
//!
//! It counts lines and parses nothing: a module `tests` at the end of a file is test code, and so are files of tests.

use std::{collections::BTreeMap, fs, ops::AddAssign, path::Path};

use anyhow::Context as _;

use crate::{
    project::{self, Project},
    ui,
};

/// Count the lines of Rust of each folder: production, tests, comments
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask size\n  cargo xtask size --json")]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lines of Rust; blank lines count in `all` alone.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
struct Lines {
    files: usize,
    all: usize,
    production: usize,
    tests: usize,
    comments: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let mut folders = BTreeMap::<String, Lines>::new();
    for path in project::files(&project.root)? {
        if Path::new(&path)
            .extension()
            .is_none_or(|ending| ending != "rs")
        {
            continue;
        }
        let file = project.root.join(&path);
        // A file that was deleted and not committed yet is listed.
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let (folder, _) = path.split_once('/').context("Rust lies in folders")?;
        *folders.entry(folder.to_owned()).or_default() += count(&path, &text);
    }
    let mut total = Lines::default();
    for lines in folders.values() {
        total += *lines;
    }
    folders.insert("all".to_owned(), total);
    if args.json {
        return ui::json(&folders);
    }
    let mut rows: Vec<_> = folders.iter().collect();
    rows.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.all));
    let row = |folder: &str, columns: [String; 5]| {
        let columns = columns.map(|column| format!("{column:>12}"));
        format!("{folder:10}{}", columns.concat())
    };
    let head = ["files", "lines", "production", "tests", "comments"];
    let mut table = vec![row("folder", head.map(str::to_owned))];
    for (folder, lines) in rows {
        let numbers = [
            lines.files,
            lines.all,
            lines.production,
            lines.tests,
            lines.comments,
        ];
        table.push(row(folder, numbers.map(|number| number.to_string())));
    }
    ui::data(&table.join("\n"))
}

/// Counts the lines of a file; `path` is relative to the checkout.
fn count(path: &str, text: &str) -> Lines {
    let mut lines = Lines {
        files: 1,
        ..Lines::default()
    };
    let mut is_test = path.starts_with("e2e/")
        || path.starts_with("testkit/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs");
    let mut is_attribute = false;
    for line in text.lines() {
        lines.all += 1;
        let line = line.trim_end();
        // A module that is declared here has a file of its own.
        if is_attribute && line.starts_with("mod ") && line.ends_with('{') {
            is_test = true;
        }
        is_attribute = line == "#[cfg(test)]";
        match line.trim_start() {
            "" => {}
            line if line.starts_with("//") => lines.comments += 1,
            _ if is_test => lines.tests += 1,
            _ => lines.production += 1,
        }
    }
    lines
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.all += other.all;
        self.production += other.production;
        self.tests += other.tests;
        self.comments += other.comments;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_production_are_told_apart() {
        let text = "//! A file.\n\n#[cfg(test)]\nmod other;\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    // Why.\n    fn b() {}\n}\n";
        let lines = count("cni/src/a.rs", text);
        assert_eq!((lines.all, lines.comments), (11, 2));
        assert_eq!((lines.production, lines.tests), (4, 3));
        for path in ["cni/tests/it/a.rs", "e2e/src/a.rs", "cni/src/a/tests.rs"] {
            assert_eq!(count(path, text).production, 0, "{path}");
        }
    }
}
