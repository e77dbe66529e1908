//! Each kind of file, as text, and files that are of no kind.

use archive::{
    digest::sha256,
    gzip,
    layout::Layout,
    oci::{self, ImageConfig, Index, Manifest, Platform, RootFs, RunConfig},
    tar::{self, Entry},
};
use release::{
    arch::Arch,
    medium::{self, ProgramsByArch},
};

use super::*;

/// Returns a layout with one image for one architecture: one layer with one program.
fn layout() -> Layout {
    let mut layout = Layout::default();
    let tar = tar::write(&[Entry::file("program", 0o755, "x")]).unwrap();
    let platform = Platform {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let config = ImageConfig {
        created: String::new(),
        platform: platform.clone(),
        config: RunConfig::default(),
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: vec![sha256(&tar)],
        },
        history: Vec::new(),
    };
    let config = layout.add(oci::CONFIG, oci::to_bytes(&config));
    let layer = layout.add(oci::LAYER_GZIP, gzip::compress(&tar));
    let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
    let mut manifest = layout.add(oci::MANIFEST, manifest);
    manifest.platform = Some(platform);
    let index = layout.add(oci::INDEX, oci::to_bytes(&Index::of(vec![manifest])));
    layout.images.push(index.named(NAME));
    layout
}

const NAME: &str = "docker.io/own/x:v1";
const ARCHIVE: &str = "multus-airgap-images-amd64.tar";

fn none() -> ProgramsByArch {
    ProgramsByArch::new()
}

fn explained(name: &str, bytes: &[u8]) -> String {
    text::of(&explain_file(name, bytes, None).unwrap())
}

#[test]
fn every_file_of_a_directory_of_archives_is_explained() {
    let tree = medium::tree(&layout(), &[Arch::Amd64], &none()).unwrap();
    let text = |name: &str| explained(name, tree.get(name).unwrap());
    let archive = text(ARCHIVE);
    assert!(
        archive.starts_with(&format!("{ARCHIVE}: archive of 1 image for amd64, ")),
        "{archive}"
    );
    assert!(
        archive.contains(&format!("  image {NAME} (sha256:")),
        "{archive}"
    );
    // A header and a block of content, and two blocks at the end.
    assert!(archive.contains("    amd64: 1 layer, "), "{archive}");
    assert!(archive.ends_with(" bytes, 2048 unpacked\n"), "{archive}");
    let list = text(lists::ALL_IMAGES);
    assert_eq!(
        list,
        format!(
            "{}: list of 1 image, 19 bytes\n  {NAME}\n",
            lists::ALL_IMAGES
        )
    );
    assert!(text(lists::ALL_DIGESTS).contains("list of 1 image"));
    let sums = text("sha256sum-amd64.txt");
    assert!(
        sums.starts_with("sha256sum-amd64.txt: checksums of 7 files"),
        "{sums}"
    );
    assert!(sums.contains(&format!("  {ARCHIVE}\n")), "{sums}");
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let tree = medium::tree(&layout(), &[Arch::Amd64], &none()).unwrap();
    let archive = tree.get(ARCHIVE).unwrap();
    let foreign = tar::write(&[Entry::file("notes", 0o644, "x")]).unwrap();
    for (bytes, expected) in [
        (&archive[..600], "damaged tar archive"),
        (&foreign[..], "it is not a valid archive of images"),
        (&b"some words"[..], "it is not an archive, a list of images"),
        (&b"word"[..], "it is not an archive, a list of images"),
        (&b""[..], "it is not an archive, a list of images"),
        (&b"{}"[..], "it is not a valid release.json"),
        (&b"\x7fELF"[..], "it is not an archive, a list of images"),
    ] {
        let error = explain_file("x", bytes, None).expect_err(expected);
        let error = format!("{error:#}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn directory_without_checksums_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = explain_dir(dir.path()).unwrap_err().to_string();
    assert!(error.contains("no sha256sum-<architecture>.txt"), "{error}");
    let args = Args {
        path: dir.path().join("absent"),
        json: false,
    };
    let error = run(&args).unwrap_err();
    assert!(error.to_string().contains("name a release"), "{error}");
}
