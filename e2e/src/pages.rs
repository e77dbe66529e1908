//! Follows the pages for people as a reader does: saves the files that a step shows, and runs its commands in a shell, in their order.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use docs::{Check, Pages};

use crate::{sh, test_env::TestEnv};

/// The reader of one suite.
pub(crate) struct Reader {
    pages: Pages,
    suite: &'static str,
    /// Where the reader saves files; `dist` in it is the release.
    dir: PathBuf,
    /// The search path of the shell: the programs that the pages take for granted, and those of the release.
    programs: String,
    /// What the suite has in place of placeholders on the pages.
    values: &'static [(&'static str, &'static str)],
    /// Page and step of what was followed.
    followed: RefCell<BTreeSet<(String, String)>>,
    /// The placeholders that were replaced.
    replaced: RefCell<BTreeSet<&'static str>>,
}

impl Reader {
    pub(crate) fn new(env: &TestEnv, suite: &'static str) -> anyhow::Result<Self> {
        let dir = env.dir.join(format!("reader-{suite}"));
        fs::create_dir_all(&dir)?;
        symlink(&env.dist, dir.join("dist"))?;
        let own = env.program("");
        Ok(Self {
            pages: Pages::of_checkout().context("cannot read the pages")?,
            suite,
            programs: format!(
                "{}:{}:{}",
                env.bin.display(),
                own.display(),
                std::env::var("PATH").unwrap_or_default()
            ),
            dir,
            values: &[],
            followed: RefCell::default(),
            replaced: RefCell::default(),
        })
    }

    /// Gives the reader values to write in place of placeholders; each has to stand in a step that is followed.
    pub(crate) fn with_values(self, values: &'static [(&'static str, &'static str)]) -> Self {
        Self { values, ..self }
    }

    /// Gives the reader a directory under the name that the pages use.
    pub(crate) fn link(&self, name: &str, to: &Path) -> anyhow::Result<()> {
        symlink(to, self.dir.join(name)).with_context(|| format!("cannot link {name}"))
    }

    /// Returns the path of what a step made.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Follows a step of a page. `shell` makes the command that is the reader's shell.
    pub(crate) fn follow(
        &self,
        page: &str,
        step: &str,
        shell: impl Fn() -> Command,
    ) -> anyhow::Result<()> {
        let blocks = self.blocks();
        let mut blocks = blocks
            .iter()
            .filter(|one| one.page == page && one.step == step)
            .peekable();
        ensure!(blocks.peek().is_some(), "{page} has no step {step}");
        for block in blocks {
            let at = format!("{page}:{}", block.line);
            let (text, replaced) = replace(block.text, self.values);
            self.replaced.borrow_mut().extend(replaced);
            if let Some(file) = block.file {
                ensure!(!file.contains('/'), "{at}: {file} is not a plain name");
                fs::write(self.dir.join(file), text)?;
            } else {
                // A shell that enters a node begins at its root.
                let script = format!("cd -- \"$1\"\n{text}");
                let mut shell = shell();
                shell
                    .env("PATH", &self.programs)
                    .args(["-o", "errexit", "-o", "pipefail", "-c", &script, "reader"])
                    .arg(&self.dir);
                sh::run(&mut shell).context(at)?;
            }
        }
        let followed = (page.to_owned(), step.to_owned());
        self.followed.borrow_mut().insert(followed);
        Ok(())
    }

    /// Fails unless every step of every page for this suite was followed, and every placeholder was there.
    pub(crate) fn ensure_all_followed(&self) -> anyhow::Result<()> {
        let followed = self.followed.borrow();
        let all = self.blocks();
        for block in &all {
            let key = (block.page.to_owned(), block.step.to_owned());
            ensure!(
                followed.contains(&key),
                "{}:{}: the suite does not follow step {}: add it there",
                block.page,
                block.line,
                block.step
            );
        }
        for (placeholder, _) in self.values {
            ensure!(
                self.replaced.borrow().contains(placeholder),
                "no step has `{placeholder}`, for which the suite has a value"
            );
        }
        Ok(())
    }

    fn blocks(&self) -> Vec<MarkedBlock<'_>> {
        let blocks = self
            .pages
            .blocks(|check| matches!(check, Check::Suite { suite, .. } if suite == self.suite));
        let steps = blocks.into_iter().filter_map(|(page, block)| {
            let Ok(Check::Suite { step, file, .. }) = &block.check else {
                return None;
            };
            Some(MarkedBlock {
                page: &page.path,
                line: block.line,
                step,
                file: file.as_deref(),
                text: &block.text,
            })
        });
        steps.collect()
    }
}

/// A block with the step that it belongs to.
struct MarkedBlock<'a> {
    page: &'a str,
    line: usize,
    step: &'a str,
    file: Option<&'a str>,
    text: &'a str,
}

/// Writes values in place of placeholders, and returns the placeholders that the text has.
fn replace(text: &str, values: &[(&'static str, &'static str)]) -> (String, Vec<&'static str>) {
    let mut out = text.to_owned();
    let mut replaced = Vec::new();
    for (placeholder, value) in values {
        if out.contains(placeholder) {
            out = out.replace(placeholder, value);
            replaced.push(*placeholder);
        }
    }
    (out, replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_named() {
        let values = &[
            ("registry.example", "127.0.0.1:5000"),
            ("kubectl delete pod cart", "kubectl delete pod cart --now"),
            ("elsewhere", "here"),
        ];
        let (text, replaced) = replace(
            "push registry.example/team registry.example\nkubectl delete pod cart\n",
            values,
        );
        assert_eq!(
            text,
            "push 127.0.0.1:5000/team 127.0.0.1:5000\nkubectl delete pod cart --now\n"
        );
        assert_eq!(replaced, ["registry.example", "kubectl delete pod cart"]);
    }
}
