//! A directory with archives of two architectures, and every fault that a copy of it may have.
//!
//! `multus-airgap` and `multus-distro` both check a directory by this one function; a test of each shows that it calls it.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::unix::fs::symlink,
    path::Path,
};

use archive::{
    digest::sha256,
    gzip, image_archive,
    layout::Layout,
    lists,
    medium::{Medium, Sound},
    oci::{self, ImageConfig, Manifest, Platform, RootFs, RunConfig},
    tar::{self, Entry, Kind},
    verify::MAX_UNPACKED,
};

type Files = BTreeMap<String, Vec<u8>>;

const NAME: &str = "docker.io/own/x:v1";
const ARCHIVE: &str = "multus-airgap-images-amd64.tar";
const SUMS: &str = "sha256sum-amd64.txt";
const LIST: &str = "multus-images.linux-amd64.txt";

/// Returns an image of layers, each with its media type, its stored and its uncompressed bytes.
fn image(architecture: &str, layers: &[(&str, Vec<u8>, Vec<u8>)]) -> Layout {
    let mut part = Layout::default();
    let platform = Platform {
        architecture: architecture.to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let config = ImageConfig {
        created: String::new(),
        platform: platform.clone(),
        config: RunConfig::default(),
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: layers.iter().map(|(_, _, plain)| sha256(plain)).collect(),
        },
        history: Vec::new(),
    };
    let config = part.add(oci::CONFIG, oci::to_bytes(&config));
    let blobs = layers
        .iter()
        .map(|(kind, stored, _)| part.add(kind, stored.clone()))
        .collect();
    let manifest = oci::to_bytes(&Manifest::of(config, blobs));
    let mut manifest = part.add(oci::MANIFEST, manifest);
    manifest.platform = Some(platform);
    part.images.push(manifest.named(NAME));
    part
}

fn part(architecture: &str) -> Layout {
    let plain = tar::write(&[Entry::file("program", 0o755, architecture)]).expect("a plain path");
    image(
        architecture,
        &[(oci::LAYER_GZIP, gzip::compress(&plain), plain)],
    )
}

/// Returns the files of one architecture around this archive.
fn around(architecture: &str, part: &Layout, archive: Vec<u8>) -> Files {
    let lists = lists::texts(architecture, &part.images, &format!("{NAME}@sha256:0\n"));
    let mut files: Files = lists
        .into_iter()
        .map(|(name, text)| (name, text.into_bytes()))
        .collect();
    files.insert(lists::archive_name(architecture), archive);
    seal(&mut files, architecture);
    files
}

fn of(architecture: &str, part: &Layout) -> Files {
    let archive = image_archive::write(part).expect("a sound layout");
    around(architecture, part, archive)
}

/// Writes checksums that match the files.
fn seal(files: &mut Files, architecture: &str) {
    let mut names = lists::names(architecture);
    names.push(lists::archive_name(architecture));
    names.push(lists::program_name(architecture));
    let present = files.iter().filter(|(name, _)| names.contains(name));
    let sums = lists::sums(present.map(|(name, bytes)| (name.as_str(), sha256(bytes))));
    files.insert(lists::sums_name(architecture), sums.into_bytes());
}

fn both() -> Files {
    let mut files = of("amd64", &part("amd64"));
    files.extend(of("arm64", &part("arm64")));
    files
}

fn write(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("it is below the directory")).expect("a test's");
        fs::write(path, bytes).expect("a directory of the test");
    }
}

/// Checks a directory as a node of `architecture` does, or all of it.
fn check_dir(dir: &Path, architecture: Option<&str>) -> Result<Sound, String> {
    let text = |error: archive::medium::Error| {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            text = format!("{text}: {source}");
            cause = source.source();
        }
        text
    };
    let medium = Medium::open(dir, architecture).map_err(text)?;
    medium.check(architecture).map_err(text)
}

fn check(files: &Files, architecture: Option<&str>) -> Result<Sound, String> {
    let dir = tempfile::tempdir().expect("a directory for the test");
    write(dir.path(), files);
    check_dir(dir.path(), architecture)
}

/// Asserts that operators and nodes of amd64 refuse the files alike.
#[track_caller]
fn refused(files: &Files, expected: &str) {
    for architecture in [None, Some("amd64")] {
        let error = check(files, architecture).expect_err(expected);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn complete_directory_and_the_files_for_one_node_are_sound() {
    let found = check(&both(), None).unwrap();
    assert_eq!(found.archives.len(), 2);
    assert_eq!(found.archives[0].name, ARCHIVE);
    assert_eq!(found.archives[1].images[0].reference, NAME);
    let mut files = both();
    files.remove("multus-airgap-images-arm64.tar");
    let found = check(&files, Some("amd64")).unwrap();
    assert_eq!(found.archives.len(), 1);
    let error = check(&files, None).unwrap_err();
    assert!(error.contains("images-arm64.tar is missing"), "{error}");
    files.remove(ARCHIVE);
    refused(&files, &format!("{ARCHIVE} is missing"));
    let error = check(&of("amd64", &part("amd64")), Some("arm64")).unwrap_err();
    assert!(
        error.starts_with("there is no sha256sum-arm64.txt"),
        "{error}"
    );
    refused(&Files::new(), "there is no sha256sum-");
}

#[test]
fn file_that_does_not_match_the_checksums_is_named() {
    let mut cut = both();
    cut.get_mut(ARCHIVE).unwrap().truncate(200);
    refused(
        &cut,
        &format!("{ARCHIVE} is not the file that {SUMS} names"),
    );
    for name in [
        "notes.txt",
        "k3s/notes.txt",
        "multus-airgap-images-amd64.tar.zst",
        "x.sig",
    ] {
        let mut extra = both();
        extra.insert(name.to_owned(), Vec::new());
        refused(&extra, &format!("{name} does not belong there"));
    }
    let mut uncovered = both();
    uncovered.insert(lists::program_name("amd64"), b"program".to_vec());
    refused(&uncovered, "multus-airgap-amd64 does not belong there");
    seal(&mut uncovered, "amd64");
    check(&uncovered, Some("amd64")).unwrap();
    uncovered.insert(lists::program_name("amd64"), b"other".to_vec());
    refused(&uncovered, "multus-airgap-amd64 is not the file that");
}

#[test]
fn checksums_in_another_form_are_refused() {
    let sound = String::from_utf8(both()[SUMS].clone()).unwrap();
    let reversed: String = sound.split_inclusive('\n').rev().collect();
    let foreign = format!("{}  ../../etc/passwd\n", "0".repeat(64));
    for text in [
        "x".to_owned(),
        sound.replace('\n', "\r\n"),
        sound.replace("  ", " *"),
        sound.to_uppercase(),
        reversed,
        foreign,
        sound.repeat(2),
    ] {
        let mut files = both();
        files.insert(SUMS.to_owned(), text.clone().into_bytes());
        refused(&files, &format!("{SUMS} is damaged"));
    }
    let mut files = both();
    files.insert(SUMS.to_owned(), files["sha256sum-arm64.txt"].clone());
    refused(
        &files,
        &format!("{SUMS} has the checksums of arm64: copy the one of amd64"),
    );
    let mut files = both();
    let more = format!("{sound}{}  zzz\n", "0".repeat(64));
    files.insert(SUMS.to_owned(), more.into_bytes());
    refused(&files, "zzz does not belong there");
    files.insert(SUMS.to_owned(), vec![b'0'; (1 << 20) + 1]);
    refused(&files, "has more than 1048576 bytes");
}

#[test]
fn what_is_no_file_of_a_release_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &both());
    for name in ["lost+found", "System Volume Information"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("x"), "").unwrap();
    }
    check_dir(dir.path(), None).unwrap();
    let refused = |path: &Path, expected: &str| {
        for architecture in [None, Some("amd64")] {
            let error = check_dir(dir.path(), architecture).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let is_dir = fs::symlink_metadata(path).unwrap().is_dir();
        if is_dir {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
        .unwrap();
    };
    let at = |name: &str| dir.path().join(name);
    // A file of 6 GB of which no disk has a byte: reading it would take that memory.
    fs::File::create(at("huge"))
        .unwrap()
        .set_len(6 << 30)
        .unwrap();
    refused(&at("huge"), "huge does not belong there");
    fs::create_dir(at("more")).unwrap();
    refused(&at("more"), "more is not a regular file");
    symlink(ARCHIVE, at("link")).unwrap();
    refused(&at("link"), "link is not a regular file");
    fs::create_dir(at("k3s/more")).unwrap();
    refused(&at("k3s/more"), "k3s/more is not a regular file");
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(at("k3s"), elsewhere.path().join("k3s")).unwrap();
    symlink(elsewhere.path().join("k3s"), at("k3s")).unwrap();
    refused(&at("k3s"), "k3s is not a regular file");
}

/// Asserts that a changed file is refused although its checksum was rewritten.
#[track_caller]
fn forged(change: impl FnOnce(&mut Files), expected: &str) {
    let mut files = of("amd64", &part("amd64"));
    change(&mut files);
    seal(&mut files, "amd64");
    refused(&files, expected);
}

#[test]
fn every_list_is_covered_by_checksums_and_compared_with_the_archive() {
    for list in lists::names("amd64") {
        let mut changed = both();
        changed.get_mut(&list).unwrap().push(b'x');
        refused(&changed, &format!("{list} is not the file that sha256sum-"));
        let mut less = both();
        less.remove(&list);
        refused(&less, &format!("{list} is missing"));
        forged(
            |files| drop(files.insert(list.clone(), b"docker.io/own/y:v1\n".to_vec())),
            &format!("{list} does not list the images of {ARCHIVE}: copy both from one release"),
        );
    }
    forged(
        |files| drop(files.remove(LIST)),
        &format!("{SUMS} is damaged"),
    );
}

/// Asserts that an archive of changed entries is refused.
#[track_caller]
fn repacked(change: impl FnOnce(&mut Vec<Entry>), expected: &str) {
    forged(
        |files| {
            let mut entries =
                image_archive::entries(&part("amd64")).expect("the parts have layers");
            change(&mut entries);
            files.insert(
                ARCHIVE.into(),
                tar::write_in_order(&entries).expect("the entries fit a tar"),
            );
        },
        expected,
    );
}

#[test]
fn forged_archives_with_matching_checksums_are_refused() {
    let archive = |change: fn(&mut Vec<u8>), expected: &str| {
        forged(
            |files| change(files.get_mut(ARCHIVE).unwrap()),
            &format!("copy this archive from the release again: {ARCHIVE}: {expected}"),
        );
    };
    archive(|bytes| bytes.truncate(200), "damaged tar archive");
    archive(|bytes| bytes.truncate(700), "damaged tar archive");
    let outside = "it has bytes outside of its entries";
    archive(|bytes| bytes.extend_from_slice(&[0; 512]), outside);
    archive(|bytes| bytes.extend_from_slice(b"more"), outside);
    archive(
        |bytes| {
            let more = tar::write(&[Entry::file("more", 0o644, "x")]).unwrap();
            bytes.extend_from_slice(&more);
        },
        outside,
    );
    archive(
        |bytes| *bytes = image_archive::write(&part("arm64")).unwrap(),
        "it holds docker.io/own/x:v1 for arm64",
    );
    archive(
        |bytes| *bytes = gzip::compress(bytes),
        "damaged tar archive",
    );
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
            blob.kind = Kind::File(b"other".to_vec());
        },
        "has the digest",
    );
    repacked(
        |entries| entries.push(Entry::file("more", 0o644, "")),
        "more does not belong in an image layout",
    );
    repacked(
        |entries| {
            let mut docker = entries.iter_mut().filter(|one| one.path == "manifest.json");
            docker.next().unwrap().kind = Kind::File(b"[]".to_vec());
        },
        "entry manifest.json does not follow from its images",
    );
    repacked(
        |entries| entries.swap(0, 1),
        "entry index.json does not follow from its images",
    );
}

/// Returns what operators and nodes say to an archive with these layers.
fn layers(layers: &[(&str, Vec<u8>, Vec<u8>)]) -> Result<(), String> {
    let files = of("amd64", &image("amd64", layers));
    let [one, other] = [None, Some("amd64")].map(|arch| check(&files, arch).map(drop));
    assert_eq!(one, other);
    one
}

#[test]
fn layers_of_several_gzip_members_are_sound() {
    let plain = tar::write(&[Entry::file("program", 0o755, "x")]).unwrap();
    let (first, second) = plain.split_at(700);
    let members = [gzip::compress(first), gzip::compress(second)].concat();
    layers(&[(oci::LAYER_GZIP, members.clone(), plain.clone())]).unwrap();
    layers(&[(oci::DOCKER_LAYER, members.clone(), plain.clone())]).unwrap();
    layers(&[(oci::LAYER, plain.clone(), plain.clone())]).unwrap();
    let more = [&members[..], b"more"].concat();
    let error = layers(&[(oci::LAYER_GZIP, more, plain.clone())]).unwrap_err();
    assert!(error.contains("cannot be unpacked"), "{error}");
    let cut = members[..members.len() - 9].to_vec();
    let error = layers(&[(oci::LAYER_GZIP, cut, plain.clone())]).unwrap_err();
    assert!(error.contains("cannot be unpacked"), "{error}");
    let zstd = "application/vnd.oci.image.layer.v1.tar+zstd";
    let error = layers(&[(zstd, plain.clone(), plain)]).unwrap_err();
    assert!(error.contains("make its layers with gzip"), "{error}");
}

#[test]
fn layers_that_unpack_to_much_have_one_budget() {
    // Members of the same zeros, of which one is stored: three layers that unpack to more than the budget together.
    let member = gzip::compress(&vec![0; 16 << 20]);
    let count = usize::try_from(MAX_UNPACKED / 3 / (16 << 20)).unwrap() + 1;
    let zeros = io::repeat(0).take((count as u64) * (16 << 20));
    let digest = archive::digest::hash(zeros).unwrap();
    let blob = member.repeat(count);
    let mut part = image("amd64", &[]);
    let platform = part.images[0].platform.clone().expect("it has one");
    part.blobs.clear();
    let blob = part.add(oci::LAYER_GZIP, blob);
    let config = ImageConfig {
        created: String::new(),
        platform: platform.clone(),
        config: RunConfig::default(),
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: vec![digest; 3],
        },
        history: Vec::new(),
    };
    let config = part.add(oci::CONFIG, oci::to_bytes(&config));
    let manifest = oci::to_bytes(&Manifest::of(config, vec![blob; 3]));
    let mut manifest = part.add(oci::MANIFEST, manifest);
    manifest.platform = Some(platform);
    part.images = vec![manifest.named(NAME)];
    let error = check(&of("amd64", &part), Some("amd64")).unwrap_err();
    assert!(
        error.contains("unpack to more than 1073741824 bytes"),
        "{error}"
    );
}
