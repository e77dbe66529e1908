//! The CNI plugins of the nodes: all are the release's own.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, ensure};

use super::ClusterFixture;
use crate::{
    cluster::Member,
    node::{Node, runtime::PROGRAM},
    report::say,
    test_env::sha256,
};

/// The most links between a name and its program.
const LINKS: usize = 4;

impl ClusterFixture<'_> {
    /// Fails unless each program in the runtimes' directories has the bytes of the release's.
    pub(super) fn plugins_are_of_the_release(&self) -> anyhow::Result<()> {
        self.each(|member| {
            let names = self.release_plugins(member)?;
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            say(&format!(
                "        {}: {}",
                member.node.name,
                names.join(" ")
            ));
            for needed in ["bridge", "host-local", "loopback", "portmap"] {
                ensure!(names.contains(&needed), "there is no {needed}");
            }
            Ok(())
        })
    }

    /// Returns the names in the runtime's directory, all of which lead to the release's program.
    pub(super) fn release_plugins(&self, member: &Member) -> anyhow::Result<BTreeSet<String>> {
        let release = sha256(&fs::read(self.env.program(PROGRAM))?);
        let paths = &member.runtime.paths;
        let mut names = BTreeSet::new();
        for directory in [Some(&paths.bin_dir), paths.plugins.as_ref()] {
            let Some(directory) = directory else { continue };
            for name in member.node.list(directory)? {
                let path = format!("{directory}/{name}");
                let program = fs::read(member.node.path(&target(&member.node, &path)?))?;
                ensure!(
                    sha256(&program) == release,
                    "{path} is another program than {PROGRAM} of the release"
                );
                if *directory == paths.bin_dir {
                    names.insert(name);
                }
            }
        }
        Ok(names)
    }
}

/// Follows symbolic links in the node's own tree.
fn target(node: &Node, path: &str) -> anyhow::Result<String> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(link) = fs::read_link(node.path(&path)) else {
            return Ok(path);
        };
        let link = link
            .to_str()
            .context("a link of the node is text")?
            .to_owned();
        path = match path.rsplit_once('/') {
            Some((directory, _)) if !link.starts_with('/') => format!("{directory}/{link}"),
            _ => link,
        };
    }
    anyhow::bail!("{path} has too many links")
}
