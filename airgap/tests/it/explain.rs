//! `explain`: releases, media and single files.

use crate::{
    program::{FAILED, command, refused, succeeds, text},
    sample,
};

#[test]
fn release_and_medium_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let explain = |path: &str, more: &[&str]| {
        let path = dir.path().join(path);
        succeeds(command(&[&["explain", text(&path)], more].concat()))
    };
    let release = explain("", &[]);
    let head = format!(
        "release 9.8.7 of commit {} for amd64, arm, ",
        sample::COMMIT
    );
    assert!(release.contains(&head), "{release}");
    let image = format!("  image {} (sha256:", sample::image_of("9.8.7"));
    assert!(release.contains(&image), "{release}");
    assert!(
        release.contains("  chart k3s-multus 9.8.7: charts/assets/"),
        "{release}"
    );
    let programs = "  bin/<arch>/multus-distro: starts K3s or RKE2 with Multus, with a VPN, or both; 2 files, ";
    assert!(release.contains(programs), "{release}");
    // The description alone says the same.
    let description = explain("release.json", &[]);
    assert_eq!(
        description.lines().skip(2).collect::<Vec<_>>(),
        release.lines().skip(1).collect::<Vec<_>>()
    );
    let medium = explain("airgap", &[]);
    for expected in [
        "multus-airgap-images-amd64.tar: archive of 1 image for amd64, ",
        "multus-airgap-images-arm.tar: archive of 1 image for arm, ",
        "k3s/image-list-multus.txt: list of 1 image, ",
        "sha256sum-arm.txt: checksums of 8 files, ",
        "multus-airgap-arm: static program for arm, ",
    ] {
        assert!(medium.contains(expected), "no `{expected}` in {medium}");
    }
    let json = explain("airgap/multus-images.txt", &["--json"]);
    assert!(
        json.starts_with("[{\"name\":\"multus-images.txt\",\"size\":")
            && json.contains("\"kind\":\"list\",\"images\":[\"docker.io/multusrs/multus:v9.8.7\"]"),
        "{json}"
    );
}

#[test]
fn harm_and_foreign_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    sample::write(dir.path(), "9.8.7");
    let archive = dir
        .path()
        .join("airgap")
        .join(sample::archive(sample::ARCHES[0]));
    sample::damage(&archive);
    let expected = format!("{}: ", archive.display());
    refused(command(&["explain", text(&archive)]), FAILED, &expected);
    let chart = dir
        .path()
        .join("charts/assets/k3s-multus/k3s-multus-9.8.7.tgz");
    let copied = dir.path().parent().expect("it is in a directory");
    let copied = tempfile::tempdir_in(copied).unwrap();
    let copied = copied.path().join("chart-9.8.7.tgz");
    std::fs::copy(&chart, &copied).unwrap();
    let expected = "it is not an archive, a list of images";
    refused(command(&["explain", text(&copied)]), FAILED, expected);
    let charts = dir.path().join("charts");
    let expected = "is neither a release nor a directory with its airgap files";
    refused(command(&["explain", text(&charts)]), FAILED, expected);
}

#[test]
fn every_file_of_a_release_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let release = sample::write(dir.path(), "9.8.7");
    for path in release.0.keys() {
        let text = succeeds(command(&["explain", text(&dir.path().join(path))]));
        let use_line = text.lines().nth(1).unwrap_or_default();
        assert!(use_line.starts_with("  for "), "{path}: {text}");
    }
    let plugins = dir.path().join("plugins/cni-plugins-linux-arm-v9.8.7.tgz");
    let expected = "cni-plugins-linux-arm-v9.8.7.tgz: the common CNI plugins, ";
    let explained = succeeds(command(&["explain", text(&plugins)]));
    assert!(explained.starts_with(expected), "{explained}");
    // Its name says the same where nothing else of the release is.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("cni-plugins-linux-arm-v9.8.7.tgz");
    std::fs::copy(&plugins, &copy).unwrap();
    assert_eq!(succeeds(command(&["explain", text(&copy)])), explained);
}
