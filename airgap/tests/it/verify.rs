//! `verify`: releases and media of any version, and the harm that is named.

use std::{fs, os::unix::fs::PermissionsExt as _};

use release::tree::Tree;
use serde_json::{Value, json};

use crate::{
    program::{FAILED, command, refused, succeeds, text},
    sample,
};

#[test]
fn release_of_any_version_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    for version in ["5.0.0", "9.8.7"] {
        let at = dir.path().join(version);
        let tree = sample::write(&at, version);
        let stdout = succeeds(command(&["verify", text(&at)]));
        let expected = format!(
            "{}: release {version} of {} files for amd64, arm is undamaged\n",
            at.display(),
            tree.0.len()
        );
        assert_eq!(stdout, expected);
        let stdout = succeeds(command(&["verify", text(&at), "--json"]));
        let verdict: Value = serde_json::from_str(&stdout).unwrap();
        let release = tree.get("release.json").expect("a release has it");
        let release: Value = serde_json::from_slice(release).unwrap();
        let expected = json!({
            "release": release,
            "checkedSignatures": false,
            "signed": [],
            "attested": [],
            "unchecked": [],
        });
        assert_eq!(verdict, expected);
    }
}

#[test]
fn release_at_the_root_of_a_medium_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "5.0.0");
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    succeeds(command(&["verify", text(dir.path())]));
    fs::create_dir(dir.path().join("oci/lost+found")).unwrap();
    let expected = "oci/lost+found is an empty directory";
    refused(command(&["verify", text(dir.path())]), FAILED, expected);
}

#[test]
fn harm_to_a_release_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let harm = |name: &str, change: &dyn Fn(&std::path::Path), expected: &str| {
        let at = dir.path().join(name);
        sample::write(&at, "5.0.0");
        change(&at);
        refused(command(&["verify", text(&at)]), FAILED, expected);
    };
    harm(
        "byte",
        &|at| sample::damage(&at.join("bin/arm/multus-shim")),
        "bin/arm/multus-shim: its sha256 is",
    );
    harm(
        "missing",
        &|at| fs::remove_file(at.join("charts/index.yaml")).unwrap(),
        "charts/index.yaml is missing",
    );
    harm(
        "extra",
        &|at| fs::write(at.join("notes"), "").unwrap(),
        "notes is not in SHA256SUMS",
    );
    harm(
        "empty",
        &|at| fs::create_dir_all(at.join("charts/more/none")).unwrap(),
        "charts/more/none is an empty directory, which no release has: remove it",
    );
    harm(
        "sums",
        &|at| fs::remove_file(at.join("SHA256SUMS")).unwrap(),
        "has no SHA256SUMS",
    );
    harm(
        "schema",
        &|at| {
            let path = at.join("release.json");
            let former = fs::read_to_string(&path).unwrap();
            let changed = former.replace("\"schema\": 2", "\"schema\": 9");
            let sums = fs::read_to_string(at.join("SHA256SUMS")).unwrap();
            let digest = |text: &str| archive::digest::sha256(text.as_bytes()).hex();
            let sums = sums.replace(&digest(&former), &digest(&changed));
            fs::write(path, changed).unwrap();
            fs::write(at.join("SHA256SUMS"), sums).unwrap();
        },
        "release.json is damaged: schema 9 is not 2",
    );
}

#[test]
fn forged_lists_and_licences_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let forged = |name: &str, change: &dyn Fn(&mut Tree), expected: &str| {
        let at = dir.path().join(name);
        let mut tree = sample::release("9.8.7", sample::COMMIT, "");
        change(&mut tree);
        sample::reseal(&mut tree);
        tree.write_new(&at).unwrap();
        refused(command(&["verify", text(&at)]), FAILED, expected);
    };
    let replace = |tree: &mut Tree, path: &str, from: &str, to: &str| {
        let text = String::from_utf8(tree.get(path).unwrap().to_vec()).unwrap();
        tree.add(path, text.replace(from, to));
    };
    let list = "sbom/arm/multus-shim.cdx.json";
    forged(
        "hidden",
        &|tree| replace(tree, list, "serde", "sered"),
        "sbom/arm/image-multus: it does not list sered, which multus-shim has",
    );
    forged(
        "missing",
        &|tree| drop(tree.0.remove(list)),
        "sbom/arm/image-multus: sbom/arm/multus-shim is missing",
    );
    forged(
        "notices",
        &|tree| tree.add("THIRD-PARTY.txt", "serde 2.0.0\n"),
        "THIRD-PARTY.txt has no licence of serde 1.0.0",
    );
    forged(
        "licence",
        &|tree| tree.add("LICENSE", "another one\n"),
        "its /usr/share/doc/multus/LICENSE is not LICENSE of the release",
    );
}

#[test]
fn release_of_uncommitted_changes_needs_a_switch() {
    let dir = tempfile::tempdir().unwrap();
    let commit = format!("{}-dirty", sample::COMMIT);
    let tree = sample::release("5.0.0", &commit, "");
    tree.write_new(dir.path()).unwrap();
    let at = text(dir.path());
    refused(command(&["verify", at]), FAILED, "uncommitted changes");
    succeeds(command(&["verify", at, "--allow-dirty"]));
}

#[test]
fn medium_is_checked_without_the_rest_of_the_release() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let medium = dir.path().join("airgap");
    let stdout = succeeds(command(&["verify", text(&medium)]));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{stdout}");
    assert!(stdout.contains("multus-airgap-arm: static program for arm, sound\n"));
    assert!(stdout.contains("multus-airgap-images-arm.tar: 1 image for arm, sound\n"));
    let json = succeeds(command(&["verify", text(&medium), "--json"]));
    assert!(json.contains(&sample::image_of("9.8.7")), "{json}");
    let archive = sample::archive(sample::ARCHES[1]);
    sample::damage(&medium.join(&archive));
    let expected = format!("{archive} is not the file that sha256sum-arm.txt names");
    refused(command(&["verify", text(&medium)]), FAILED, &expected);
    fs::write(medium.join("thesis.tex"), "").unwrap();
    let expected = "thesis.tex does not belong there";
    fs::remove_file(medium.join(&archive)).unwrap();
    refused(command(&["verify", text(&medium)]), FAILED, expected);
    fs::remove_file(medium.join("thesis.tex")).unwrap();
    let expected = format!("{archive} is missing");
    refused(command(&["verify", text(&medium)]), FAILED, &expected);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let expected = "there is no sha256sum-<architecture>.txt";
    refused(command(&["verify", text(&empty)]), FAILED, expected);
}

/// The library's tests have every harm to a directory.
#[test]
fn programs_and_modes_of_a_medium_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let medium = dir.path().join("airgap");
    let (one, other) = ("multus-airgap-amd64", "multus-airgap-arm");
    let sums = medium.join("sha256sum-amd64.txt");
    let text_of = fs::read_to_string(&sums).unwrap();
    let digest = |name: &str| archive::digest::sha256(&fs::read(medium.join(name)).unwrap()).hex();
    fs::write(&sums, text_of.replace(&digest(one), &digest(other))).unwrap();
    fs::copy(medium.join(other), medium.join(one)).unwrap();
    let expected = "is not sound: multus-airgap-amd64: ";
    refused(command(&["verify", text(&medium)]), FAILED, expected);
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let medium = dir.path().join("airgap");
    let list = medium.join("multus-images.txt");
    fs::set_permissions(&list, fs::Permissions::from_mode(0o646)).unwrap();
    refused(command(&["verify", text(&medium)]), FAILED, "has mode 0646");
}
