//! The manual pages and completions of a release: those that stand beside the programs' sources, and this program's own.
//!
//! `cargo` is who completes `cargo xtask`, so that has manual pages alone.

use cmdline::pages;
use include_dir::{Dir, include_dir};

use crate::tree::Tree;

/// Held to their command lines by a test of each program.
static PROGRAMS: [Dir<'static>; 3] = [
    include_dir!("$CARGO_MANIFEST_DIR/../daemon/pages"),
    include_dir!("$CARGO_MANIFEST_DIR/../distro/pages"),
    include_dir!("$CARGO_MANIFEST_DIR/../kubectl/pages"),
];

/// All of them, by their place in a release.
pub(crate) fn tree() -> Tree {
    let mut tree = Tree::default();
    for dir in &PROGRAMS {
        add(&mut tree, dir);
    }
    for (path, bytes) in pages::manual(crate::command()) {
        tree.add(path, bytes);
    }
    tree
}

fn add(tree: &mut Tree, dir: &Dir<'_>) {
    for file in dir.files() {
        tree.add(file.path().to_string_lossy(), file.contents());
    }
    for dir in dir.dirs() {
        add(tree, dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_that_people_call_has_its_pages() {
        let tree = tree();
        for path in [
            "man/multus-daemon.1",
            "man/multus-distro-stage.1",
            "man/cargo-xtask-airgap-push.1",
            "completions/multus-distro.bash",
            "completions/multus-daemon.fish",
            "completions/_multus-distro",
            "man/kubectl-multus-lint.1",
            "completions/kubectl-multus.bash",
        ] {
            let page = tree.get(path).unwrap_or_else(|| panic!("no {path}"));
            assert!(page.len() > 100, "{path}");
        }
    }
}
