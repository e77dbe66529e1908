//! The manual pages and completions of a release: those that are stored next to the programs' sources.

use cmdline::pages;
use include_dir::{Dir, include_dir};

use crate::tree::Tree;

/// A test of each program compares these with its command line.
static PROGRAMS: [Dir<'static>; 4] = [
    include_dir!("$CARGO_MANIFEST_DIR/../airgap/pages"),
    include_dir!("$CARGO_MANIFEST_DIR/../daemon/pages"),
    include_dir!("$CARGO_MANIFEST_DIR/../distro/pages"),
    include_dir!("$CARGO_MANIFEST_DIR/../kubectl/pages"),
];

/// Returns all pages under their paths in a release.
pub(crate) fn tree() -> Tree {
    let mut tree = Tree::default();
    for dir in &PROGRAMS {
        add(&mut tree, dir);
    }
    tree
}

fn add(tree: &mut Tree, dir: &Dir<'_>) {
    for file in dir.files() {
        let text = String::from_utf8_lossy(file.contents());
        let text = text.replace(pages::VERSION, env!("CARGO_PKG_VERSION"));
        tree.add(file.path().to_string_lossy(), text);
    }
    for dir in dir.dirs() {
        add(tree, dir);
    }
}
