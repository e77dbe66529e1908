//! A small release of fake programs, which follows from itself as a real one does, and its checksums after a change.

use std::{collections::BTreeMap, sync::LazyLock};

use archive::layout::Layout;
use chart::BuildSettings;
use release::{
    image::{Definition, Release as ImageRelease},
    workstation::{Plugins, Workstation},
};

use crate::{
    arch::Arch,
    charts,
    cmd::dist,
    description::{self, Origin, Release},
    programs::{self, Binaries},
    sbom,
    tree::Tree,
};

pub(super) const ARCHES: [Arch; 2] = [Arch::Amd64, Arch::Arm];

/// Returns the smallest file that passes for a static program, followed by a text.
pub(super) fn program(arch: Arch, text: &[u8]) -> Vec<u8> {
    testkit::elf::static_program(arch.is_64(), arch.machine().0, text)
}

pub(super) fn programs(arch: Arch, embedded: &[u8]) -> Binaries {
    programs::names()
        .map(|name| {
            let text = [name.as_bytes(), embedded].concat();
            (name.to_owned(), program(arch, &text))
        })
        .collect()
}

/// Returns the smallest file that passes for a program for Windows, of each workstation.
fn plugins() -> Plugins {
    let mut bytes = vec![0; 0xc8];
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x3c] = 0x40;
    bytes[0x40..0x46].copy_from_slice(b"PE\0\0\x64\x86");
    // The size of the optional header, which has no directories, and its magic.
    bytes[0x54..0x5a].copy_from_slice(&[0x70, 0, 0, 0, 0x0b, 2]);
    Plugins::from([(Workstation::WindowsAmd64, bytes)])
}

pub(super) fn layout(programs: &BTreeMap<Arch, Binaries>) -> Layout {
    layout_of(env!("CARGO_PKG_VERSION"), programs)
}

fn layout_of<'a>(
    settings: impl Into<BuildSettings<'a>>,
    programs: &BTreeMap<Arch, Binaries>,
) -> Layout {
    let settings = settings.into();
    let definition = include_bytes!("../../../../images/multus/image.json");
    let definition = Definition::parse(definition)
        .unwrap()
        .named(&settings.images);
    let platforms: Vec<_> = programs
        .iter()
        .map(|(arch, programs)| (arch.platform(), programs.clone()))
        .collect();
    let release = ImageRelease {
        version: settings.version.to_string(),
        created: api::time::rfc3339(0),
        documents: sbom::tests::sample(&settings, &ARCHES).licences(),
    };
    let mut layout = Layout::default();
    definition
        .add_to(&mut layout, &release, &platforms)
        .unwrap();
    layout
}

fn origin(settings: &BuildSettings<'_>) -> Origin {
    Origin {
        version: settings.version.to_string(),
        image_prefix: settings.images.clone(),
        commit: "0".repeat(40),
        epoch: 0,
        toolchain: "1.95.0".into(),
        trusted_key: None,
        build: None,
        architectures: ARCHES.to_vec(),
    }
}

/// Returns a copy of the release of this version, which is made once.
pub(super) fn release() -> Tree {
    static RELEASE: LazyLock<Tree> = LazyLock::new(|| release_of(env!("CARGO_PKG_VERSION")));
    RELEASE.clone()
}

pub(super) fn release_of<'a>(settings: impl Into<BuildSettings<'a>>) -> Tree {
    let settings = &settings.into();
    let charts = charts::pack(settings).unwrap();
    let generated = charts::generated(settings, &charts).unwrap();
    let mut embedded: Vec<u8> = charts
        .iter()
        .flat_map(|chart| chart.bytes.clone())
        .collect();
    for (_, manifest) in generated.below("manifests/") {
        embedded.extend_from_slice(&manifest.bytes);
    }
    embedded.extend_from_slice(settings.image().as_bytes());
    let programs = ARCHES.map(|arch| (arch, programs(arch, &embedded))).into();
    dist::compose(
        origin(settings),
        &charts,
        (&programs, &plugins()),
        &layout_of(settings, &programs),
        &sbom::tests::sample(settings, &ARCHES),
    )
    .unwrap()
}

/// Rewrites the list of files and all checksums, as a careful attacker would.
pub(super) fn reseal(tree: &mut Tree) {
    let described = tree.get(description::FILE).unwrap();
    let mut release: Release = serde_json::from_slice(described).unwrap();
    release.files = description::files(tree);
    release.seal(tree).unwrap();
}
