//! Hashes of a node's files, to check that a suite left every file as it was.

use std::{collections::BTreeMap, fs};

use anyhow::ensure;

use super::{Node, init::DIRECTORIES};
use crate::test_env::sha256;

/// The hash of each file and the target of each symbolic link, by path.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct FileHashes(BTreeMap<String, String>);

impl FileHashes {
    /// Hashes the files in the node's own directories, except those below `others`.
    pub(crate) fn of(node: &Node, others: &[&str]) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for directory in DIRECTORIES {
            found.add(node, directory, others)?;
        }
        Ok(found)
    }

    fn add(&mut self, node: &Node, path: &str, others: &[&str]) -> anyhow::Result<()> {
        if others.contains(&path) {
            return Ok(());
        }
        let file = node.path(path);
        let kind = fs::symlink_metadata(&file)?.file_type();
        if kind.is_dir() {
            for name in node.list(path)? {
                self.add(node, &format!("{path}/{name}"), others)?;
            }
            return Ok(());
        }
        let text = if kind.is_symlink() {
            fs::read_link(&file)?.display().to_string()
        } else if kind.is_file() {
            sha256(&fs::read(&file)?)
        } else {
            // Sockets and pipes have no content.
            format!("{kind:?}")
        };
        self.0.insert(path.to_owned(), text);
        Ok(())
    }

    /// Removes a file from the record; returns whether it was there.
    pub(crate) fn remove(&mut self, path: &str) -> bool {
        self.0.remove(path).is_some()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Fails with the paths that differ.
    pub(crate) fn ensure_equal(&self, before: &Self) -> anyhow::Result<()> {
        let (more, fewer) = (self.unlike(before), before.unlike(self));
        ensure!(
            more.is_empty() && fewer.is_empty(),
            "new or changed: {more:?}, deleted or changed: {fewer:?}"
        );
        Ok(())
    }

    fn unlike(&self, other: &Self) -> Vec<&str> {
        let unlike = self.0.iter();
        unlike
            .filter(|(path, hash)| other.0.get(*path) != Some(hash))
            .map(|(path, _)| path.as_str())
            .collect()
    }
}
