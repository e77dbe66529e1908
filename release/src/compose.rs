//! Makes a release from its parts: every file of it, in the order in which files follow from each other, and last the three that describe
//! all others.

use std::collections::BTreeMap;

use archive::{
    layout::Layout,
    verify::{Image, images},
};
use chart::{BuildSettings, index::Packed};

use crate::{
    arch::{Arch, Binaries},
    charts,
    description::{self, Budget, Origin, Release},
    exports::{self, Exported},
    kubectl_archives, medium,
    parts::{self, README},
    plugin_archives,
    source::PROGRAM,
    tree::Tree,
    workstation::{self, Plugins},
};

/// What a release is made from.
pub struct Parts<'a> {
    pub origin: Origin,
    pub charts: &'a [Packed],
    pub programs: &'a BTreeMap<Arch, Binaries>,
    pub plugins: &'a Plugins,
    pub layout: &'a Layout,
    /// The files about licences by name.
    pub licences: BTreeMap<String, String>,
    /// The manual pages and completions.
    pub pages: Tree,
    /// Makes the lists of what is inside of a release that has everything else.
    pub sbom: &'a dyn Fn(&Release) -> anyhow::Result<Tree>,
    pub budgets: fn(&[Arch], &Tree, &[Image]) -> Vec<Budget>,
}

/// Returns all files of a release.
pub fn compose(parts: Parts<'_>) -> anyhow::Result<Tree> {
    let origin = parts.origin;
    let (version, arches) = (&origin.version, &origin.architectures[..]);
    let mut tree = charts::repository(parts.charts, origin.epoch)?;
    tree.extend(programs(parts.programs));
    tree.extend(workstation::tree(parts.plugins));
    for (name, text) in &parts.licences {
        tree.add(name, text.as_str());
    }
    let archives = plugin_archives::tree(version, parts.programs, &parts.licences)?;
    tree.extend(archives);
    let archives = kubectl_archives::tree(version, arches, &tree, &parts.licences)?;
    tree.extend(archives);
    tree.extend_below("oci/", parts.layout.files().into_iter().collect());
    let settings = BuildSettings {
        version: version.as_str().into(),
        images: origin.image_prefix.clone(),
    };
    tree.extend(charts::generated(&settings, parts.charts)?);
    let operators = parts.programs.iter().filter_map(|(arch, programs)| {
        let program = programs.get(PROGRAM)?;
        Some((arch.name().to_owned(), program.clone()))
    });
    let medium = medium::tree(parts.layout, arches, &operators.collect())?;
    tree.extend_below("airgap/", medium);
    tree.extend(parts.pages);
    let images = images(parts.layout)?;
    let names: Vec<_> = images.iter().map(|image| &image.reference[..]).collect();
    let charts = charts::entries(parts.charts);
    tree.extend(exports::tree(&Exported {
        version,
        arches,
        images: &names,
        charts: &charts,
    }));
    let arches = origin.architectures.clone();
    let mut release = Release::of(origin, &tree, &images, charts, Vec::new());
    tree.extend((parts.sbom)(&release)?);
    release.budgets = (parts.budgets)(&arches, &tree, &images);
    describe(release, tree)
}

/// Returns the programs of nodes under their paths in a release.
pub fn programs(binaries: &BTreeMap<Arch, Binaries>) -> Tree {
    let mut tree = Tree::default();
    for (arch, programs) in binaries {
        for (name, bytes) in programs {
            tree.add_program(format!("bin/{}/{name}", arch.name()), bytes.clone());
        }
    }
    tree
}

/// Adds the three files that describe all others, unless one of those is over its limit.
fn describe(mut release: Release, mut tree: Tree) -> anyhow::Result<Tree> {
    release.check_budgets()?;
    tree.add(README, parts::readme(&release, &tree));
    release.files = description::files(&tree);
    release.seal(&mut tree)?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use chart::ImagePrefix;

    use super::*;

    #[test]
    fn release_over_a_budget_is_refused() {
        let outcome = |size| {
            let origin = Origin {
                version: "5.0.0".to_owned(),
                commit: String::new(),
                epoch: 0,
                toolchain: String::new(),
                trusted_key: None,
                build: None,
                architectures: vec![Arch::Arm],
                image_prefix: ImagePrefix::DEFAULT,
            };
            let tree = Tree::from_iter([("a".to_owned(), vec![0; size])]);
            let budget = Budget {
                what: "a".to_owned(),
                size: size as u64,
                limit: 10,
            };
            let release = Release::of(origin, &tree, &[], Vec::new(), vec![budget]);
            describe(release, tree).map_err(|error| error.to_string())
        };
        let tree = outcome(10).unwrap();
        let release = Release::parse(tree.get(description::FILE).unwrap()).unwrap();
        assert_eq!(release.budgets[0].limit, 10);
        let expected = "a has 11 bytes, its budget is 10";
        assert_eq!(outcome(11), Err(expected.to_owned()));
    }
}
