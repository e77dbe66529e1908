//! Small releases of fake programs, as directories.

mod inside;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use archive::{image_archive, layout::Layout, lists};
use chart::BuildSettings;
use release::{
    arch::{Arch, Binaries},
    bundle, charts,
    compose::{Parts, compose},
    description::{self, Origin, Release},
    image,
    tree::Tree,
    workstation::Plugins,
};

pub(crate) const ARCHES: [Arch; 2] = [Arch::Amd64, Arch::Arm];
pub(crate) const COMMIT: &str = "0123456789012345678901234567890123456789";
const PROGRAMS: [&str; 6] = [
    "kubectl-multus",
    "multus-airgap",
    "multus-cni-plugins",
    "multus-daemon",
    "multus-distro",
    "multus-shim",
];

/// Returns the name of the image in a release.
pub(crate) fn image_of(version: &str) -> String {
    format!("docker.io/multusrs/multus:v{version}")
}

/// Returns the smallest file that passes for a static program, followed by a text.
fn program(arch: Arch, text: &[u8]) -> Vec<u8> {
    testkit::elf::static_program(arch.is_64(), arch.machine().0, text)
}

/// Returns the layout of a release of these programs.
pub(crate) fn layout(version: &str, programs: &BTreeMap<Arch, Binaries>) -> Layout {
    let definition = include_bytes!("../../../images/multus/image.json");
    let definition = image::Definition::parse(definition).expect("the definition is sound");
    let platforms: Vec<_> = programs
        .iter()
        .map(|(arch, programs)| (arch.platform(), programs.clone()))
        .collect();
    let release = image::Release {
        version: version.to_owned(),
        created: api::time::rfc3339(0),
        documents: inside::licences(),
    };
    let mut layout = Layout::default();
    definition
        .add_to(&mut layout, &release, &platforms)
        .expect("a small image");
    layout
}

fn programs(content: &[u8], daemon: &str) -> BTreeMap<Arch, Binaries> {
    let of = |arch| {
        let programs = PROGRAMS.map(|name| {
            let is_changed = ["multus-airgap", "multus-daemon"].contains(&name);
            let end = if is_changed { daemon } else { "" };
            let text = [name.as_bytes(), content, end.as_bytes()].concat();
            (name.to_owned(), program(arch, &text))
        });
        (arch, Binaries::from(programs))
    };
    ARCHES.map(of).into()
}

/// Returns a release of any version; two of one version differ by the text at the end of two programs.
pub(crate) fn release(version: &str, commit: &str, daemon: &str) -> Tree {
    let settings = BuildSettings::from(version);
    let packed = charts::pack(&settings).expect("the charts are sound");
    let generated = charts::generated(&settings, &packed).expect("the charts are sound");
    let mut embedded: Vec<u8> = packed
        .iter()
        .flat_map(|chart| chart.bytes.clone())
        .collect();
    for (_, manifest) in generated.below("manifests/") {
        embedded.extend_from_slice(&manifest.bytes);
    }
    embedded.extend_from_slice(image_of(version).as_bytes());
    let programs = programs(&embedded, daemon);
    let origin = Origin {
        version: version.to_owned(),
        commit: commit.to_owned(),
        epoch: 0,
        toolchain: "1.95.0".to_owned(),
        trusted_key: None,
        build: None,
        architectures: ARCHES.to_vec(),
        image_prefix: chart::ImagePrefix::DEFAULT,
    };
    let release = compose(Parts {
        origin,
        charts: &packed,
        programs: &programs,
        plugins: &Plugins::new(),
        layout: &layout(version, &programs),
        licences: inside::licences(),
        pages: Tree::default(),
        sbom: &inside::lists,
        budgets: |_, _, _| Vec::new(),
    });
    release.expect("its parts are sound")
}

/// Rewrites the list of files and all checksums, as a careful attacker would.
pub(crate) fn reseal(tree: &mut Tree) {
    let described = tree.get(description::FILE).expect("a release has it");
    let mut release = Release::parse(described).expect("it is sound");
    release.files = description::files(tree);
    release.seal(tree).expect("it is JSON");
}

/// Writes a release of this version below a directory, and returns it.
pub(crate) fn write(dir: &Path, version: &str) -> Tree {
    let tree = release(version, COMMIT, "");
    tree.write_new(dir).expect("a directory of the test");
    tree
}

/// Changes the last byte of a file.
pub(crate) fn damage(path: &Path) {
    let mut bytes = fs::read(path).expect("a file of the test");
    *bytes.last_mut().expect("it is not empty") ^= 1;
    fs::write(path, bytes).expect("a file of the test");
}

/// Writes an archive with the image for one architecture, and returns its path.
pub(crate) fn write_archive(dir: &Path) -> PathBuf {
    let arch = ARCHES[1];
    let layout = layout("9.8.7", &programs(b"", ""));
    let part = bundle::slice(&layout, arch.name()).expect("a sound layout");
    let path = dir.join(archive(arch));
    let bytes = image_archive::write(&part).expect("a sound layout");
    fs::write(&path, bytes).expect("a directory of the test");
    path
}

/// Returns the name of an architecture's archive.
pub(crate) fn archive(arch: Arch) -> String {
    lists::archive_name(arch.name())
}
