//! A distro's tree that has `chart/consumers`: what git keeps of it, and the lock that it makes of a release's page.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use archive::digest::sha256;
use signing::SecretKey;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../chart/consumers");

/// A tree, and the directory of the files on a release's page.
struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory of the test");
        let tree = Self { dir };
        for name in ["Makefile", "multus.mk"] {
            let source = Path::new(SOURCE).join(name);
            fs::copy(source, tree.path(name)).expect("a source of the checkout");
        }
        for package in ["static", "deploy"] {
            let embed = tree.path(&format!("embedded/{package}/embed"));
            fs::create_dir_all(embed).expect("a directory of the test");
        }
        fs::create_dir(tree.path("page")).expect("a directory of the test");
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("a directory of the test");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Puts files on the page, with checksums that this key signed.
    fn publish(&self, files: &[(&str, &str)], key: &SecretKey) {
        for (name, text) in files {
            self.write(&format!("page/{name}"), text.as_bytes());
        }
        let digests = files.iter();
        let digests = digests.map(|(name, text)| (*name, sha256(text.as_bytes())));
        let sums = archive::lists::sums(digests);
        self.write("page/SHA256SUMS", sums.as_bytes());
        let signature = key.sign_text(sums.as_bytes());
        self.write("page/SHA256SUMS.sig", signature.as_bytes());
    }

    fn make(&self, args: &[&str]) -> Output {
        let mut make = Command::new("make");
        make.current_dir(self.dir.path()).args(args);
        make.output().expect("make starts")
    }

    fn lock(&self, more: &[&str]) -> Output {
        let url = format!("MULTUS_URL=file://{}", self.path("page").display());
        self.make(&[&["multus-lock", "MULTUS_VERSION=1.2.3", &url], more].concat())
    }
}

fn key(pem: &str) -> SecretKey {
    SecretKey::from_pem(pem).expect("a key of the fixtures")
}

#[test]
fn lock_is_made_of_a_release_page_that_the_key_signed() {
    let tree = Tree::new();
    let p256 = key(include_str!("../../../signing/tests/fixtures/p256.pem"));
    let ed25519 = key(include_str!("../../../signing/tests/fixtures/ed25519.pem"));
    let files = [
        ("bindata-static-no_stage.go", "package static\n"),
        ("k3s-multus-1.2.3.tgz", "chart"),
        ("k3s-multus-1.2.3.tgz.prov", "signature"),
        ("k3s-multus-crd-1.2.3.tgz", "definitions"),
        ("k3s-multus.yaml", "kind: HelmChart\n"),
        ("multus-distro-amd64", "program"),
        ("rke2-multus-1.2.3.tgz", "another chart"),
    ];
    for (signer, other) in [(&p256, &ed25519), (&ed25519, &p256)] {
        tree.publish(&files, signer);
        tree.write("release.pub", signer.public().to_pem().as_bytes());
        tree.write("other.pub", other.public().to_pem().as_bytes());
        let refused = tree.lock(&["MULTUS_KEY=other.pub"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("is not what other.pub signed"), "{error}");
        assert!(!refused.status.success() && !tree.path("multus.lock").exists());
        let made = tree.lock(&["MULTUS_KEY=release.pub"]);
        assert!(made.status.success(), "{made:?}");
        let lock = tree.read("multus.lock");
        assert_eq!(lock.lines().skip(1).count(), 4, "{lock}");
        fs::remove_file(tree.path("multus.lock")).expect("it was made");
    }
    fs::remove_file(tree.path("page/SHA256SUMS.sig")).expect("it was published");
    let refused = tree.lock(&["MULTUS_KEY=release.pub"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        error.contains("if the release has none (404), it is not signed"),
        "{error}"
    );
    assert!(tree.lock(&[]).status.success());
    let made = tree.make(&["generate"]);
    assert!(made.status.success(), "{made:?}");
    for (path, text) in [
        ("embedded/static/embed/charts/k3s-multus-1.2.3.tgz", "chart"),
        ("embedded/deploy/embed/multus.yaml", "kind: HelmChart\n"),
        ("bindata/static/no_stage.go", "package static\n"),
    ] {
        assert_eq!(tree.read(path), text, "{path}");
    }
}

fn git(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.current_dir(dir).args(args);
    command.output().expect("git starts")
}

#[test]
fn lock_is_committed_and_downloads_are_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(
        Path::new(SOURCE).join(".gitignore"),
        dir.path().join(".gitignore"),
    )
    .unwrap();
    assert!(git(dir.path(), &["init", "--quiet"]).status.success());
    let is_ignored = |path: &str| {
        let output = git(dir.path(), &["check-ignore", "--quiet", path]);
        match output.status.code() {
            Some(0) => true,
            Some(1) => false,
            _ => panic!("{output:?}"),
        }
    };
    for path in [
        "multus.lock",
        "multus.mk",
        "stage.go",
        "embedded/static/static.go",
        "embedded/static/embed/.empty",
    ] {
        assert!(!is_ignored(path), "{path}");
    }
    for path in [
        "consumer",
        "bindata/static/zz_generated_bindata.go",
        "embedded/static/embed/charts/k3s-multus-X.Y.Z.tgz",
        "embedded/deploy/embed/multus.yaml",
    ] {
        assert!(is_ignored(path), "{path}");
    }
}
