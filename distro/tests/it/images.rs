//! Directories with archives: sound ones are installed, and each way of tampering is refused by name with nothing changed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Output,
};

use archive::{
    digest::sha256,
    gzip,
    layout::Layout,
    oci::{self, Descriptor, ImageConfig, Manifest, Platform, RootFs, RunConfig},
    tar::{self, Entry},
};

use super::{path, run};

const IMAGE: &str = concat!("docker.io/multusrs/multus:v", env!("CARGO_PKG_VERSION"));

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns an archive with one image of one layer.
fn archive(arch: &str, content: &str) -> Vec<u8> {
    let layer = tar::write(&[Entry::file("file", 0o644, content)]).expect("a small layer");
    let mut layout = Layout::default();
    let platform = Platform {
        architecture: arch.to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let config = ImageConfig {
        created: "1970-01-01T00:00:00Z".to_owned(),
        platform: platform.clone(),
        config: RunConfig {
            user: "0:0".to_owned(),
            entrypoint: vec!["/file".to_owned()],
            labels: BTreeMap::new(),
        },
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: vec![sha256(&layer)],
        },
        history: Vec::new(),
    };
    let config = layout.add(oci::CONFIG, oci::to_bytes(&config));
    let layer = layout.add(oci::LAYER_GZIP, gzip::compress(&layer));
    let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
    let mut manifest: Descriptor = layout.add(oci::MANIFEST, manifest);
    manifest.platform = Some(platform);
    layout.images.push(manifest.named(IMAGE));
    let mut entries: Vec<Entry> = Vec::new();
    for (path, bytes) in layout.files() {
        entries.push(Entry::file(path, 0o644, bytes));
    }
    gzip::compress(&tar::write(&entries).expect("a small archive"))
}

/// Returns the archive without its longest blob.
fn without_a_blob(packed: &[u8]) -> Vec<u8> {
    let plain = gzip::decompress(packed, 1 << 20).expect("an archive of the test");
    let limits = archive::read::Limits {
        entries: 100,
        total: 1 << 20,
        links: false,
    };
    let mut entries = archive::read::entries(&plain, &limits).expect("an archive of the test");
    let len = |entry: &Entry| match &entry.kind {
        tar::Kind::File(bytes) if entry.path.starts_with("blobs/") => bytes.len(),
        _ => 0,
    };
    let longest = entries.iter().map(len).max();
    entries.retain(|entry| Some(len(entry)) != longest);
    gzip::compress(&tar::write(&entries).expect("a small archive"))
}

fn name() -> String {
    format!("multus-airgap-images-{}.tar.gz", arch())
}

/// A directory as it comes from a release.
struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let case = Self {
            dir: tempfile::tempdir().expect("a directory for the test"),
        };
        fs::create_dir(case.source()).expect("a directory for the test");
        case.write(&name(), &archive(arch(), "content"));
        case.write(&format!("multus-images.linux-{}.txt", arch()), b"list\n");
        case.write("multus-images.txt", b"list\n");
        let lists = case.source().join("k3s");
        fs::create_dir(&lists).expect("a directory for the test");
        fs::write(lists.join("image-list-multus.txt"), "list\n").expect("a directory of the test");
        case.sum();
        case
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("airgap")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("k3s")
    }

    fn installed(&self) -> PathBuf {
        self.data().join("agent/images").join(name())
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.source().join(name), bytes).expect("a directory of the test");
    }

    fn sum(&self) {
        let list = format!("multus-images.linux-{}.txt", arch());
        let lines = [name(), list].map(|name| {
            let bytes = fs::read(self.source().join(&name)).expect("a file of the test");
            format!("{}  {name}\n", sha256(&bytes).hex())
        });
        self.write(
            &format!("sha256sum-{}.txt", arch()),
            lines.concat().as_bytes(),
        );
    }

    fn install(&self) -> Output {
        let (source, data) = (self.source(), self.data());
        run(&[
            "images",
            "install",
            path(&source),
            "--data-dir",
            path(&data),
        ])
    }

    fn verify(&self) -> Output {
        run(&["verify", path(&self.source())])
    }

    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        let before = files(&self.data());
        for output in [self.install(), self.verify()] {
            let error = String::from_utf8(output.stderr).expect("the program writes UTF-8");
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            for part in parts {
                assert!(error.contains(part), "no `{part}` in {error}");
            }
        }
        assert_eq!(files(&self.data()), before);
    }
}

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir.join("agent/images")).into_iter().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a directory of the test").path();
            let bytes = fs::read(&path).expect("a file of the test");
            (path.display().to_string(), bytes)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn sound_directory_is_installed_once() {
    let case = Case::new();
    let output = case.install();
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8(output.stderr.clone()).unwrap();
    let expected = format!(
        "the archive is in {}; the runtime does not have the image yet",
        case.installed().parent().unwrap().display()
    );
    assert!(notes.contains(&expected), "{notes}");
    let written = String::from_utf8(output.stdout).unwrap();
    assert_eq!(written, format!("{}\n", case.installed().display()));
    let parents = case.installed();
    for dir in parents.ancestors().skip(1).take(3) {
        let mode = fs::metadata(dir).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o755, "{}", dir.display());
    }
    let bytes = fs::read(case.source().join(name())).unwrap();
    assert_eq!(fs::read(case.installed()).unwrap(), bytes);
    // Nothing but the archive is copied: lists would make the distro pull, a cache would change the import of other archives.
    assert_eq!(files(&case.data()).len(), 1);
    let time = fs::metadata(case.installed()).unwrap().modified().unwrap();
    let again = case.install();
    assert!(
        again.status.success() && again.stdout.is_empty(),
        "{again:?}"
    );
    assert_eq!(
        fs::metadata(case.installed()).unwrap().modified().unwrap(),
        time
    );
    let source = case.source();
    let data = case.data();
    let conditional = [
        "images",
        "install",
        path(&source),
        "--data-dir",
        path(&data),
        "--conditional-import",
    ];
    let cache = case.installed().with_file_name(".cache.json");
    for written in [format!("{}\n", cache.display()), String::new()] {
        assert_eq!(
            String::from_utf8(run(&conditional).stdout).unwrap(),
            written
        );
    }
    let verify = ["verify", "--distro", "k3s", "--data-dir", path(&data)];
    let verified = String::from_utf8(run(&verify).stdout).unwrap();
    assert!(verified.contains(IMAGE), "{verified}");
}

#[test]
fn newer_archive_replaces_the_older() {
    let case = Case::new();
    assert!(case.install().status.success());
    let other = case
        .installed()
        .with_file_name(name().replace(".gz", ".zst"));
    fs::write(&other, "the same in another form").unwrap();
    let newer = archive(arch(), "newer and longer content");
    case.write(&name(), &newer);
    case.sum();
    let output = case.install();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(case.installed()).unwrap(), newer);
    assert!(!other.exists());
}

#[test]
fn tampering_is_refused_by_name() {
    let archive = name();
    let file = |case: &Case| {
        File::options()
            .write(true)
            .open(case.source().join(name()))
            .unwrap()
    };

    let case = Case::new();
    file(&case).set_len(100).unwrap();
    case.refused(&[&archive, "is not the release's", "copy it again"]);

    let case = Case::new();
    assert!(case.install().status.success());
    let length = file(&case).metadata().unwrap().len();
    file(&case).set_len(0).unwrap();
    file(&case).set_len(length).unwrap();
    case.refused(&[&archive, "is not the release's"]);

    let case = Case::new();
    file(&case).write_all_at(b"x", 50).unwrap();
    case.refused(&[&archive, "is not the release's"]);

    let case = Case::new();
    let list = case
        .source()
        .join(format!("multus-images.linux-{}.txt", arch()));
    let bytes = fs::read(&list).unwrap();
    fs::rename(case.source().join(name()), &list).unwrap();
    case.write(&name(), &bytes);
    case.refused(&["is not the release's"]);

    let case = Case::new();
    fs::rename(
        case.source().join(name()),
        case.source().join("other.tar.gz"),
    )
    .unwrap();
    case.refused(&["other.tar.gz", "is in no sha256sum file"]);

    let case = Case::new();
    case.write("extra.tar.zst", b"x");
    case.refused(&["extra.tar.zst", "is in no sha256sum file: remove it"]);

    let case = Case::new();
    case.write("k3s/extra.tar.zst", b"x");
    case.refused(&["k3s is not a regular file"]);

    let case = Case::new();
    fs::create_dir(case.source().join("more")).unwrap();
    case.refused(&["more is not a regular file"]);

    let case = Case::new();
    fs::remove_file(case.source().join(format!("sha256sum-{}.txt", arch()))).unwrap();
    case.refused(&["there is no sha256sum-"]);

    let case = Case::new();
    case.write(
        &format!("sha256sum-{}.txt", arch()),
        b"0  ../../etc/passwd\n",
    );
    case.refused(&["is not a checksum file"]);

    let case = Case::new();
    fs::remove_file(case.source().join(name())).unwrap();
    case.refused(&["there is no archive for"]);
}

#[test]
fn archives_are_verified_beyond_their_checksums() {
    let check = |bytes: &[u8], parts: &[&str]| {
        let case = Case::new();
        case.write(&name(), bytes);
        case.sum();
        case.refused(&[&[name().as_str()], parts].concat());
    };
    let output = Case::new().verify();
    assert!(output.status.success(), "{output:?}");
    check(b"no archive", &["is damaged"]);
    let complete = archive(arch(), "x");
    check(&complete[..complete.len() / 2], &["is damaged"]);
    check(&archive("riscv64", "x"), &["riscv64", "this node is"]);
    check(&without_a_blob(&complete), &["is damaged", "is missing"]);
    let other = gzip::compress(&tar::write(&[]).unwrap());
    check(&other, &["is damaged"]);
}

#[test]
fn empty_node_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let verify = ["verify", "--distro", "k3s", "--data-dir", path(dir.path())];
    let error = String::from_utf8(run(&verify).stderr).unwrap();
    assert!(
        error.contains("nothing of multus-distro is below"),
        "{error}"
    );
}
