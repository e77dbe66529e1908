//! Directories with archives: sound ones are installed, and each way of tampering is refused by name with nothing changed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use archive::{
    digest::sha256,
    gzip, image_archive,
    layout::Layout,
    lists,
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
    image_archive::write(&layout(arch, content)).expect("a small archive")
}

fn layout(arch: &str, content: &str) -> Layout {
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
    layout
}

/// Returns the complete airgap directory of a release, as `cargo xtask airgap bundle` writes it.
fn release(arch: &str, part: &Layout) -> BTreeMap<String, Vec<u8>> {
    release::medium::files(arch, part, &format!("{IMAGE}@sha256:0\n"), None)
        .expect("a small archive")
}

fn write_all(dir: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("below the directory")).expect("a test's");
        fs::write(path, bytes).expect("a directory of the test");
    }
}

fn name() -> String {
    lists::archive_name(arch())
}

/// Returns the names of all lists.
fn all_lists() -> Vec<String> {
    let arch = arch();
    vec![
        "multus-images.txt".to_owned(),
        "multus-images-digests.txt".to_owned(),
        "k3s/image-list-multus.txt".to_owned(),
        format!("multus-images.linux-{arch}.txt"),
        format!("multus-images-digests.linux-{arch}.txt"),
        format!("rke2/rke2-images-multus.linux-{arch}.txt"),
    ]
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
        write_all(&case.source(), &release(arch(), &layout(arch(), "content")));
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
        let names = [name()].into_iter().chain(all_lists());
        let files: Vec<_> = names
            .map(|name| {
                let bytes = fs::read(self.source().join(&name)).expect("a file of the test");
                (name, sha256(&bytes))
            })
            .collect();
        let sums = lists::sums(files.iter().map(|(name, digest)| (name.as_str(), *digest)));
        self.write(&lists::sums_name(arch()), sums.as_bytes());
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
        run(&["images", "verify", path(&self.source())])
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
    let newer = release(arch(), &layout(arch(), "newer and longer content"));
    write_all(&case.source(), &newer);
    let output = case.install();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(case.installed()).unwrap(), newer[&name()]);
}

/// Two releases have one name for their archives, so a second run waits for the first.
#[test]
fn second_installation_waits_for_the_first() {
    let case = Case::new();
    let (source, data) = (case.source(), case.data());
    let dir = case.installed().with_file_name("");
    fs::create_dir_all(&dir).unwrap();
    let first = File::open(&dir).unwrap();
    first.lock().unwrap();
    let mut second = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(["images", "install", path(&source)])
        .args(["--data-dir", path(&data)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let notes = BufReader::new(second.stderr.take().unwrap()).lines();
    let mut notes = notes.map(Result::unwrap);
    let waits = notes.find(|note| note.contains("another run installs into"));
    assert!(waits.is_some(), "the second run did not wait");
    assert_eq!(files(&case.data()), []);
    drop(first);
    notes.for_each(drop);
    assert!(second.wait().unwrap().success());
    assert_eq!(files(&case.data()).len(), 1);
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
    case.refused(&[&archive, "is not the file that sha256sum-", "copy it again"]);

    let case = Case::new();
    assert!(case.install().status.success());
    let length = file(&case).metadata().unwrap().len();
    file(&case).set_len(0).unwrap();
    file(&case).set_len(length).unwrap();
    case.refused(&[&archive, "is not the file that sha256sum-"]);

    let case = Case::new();
    file(&case).write_all_at(b"x", 50).unwrap();
    case.refused(&[&archive, "is not the file that sha256sum-"]);

    let case = Case::new();
    let list = case
        .source()
        .join(format!("multus-images.linux-{}.txt", arch()));
    let bytes = fs::read(&list).unwrap();
    fs::rename(case.source().join(name()), &list).unwrap();
    case.write(&name(), &bytes);
    case.refused(&["is not the file that sha256sum-"]);

    let case = Case::new();
    fs::rename(
        case.source().join(name()),
        case.source().join(format!("{archive}.zst")),
    )
    .unwrap();
    case.refused(&[&format!("{archive}.zst does not belong there")]);

    let case = Case::new();
    case.write("extra.tar.zst", b"x");
    case.refused(&["extra.tar.zst", "no checksum file names it; remove it"]);

    let case = Case::new();
    case.write("k3s/extra.tar.zst", b"x");
    case.refused(&["k3s/extra.tar.zst does not belong there"]);

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
    case.refused(&["sha256sum-", "is damaged"]);

    let case = Case::new();
    fs::remove_file(case.source().join(name())).unwrap();
    case.refused(&[&format!("{archive} is missing")]);
}

#[test]
fn changed_deleted_and_forged_lists_are_refused() {
    for list in all_lists() {
        let case = Case::new();
        case.write(&list, b"docker.io/x/y:1\n");
        case.refused(&[&list, "is not the file that sha256sum-"]);
        case.sum();
        case.refused(&[&list, "does not list the images of multus-airgap-images-"]);
        fs::remove_file(case.source().join(&list)).unwrap();
        case.refused(&[&list, "is missing"]);
    }
    let case = Case::new();
    let sum = format!("{}  multus-images.txt\n", "0".repeat(64));
    case.write("sha256sum-other.txt", sum.as_bytes());
    case.refused(&["sha256sum-other.txt is damaged"]);
}

#[test]
fn directories_of_the_mediums_file_system_are_passed_over() {
    let case = Case::new();
    for name in ["lost+found", "System Volume Information"] {
        let dir = case.source().join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("WPSettings.dat"), "").unwrap();
    }
    let output = case.verify();
    assert!(output.status.success(), "{output:?}");
    fs::remove_dir_all(case.source().join("lost+found")).unwrap();
    case.write("lost+found", b"");
    case.refused(&["lost+found does not belong there"]);
}

#[test]
fn program_for_operators_is_checked_and_may_be_left_out() {
    let arch = arch();
    let part = layout(arch, "content");
    let list = format!("{IMAGE}@sha256:0\n");
    let files = release::medium::files(arch, &part, &list, Some(b"program"));
    let files = files.expect("a small archive");
    let name = lists::program_name(arch);
    assert!(files.contains_key(&name));
    let case = Case::new();
    fs::remove_dir_all(case.source()).unwrap();
    write_all(&case.source(), &files);
    let verified = case.verify();
    assert!(verified.status.success(), "{verified:?}");
    case.write(&name, b"other");
    case.refused(&[&name, "is not the file that sha256sum-"]);
    fs::remove_file(case.source().join(&name)).unwrap();
    for output in [case.verify(), case.install()] {
        assert!(output.status.success(), "{output:?}");
    }
    // Another name is not a program of a release.
    case.write(&format!("multus-airgap-{arch}-old"), b"program");
    case.refused(&["does not belong there"]);
}

/// The library's tests have every harm to a directory.
#[test]
fn archives_are_verified_beyond_their_checksums() {
    let check = |bytes: &[u8], expected: &str| {
        let case = Case::new();
        case.write(&name(), bytes);
        case.sum();
        case.refused(&[&format!("{}: {expected}", name())]);
    };
    let output = Case::new().verify();
    assert!(output.status.success(), "{output:?}");
    let complete = archive(arch(), "x");
    check(&complete[..700], "damaged tar archive");
    let more = [&complete[..], b"more"].concat();
    check(&more, "it has bytes outside of its entries");
    check(
        &archive("riscv64", "x"),
        "it holds docker.io/multusrs/multus:v",
    );
}

#[test]
fn reader_that_ends_early_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_multus-distro"))
        .args(["images", "verify", path(&Case::new().source())])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{notes}");
    assert!(!notes.contains("ipe"), "{notes}");
}

#[test]
fn empty_node_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let verify = ["verify", "--distro", "k3s", "--data-dir", path(dir.path())];
    let error = String::from_utf8(run(&verify).stderr).unwrap();
    assert!(
        error.contains("multus-distro has put nothing below"),
        "{error}"
    );
}

const KEY: &str = include_str!("../../../signing/tests/fixtures/p256.pem");
const PUBLIC: &str = include_str!("../../../signing/tests/fixtures/p256.pub");
const OTHER: &str = include_str!("../../../signing/tests/fixtures/ed25519.pub");

#[test]
fn with_a_key_only_what_its_owner_signed_is_verified_and_installed() {
    let key = signing::SecretKey::from_pem(KEY).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (medium, data) = (dir.path().join("medium"), dir.path().join("data"));
    let at = |name: &str| medium.join(name);
    let (public, other) = (dir.path().join("release.pub"), dir.path().join("other.pub"));
    fs::write(&public, PUBLIC).unwrap();
    fs::write(&other, OTHER).unwrap();
    write_all(&medium, &release(arch(), &layout(arch(), "content")));
    let sums = lists::sums_name(arch());
    let signature = format!("{sums}.sig");
    let sign = |name: &str| key.sign_text(&fs::read(at(name)).unwrap());
    let verify = |key: &Path| run(&["images", "verify", path(&medium), "--key", path(key)]);
    let install = |key: &[&str]| {
        let args = ["images", "install", path(&medium), "--distro", "k3s"];
        run(&[&args[..], &["--data-dir", path(&data)], key].concat())
    };
    let with_key = ["--key", path(&public)];
    let refused = |expected: &str| {
        for output in [verify(&public), install(&with_key)] {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(stderr.contains(expected), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
        assert!(!data.exists(), "nothing is installed");
    };
    refused(&format!("{signature} is missing, and only the key "));
    fs::write(at(&signature), "AAAA").unwrap();
    refused("not by this key over these bytes");
    fs::write(at(&signature), sign("multus-images.txt")).unwrap();
    refused("was changed after it was signed, or somebody else signed it");
    fs::write(at(&signature), vec![b'A'; (1 << 20) + 1]).unwrap();
    refused("has more than 1048576 bytes");
    fs::write(at(&signature), sign(&sums)).unwrap();
    let output = verify(&other);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("other.pub"), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
    fs::write(at("notes.sig"), "").unwrap();
    refused("notes.sig does not belong there");
    fs::remove_file(at("notes.sig")).unwrap();
    // Another architecture's checksums name files that are copied with it, so they are signed as well.
    let foreign = release("other", &layout("other", "content"));
    write_all(&medium, &foreign);
    refused("sha256sum-other.txt.sig is missing");
    for name in foreign.keys().filter(|name| name.contains("other")) {
        fs::remove_file(at(name)).unwrap();
    }
    let output = verify(&public);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!("ok  signed by {}  {sums}\n", key.public().id().hex());
    assert!(stdout.starts_with(&expected), "{output:?}");
    assert_eq!(install(&with_key).status.code(), Some(0));
    // Without a key a signature is a file that belongs there, and nothing else changes.
    assert_eq!(install(&[]).status.code(), Some(0));
    let bad = run(&["images", "verify", path(&medium), "--key", path(&at(&sums))]);
    let stderr = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(stderr.contains("it is not a key in PEM"), "{stderr}");
    let missing = run(&["images", "verify", path(&medium), "--key", "/nonexistent"]);
    let stderr = String::from_utf8_lossy(&missing.stderr).into_owned();
    let expected =
        "cannot use the key /nonexistent, name the file of a public key in PEM: No such file";
    assert!(stderr.contains(expected), "{stderr}");
}
