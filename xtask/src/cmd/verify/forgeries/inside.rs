//! Forged lists of what is inside, and forged licences.

use super::{append, forged, refused};
use crate::{
    cmd::verify::{
        Standard,
        sample::{ARCHES, release, release_of, reseal},
        verify::check,
    },
    description::Release,
    sbom,
    tree::Tree,
};

const SHIM: &str = "sbom/arm/multus-shim";

fn replace(tree: &mut Tree, path: &str, from: &str, to: &str) {
    let text = String::from_utf8(tree.get(path).unwrap().to_vec()).unwrap();
    let changed = text.replace(from, to);
    assert_ne!(changed, text, "{path} has no {from}");
    tree.add(path, changed);
}

/// Changes the document about a subject, named with or without its ending.
#[track_caller]
fn edited(path: &str, from: &str, to: &str, expected: &str) {
    let stem = path.strip_suffix(".cdx.json").unwrap_or(path);
    let path = format!("{stem}.cdx.json");
    forged(|tree| replace(tree, &path, from, to), expected);
}

#[track_caller]
fn removed(start: &str, expected: &str) {
    forged(
        |tree| tree.0.retain(|path, _| !path.starts_with(start)),
        expected,
    );
}

#[test]
fn list_about_another_subject_is_named() {
    let release = release();
    let digest = |path: &str| archive::digest::sha256(release.get(path).unwrap()).hex();
    let other = digest("bin/amd64/multus-shim");
    let kubectl = "sbom/arm/kubectl-multus";
    let own = digest("bin/arm/kubectl-multus");
    let about = format!("{kubectl}: it is about another file than the one of this release");
    edited(kubectl, &own, &other, &about);
    let archive = "sbom/arm/multus-airgap-images-arm.tar";
    let described = Release::parse(release.get(crate::description::FILE).unwrap()).unwrap();
    let manifest = described.images[0].platforms[1].manifest.hex();
    let expected = "it has no docker.io/multusrs/multus:v";
    edited(archive, &manifest, &other, expected);
    forged(
        |tree| {
            let list = tree.get(&format!("{SHIM}.cdx.json")).unwrap().to_vec();
            tree.add("sbom/arm/other.cdx.json", list);
        },
        "sbom/arm/other: the release has no such program, image or archive",
    );
}

#[test]
fn list_of_other_crates_is_named() {
    let (serde, sered) = ("\"serde\"", "\"sered\"");
    let image = "sbom/arm/image-multus: it does not list sered";
    edited(SHIM, serde, sered, image);
    // No image has these programs.
    for program in ["multus-distro", "kubectl-multus"] {
        let list = format!("sbom/amd64/{program}");
        let expected = "THIRD-PARTY.txt has no licence of sered 1.";
        edited(&list, serde, sered, expected);
        let expected = format!("{list} lists nys ");
        edited(&list, "\"syn\"", "\"nys\"", &expected);
    }
}

#[test]
fn lists_that_are_missing_or_too_many_are_named() {
    let expected = "sbom/arm/image-multus: sbom/arm/multus-shim is missing";
    removed(&format!("{SHIM}."), expected);
    let archive = "sbom/arm/multus-airgap-images-arm.tar";
    removed(archive, &format!("{archive}.cdx.json is missing"));
    let stray = "sbom/notes is not part of a release";
    forged(|tree| tree.add("sbom/notes", ""), stray);
    edited(
        "sbom/vex.cdx.json",
        "\"vulnerabilities\": []",
        "\"vulnerabilities\": [{}]",
        "sbom/vex.cdx.json does not follow from xtask/vex.toml",
    );
}

#[test]
fn forged_licences_are_named() {
    let expected = "LICENSE is not that of this checkout";
    forged(append("LICENSE", b"x"), expected);
    let expected =
        "its /usr/share/doc/multus/THIRD-PARTY.txt is not THIRD-PARTY.txt of the release";
    forged(append("THIRD-PARTY.txt", b"x"), expected);
    removed("THIRD-PARTY.txt", "THIRD-PARTY.txt is missing");
}

#[test]
fn release_without_lists_is_an_older_one() {
    let mut tree = release_of("9.8.7");
    tree.0.retain(|path, _| !path.starts_with("sbom/"));
    reseal(&mut tree);
    check(&tree, |_| Standard::Description).unwrap();
    let mut tree = release();
    tree.0.retain(|path, _| !path.starts_with("sbom/"));
    reseal(&mut tree);
    refused(&tree, "sbom/vex.cdx.json is missing");
}

#[test]
fn lists_follow_from_the_crates_that_cargo_resolves() {
    let release = release_of("9.8.7");
    let described = check(&release, |_| Standard::Description).unwrap();
    let check = |version| {
        let inventory = sbom::tests::sample(version, &ARCHES);
        sbom::check_graph(&inventory, &described)
    };
    check("9.8.7").unwrap();
    // Another graph, as after a change of a manifest.
    let error = check("9.8.6").unwrap_err().to_string();
    let expected = "does not follow from the crates of this checkout";
    assert!(error.ends_with(expected), "{error}");
}
