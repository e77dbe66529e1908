//! Every file of a node by its hash, so that nobody changes what is not theirs.

use std::{collections::BTreeMap, fs};

use anyhow::ensure;

use super::{Node, init::DIRECTORIES};
use crate::test_env::sha256;

/// The hash of a file or the target of a link, by its path.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct FileHashes(BTreeMap<String, String>);

impl FileHashes {
    /// Everything in the node's own folders but what lies below `others`.
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
        let place = node.path(path);
        let kind = fs::symlink_metadata(&place)?.file_type();
        if kind.is_dir() {
            for name in node.list(path)? {
                self.add(node, &format!("{path}/{name}"), others)?;
            }
            return Ok(());
        }
        let text = if kind.is_symlink() {
            fs::read_link(&place)?.display().to_string()
        } else if kind.is_file() {
            sha256(&fs::read(&place)?)
        } else {
            // A socket or a pipe.
            format!("{kind:?}")
        };
        self.0.insert(path.to_owned(), text);
        Ok(())
    }

    /// Takes a file out; whether it was there.
    pub(crate) fn remove(&mut self, path: &str) -> bool {
        self.0.remove(path).is_some()
    }

    /// Paths of all files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Fails, with every path that differs, unless both are the same.
    pub(crate) fn are(&self, before: &Self) -> anyhow::Result<()> {
        let (more, fewer) = (self.unlike(before), before.unlike(self));
        ensure!(
            more.is_empty() && fewer.is_empty(),
            "new or changed: {more:?}, gone or changed: {fewer:?}"
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
