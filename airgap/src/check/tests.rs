//! A directory with archives of two architectures, and every fault that a copy of it may have.

use archive::tar;

use super::*;
use crate::{medium, sample};

type Files = BTreeMap<String, Vec<u8>>;

/// Returns an archive's content: one image with one program.
fn part(architecture: &str) -> Layout {
    let mut part = Layout::default();
    let manifest = sample::manifest(&mut part, architecture, architecture);
    part.images.push(manifest.named(NAME));
    part
}

fn of(architecture: &str, part: &Layout) -> Files {
    medium::files(architecture, part, &format!("{NAME}@sha256:0\n"), None).unwrap()
}

/// Writes checksums that match the files.
fn seal(files: &mut Files, architecture: &str) {
    let names = [
        lists::names(architecture),
        lists::archives(architecture).to_vec(),
    ]
    .concat();
    let present = files.iter().filter(|(name, _)| names.contains(name));
    let sums = lists::sums(present.map(|(name, bytes)| (name.as_str(), sha256(bytes))));
    files.insert(format!("sha256sum-{architecture}.txt"), sums.into_bytes());
}

fn medium_files() -> Files {
    let mut files = of("amd64", &part("amd64"));
    files.extend(of("arm64", &part("arm64")));
    files
}

#[track_caller]
fn refused(files: &Files, expected: &str) {
    let error = dir(files).expect_err(expected);
    let source = std::error::Error::source(&error).map(ToString::to_string);
    let text = format!("{error}: {}", source.unwrap_or_default());
    assert!(text.contains(expected), "{text}");
}

const NAME: &str = "docker.io/own/x:v1";
const ZST: &str = "multus-airgap-images-amd64.tar.zst";
const GZ: &str = "multus-airgap-images-amd64.tar.gz";
const LIST: &str = "multus-images.linux-amd64.txt";

#[test]
fn complete_directory_and_the_files_for_one_node_are_sound() {
    let found = dir(&medium_files()).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].archives, [ZST, GZ]);
    assert_eq!(found[1].images[0].reference, NAME);
    let mut files = of("amd64", &part("amd64"));
    files.remove(GZ);
    assert_eq!(dir(&files).unwrap()[0].archives, [ZST]);
    files.remove(ZST);
    refused(&files, &format!("{ZST} is missing"));
    refused(&Files::new(), "no sha256sum-");
}

#[test]
fn program_for_operators_is_covered_and_may_be_left_out() {
    let program = |machine| testkit::elf::static_program(true, machine, b"");
    let with = |bytes: &[u8]| {
        let part = part("amd64");
        let list = format!("{NAME}@sha256:0\n");
        medium::files("amd64", &part, &list, Some(bytes)).unwrap()
    };
    let name = lists::program_name("amd64");
    let mut files = with(&program(62));
    assert_eq!(dir(&files).unwrap()[0].program, Some(name.clone()));
    files.get_mut(&name).unwrap().push(0);
    refused(&files, &format!("{name} is not the file that sha256sum-"));
    files.remove(&name);
    assert_eq!(dir(&files).unwrap()[0].program, None);
    // One for another machine, or no program at all, with matching checksums.
    refused(&with(&program(183)), &format!("{name}: ELF machine 183"));
    refused(
        &with(b"#!/bin/sh"),
        &format!("{name}: no ELF file for amd64"),
    );
    let mut uncovered = of("amd64", &part("amd64"));
    uncovered.insert(name.clone(), program(62));
    refused(&uncovered, &format!("{name} does not belong there"));
}

#[test]
fn plain_lists_have_tags_and_the_others_say_digests() {
    let files = medium_files();
    let lists: Vec<_> = files
        .iter()
        .filter(|(name, _)| name.contains("image") && !name.contains(".tar."))
        .collect();
    assert_eq!(lists.len(), 9, "{lists:?}");
    for (name, text) in lists {
        let text = std::str::from_utf8(text).unwrap();
        assert!(text.starts_with(NAME), "{name}: {text}");
        assert_eq!(text.contains('@'), name.contains("digests"), "{name}");
    }
}

#[test]
fn file_that_does_not_match_the_checksums_is_named() {
    let mut cut = medium_files();
    cut.get_mut(ZST).unwrap().truncate(200);
    refused(
        &cut,
        &format!("{ZST} is not the file that sha256sum-amd64.txt names"),
    );
    let mut extra = medium_files();
    extra.insert("notes.txt".into(), Vec::new());
    refused(&extra, "notes.txt does not belong there");
    let mut renamed = medium_files();
    let bytes = renamed.remove(ZST).unwrap();
    renamed.insert("images.tar.zst".into(), bytes);
    refused(&renamed, "images.tar.zst does not belong there");
    let mut damaged = medium_files();
    damaged.insert("sha256sum-amd64.txt".into(), b"x".to_vec());
    refused(&damaged, "sha256sum-amd64.txt is damaged");
}

/// Asserts that a changed file is refused although its checksum was rewritten.
fn forged(change: impl FnOnce(&mut Files), expected: &str) {
    let mut files = medium_files();
    change(&mut files);
    seal(&mut files, "amd64");
    refused(&files, expected);
}

#[test]
fn every_list_is_covered_by_checksums_and_compared_with_the_archive() {
    for list in lists::names("amd64") {
        let mut changed = medium_files();
        changed.get_mut(&list).unwrap().push(b'x');
        refused(&changed, &format!("{list} is not the file that sha256sum-"));
        let mut less = medium_files();
        less.remove(&list);
        refused(&less, &format!("{list} is missing"));
        let other = b"docker.io/own/y:v1\n".to_vec();
        forged(
            |files| {
                files.retain(|name, _| !name.contains("arm64"));
                files.insert(list.clone(), other);
            },
            &format!("{list} does not list the images of {ZST}"),
        );
    }
    let mut uncovered = of("amd64", &part("amd64"));
    uncovered.remove(lists::ALL_IMAGES);
    seal(&mut uncovered, "amd64");
    refused(&uncovered, "sha256sum-amd64.txt is damaged");
}

#[test]
fn forged_files_with_matching_checksums_are_refused() {
    forged(
        |files| files.get_mut(ZST).unwrap().truncate(200),
        &format!("{ZST}: damaged zstd stream"),
    );
    forged(
        |files| {
            let other = files["multus-airgap-images-arm64.tar.zst"].clone();
            files.insert(ZST.into(), other);
        },
        &format!("{ZST} holds docker.io/own/x:v1 for arm64"),
    );
    forged(
        |files| {
            let other = bundle::archive(&Layout::default()).unwrap();
            files.insert(GZ.into(), gzip::compress(&other));
        },
        &format!("{ZST} and {GZ} have different content"),
    );
    forged(
        |files| drop(files.insert(LIST.into(), b"docker.io/own/y:v1\n".to_vec())),
        &format!("{LIST} does not list the images of {ZST}"),
    );
}

fn repacked(change: impl FnOnce(&mut Vec<Entry>), expected: &str) {
    forged(
        |files| {
            let mut entries = bundle::entries(&part("amd64")).unwrap();
            change(&mut entries);
            let tar = tar::write_in_order(&entries).unwrap();
            let zst = zstd::compress(&tar, zstd::ARCHIVE).unwrap();
            files.insert(ZST.into(), zst);
            files.remove(GZ);
        },
        expected,
    );
}

#[test]
fn forged_entries_with_matching_checksums_are_refused() {
    let is_blob = |entry: &Entry| entry.path.starts_with("blobs/sha256/");
    repacked(
        |entries| {
            let first = entries.iter().position(is_blob).unwrap();
            entries.remove(first);
        },
        "is missing, which",
    );
    repacked(
        |entries| {
            let blob = entries.iter_mut().find(|entry| is_blob(entry)).unwrap();
            blob.kind = tar::Kind::File(b"other".to_vec());
        },
        "has the digest",
    );
    repacked(
        |entries| entries.push(Entry::file("more", 0o644, "")),
        "more does not belong in an image layout",
    );
    repacked(
        |entries| {
            let docker = entries
                .iter_mut()
                .find(|entry| entry.path == "manifest.json");
            docker.unwrap().kind = tar::Kind::File(b"[]".to_vec());
        },
        "entry manifest.json does not follow from its images",
    );
    repacked(
        |entries| entries.swap(0, 1),
        "entry index.json does not follow from its images",
    );
}
