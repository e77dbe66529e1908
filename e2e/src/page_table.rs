//! Tables of pages that suites write: rows of what was seen, each with commit and day.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use crate::{sh, test_env::TestEnv};

/// Writes a row, which ends with commit and day, into the table of a page of the checkout.
pub(crate) fn write_row(env: &TestEnv, page: &str, key: &str, rest: &str) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let path = root.context("e2e lies in the checkout")?.join(page);
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let day = sh::run(Command::new("date").args(["--utc", "+%F"]))?;
    let commit = env.commit()?;
    let commit = commit.get(..12).unwrap_or(&commit);
    let rest = format!("{rest} | {commit} | {} |", day.trim());
    fs::write(&path, with_row(&page, key, &rest)?).with_context(|| path.display().to_string())
}

/// Replaces the row that begins in this way, or adds it in its place; rows are sorted.
fn with_row(page: &str, key: &str, rest: &str) -> anyhow::Result<String> {
    let (text, rows) = page
        .split_once("|---|\n")
        .context("the page has no table")?;
    ensure!(
        rows.lines().all(|line| line.starts_with("| ")),
        "the page goes on after its table"
    );
    let mut rows: Vec<_> = rows.lines().filter(|row| !row.starts_with(key)).collect();
    let row = format!("{key} {rest}");
    rows.push(&row);
    rows.sort_unstable();
    Ok(format!("{text}|---|\n{}\n", rows.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_takes_the_place_of_the_former_one() {
        let page = "# P\n\n| a | b |\n|---|---|\n| x | 1 |\n";
        let page = with_row(page, "| b |", "2 |").unwrap();
        let page = with_row(&page, "| x |", "3 |").unwrap();
        assert_eq!(page, "# P\n\n| a | b |\n|---|---|\n| b | 2 |\n| x | 3 |\n");
        assert!(with_row("# P\n", "| x |", "3 |").is_err());
        assert!(with_row(&format!("{page}\nmore\n"), "| x |", "3 |").is_err());
    }
}
