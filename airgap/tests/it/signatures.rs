//! Signed releases: what their keys vouch for, and every harm to files, signatures and statements, each refused by name.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, sync::OnceLock};

use archive::digest::sha256;
use release::{
    description::{self, Release},
    signatures::{self, Build, Dependency},
    tree::Tree,
};
use serde_json::{Value, json};
use signing::{SecretKey, bundle};

use crate::{
    program::{BAD_USAGE, FAILED, command, refused, succeeds, text},
    sample,
};

/// The keys of whoever publishes the release, and of another builder.
const OWNER: [&str; 2] = [
    include_str!("../../../signing/tests/fixtures/p256.pem"),
    include_str!("../../../signing/tests/fixtures/p256.pub"),
];
const OTHER: [&str; 2] = [
    include_str!("../../../signing/tests/fixtures/ed25519.pem"),
    include_str!("../../../signing/tests/fixtures/ed25519.pub"),
];
const SUMS: &str = "SHA256SUMS.sig";
const ARM: &str = "airgap/sha256sum-arm.txt.sig";
const CHART: &str = "charts/assets/k3s-multus/k3s-multus-9.8.7.tgz";

fn key(pair: [&str; 2]) -> SecretKey {
    SecretKey::from_pem(pair[0]).expect("it is of this test")
}

fn build(builder: &str) -> Build {
    Build {
        builder: builder.to_owned(),
        sources: vec![Dependency {
            path: "Cargo.lock".to_owned(),
            digest: sha256(b"lock"),
        }],
    }
}

/// Replaces all signatures of a release, as its owner makes them, and adds the statement of the other builder.
pub(crate) fn sign(tree: &mut Tree) {
    signatures::take(tree);
    let release = Release::parse(tree.get(description::FILE).expect("it is of this test"))
        .expect("it is of this test");
    let owner = signatures::sign(tree, &release, &key(OWNER), &build("https://a.example"));
    let other = signatures::state(tree, &release, &key(OTHER), &build("https://b.example"));
    tree.extend(owner.expect("it is of this test"));
    tree.extend(other.expect("it is of this test"));
}

fn signed(version: &str) -> Tree {
    let mut tree = sample::release(version, sample::COMMIT, "");
    sign(&mut tree);
    tree
}

fn provenance(pair: [&str; 2]) -> String {
    signatures::provenance_path(&key(pair).public().id())
}

/// Returns the path of a signature of the image.
fn image(tree: &Tree, ending: &str) -> String {
    let release = Release::parse(tree.get(description::FILE).expect("it is of this test"))
        .expect("it is of this test");
    format!("signatures/{}{ending}", release.images[0].digest.hex())
}

/// Writes the public keys into a directory.
pub(crate) fn write_keys(dir: &Path) {
    for (name, [_, public]) in [("owner.pub", OWNER), ("other.pub", OTHER)] {
        fs::write(dir.join(name), public).expect("it is of this test");
    }
}

/// Runs `verify` on a release with the keys in files next to it.
fn verify(dir: &Path, args: &[&str]) -> Command {
    write_keys(dir);
    let mut command = command(&["verify", "release"]);
    command.current_dir(dir).args(args);
    command
}

const BY_OWNER: &[&str] = &["--key", "owner.pub"];
const BY_BOTH: &[&str] = &["--attested-by", "owner.pub", "--attested-by", "other.pub"];

/// Changes the statement in a file, and signs it again with a key.
fn restate(tree: &mut Tree, pair: [&str; 2], change: impl FnOnce(&mut Value)) {
    let path = provenance(pair);
    let statement = bundle::statement_of_anyone(tree.get(&path).expect("it is of this test"))
        .expect("it is of this test");
    let mut statement: Value = serde_json::from_slice(&statement).expect("it is of this test");
    change(&mut statement);
    let bytes = serde_json::to_vec(&statement).expect("it is of this test");
    tree.add(path, bundle::sign_statement(&bytes, &key(pair)));
}

/// Returns the entries of a statement.
fn subjects(statement: &mut Value) -> &mut Vec<Value> {
    let subjects = statement["subject"].as_array_mut();
    subjects.expect("a statement has subjects")
}

/// Returns the entry of a statement about a file.
fn subject<'a>(statement: &'a mut Value, name: &str) -> &'a mut Value {
    let mut all = subjects(statement).iter_mut();
    let found = all.find(|subject| subject["name"] == name);
    found.expect("the release has this file")
}

fn copy(tree: &mut Tree, from: &str, to: &str) {
    let bytes = tree.get(from).expect("the release has this file").to_vec();
    tree.add(to, bytes);
}

fn swap(tree: &mut Tree, one: &str, other: &str) {
    let [a, b] = [one, other].map(|path| tree.get(path).expect("it is of this test").to_vec());
    tree.add(one, b);
    tree.add(other, a);
}

fn damage(tree: &mut Tree, path: &str) {
    *tree
        .0
        .get_mut(path)
        .expect("it is of this test")
        .bytes
        .last_mut()
        .expect("it is of this test") ^= 1;
}

/// Takes a file from another release, which the same key signed.
fn from_another_release(tree: &mut Tree, path: &str) {
    let other = signed("9.8.6");
    let there = path.replace("9.8.7", "9.8.6");
    tree.add(path, other.get(&there).expect("it is of this test"));
}

#[test]
fn signed_release_is_vouched_for_by_its_keys() {
    let dir = tempfile::tempdir().expect("it is of this test");
    let tree = signed("9.8.7");
    assert_eq!(tree, signed("9.8.7"), "the same key makes the same bytes");
    tree.write_new(&dir.path().join("release"))
        .expect("it is of this test");
    let stdout = succeeds(verify(dir.path(), BY_OWNER));
    assert!(
        stdout.contains("is undamaged\nsigned: 16 signatures of --key"),
        "{stdout}"
    );
    assert!(
        stdout.contains("attested: https://a.example states that it made"),
        "{stdout}"
    );
    let stdout = succeeds(verify(dir.path(), BY_BOTH));
    for builder in ["https://a.example", "https://b.example"] {
        assert!(
            stdout.contains(&format!("attested: {builder} states that")),
            "{stdout}"
        );
    }
    assert!(!stdout.contains("signed:"), "{stdout}");
    let json = succeeds(verify(dir.path(), &[BY_OWNER, &["--json"]].concat()));
    let verdict: Value = serde_json::from_str(&json).expect("it is of this test");
    assert_eq!(verdict["checkedSignatures"], true);
    assert_eq!(
        verdict["signed"].as_array().map(Vec::len),
        Some(16),
        "{json}"
    );
    let owner = key(OWNER).public().id().hex();
    let attested = json!([{"builder": "https://a.example", "key": owner}]);
    assert_eq!(verdict["attested"], attested);
    assert_eq!(verdict["unchecked"], json!([provenance(OTHER)]));
    // Without a key it is checked for damage alone, and says so.
    let output = verify(dir.path(), &[])
        .output()
        .expect("it is of this test");
    assert!(output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        stderr.contains("signatures, which are not checked"),
        "{stderr}"
    );
    let last = stderr.lines().last().unwrap_or_default();
    assert!(
        last.contains("--key"),
        "the verdict is the last line: {stderr}"
    );
    // An unsigned release is as sound as before, and is refused with a key.
    let mut unsigned = tree.clone();
    signatures::take(&mut unsigned);
    let dir = tempfile::tempdir().expect("it is of this test");
    unsigned
        .write_new(&dir.path().join("release"))
        .expect("it is of this test");
    succeeds(verify(dir.path(), &[]));
    refused(
        verify(dir.path(), BY_OWNER),
        FAILED,
        "SHA256SUMS.sig is missing",
    );
}

#[test]
fn statement_has_the_c_compiler_of_the_release() {
    let tree = sample::release("9.8.7", sample::COMMIT, "");
    let mut release = Release::parse(tree.get(description::FILE).expect("it is of this test"))
        .expect("it is of this test");
    let c_compiler = |release: &Release| {
        let made = signatures::state(&tree, release, &key(OTHER), &build("https://b.example"))
            .expect("it is of this test");
        let bytes = made.get(&provenance(OTHER)).expect("it is of this test");
        let statement = bundle::statement_of_anyone(bytes).expect("it is of this test");
        let statement: Value = serde_json::from_slice(&statement).expect("it is of this test");
        let parts = &statement["predicate"]["buildDefinition"]["resolvedDependencies"];
        let parts = parts.as_array().expect("a statement has parts").clone();
        let mut parts = parts.into_iter();
        parts.find(|part| part["name"] == "C compiler")
    };
    assert_eq!(c_compiler(&release), None);
    release.build = Some(release::build::Build {
        rustc: String::new(),
        rustc_commit: String::new(),
        llvm: String::new(),
        cargo: String::new(),
        linker: String::new(),
        tool_files: [].into(),
        c_compiler: "clang 1".to_owned(),
        c_compiler_lock: sha256(b"locks"),
        crates: sha256(b"crates"),
        targets: [].into(),
    });
    assert_eq!(
        c_compiler(&release),
        Some(json!({
            "name": "C compiler",
            "digest": {"sha256": sha256(b"locks").hex()},
            "annotations": {"version": "clang 1"},
        }))
    );
}

/// A change of a release, the keys that it is checked with, and the words in which it is refused.
type Harm<'a> = (&'a dyn Fn(&mut Tree), &'a [&'a str], &'a str);

fn refuse_all(harms: &[Harm<'_>]) {
    static SOUND: OnceLock<Tree> = OnceLock::new();
    let sound = SOUND.get_or_init(|| signed("9.8.7"));
    for (change, keys, expected) in harms {
        let dir = tempfile::tempdir().expect("it is of this test");
        let mut tree = sound.clone();
        change(&mut tree);
        tree.write_new(&dir.path().join("release"))
            .expect("it is of this test");
        refused(verify(dir.path(), keys), FAILED, expected);
    }
}

/// What fails without a key as well is in the tests of `verify`.
#[test]
fn harm_to_files_is_refused_by_name() {
    refuse_all(&[
        (
            &|tree| swap(tree, "bin/arm/multus-shim", "bin/amd64/multus-shim"),
            BY_OWNER,
            "bin/amd64/multus-shim: its sha256 is",
        ),
        // All checksums agree with the change, as a careful attacker leaves them.
        (
            &|tree| {
                let mut files = std::mem::take(tree);
                let kept = signatures::take(&mut files);
                files.add("completions/more", "");
                sample::reseal(&mut files);
                files.extend(kept);
                *tree = files;
            },
            BY_OWNER,
            "SHA256SUMS.sig: it is not by this key over these bytes: it was changed after it was signed",
        ),
        // A program with a key built in that the release does not name, in a release that was signed all the same.
        (
            &|tree| {
                let mut files = std::mem::take(tree);
                signatures::take(&mut files);
                for path in ["bin/arm/multus-distro", "bin/amd64/multus-distro"] {
                    let program = &mut files.0.get_mut(path).expect("it is of this test").bytes;
                    program.extend(OTHER[1].as_bytes());
                }
                sample::reseal(&mut files);
                sign(&mut files);
                *tree = files;
            },
            BY_OWNER,
            "bin/amd64/multus-distro",
        ),
    ]);
}

/// Changes files of a release as if its owner had made and signed them so.
fn signed_all_the_same(tree: &mut Tree, change: impl FnOnce(&mut Tree)) {
    signatures::take(tree);
    change(tree);
    sample::reseal(tree);
    sign(tree);
}

/// Replaces a text in the document about a subject.
fn replace(tree: &mut Tree, path: &str, from: &str, to: &str) {
    let mut count = 0;
    let is_meant = |name: &&String| *name == path || name.starts_with(&format!("{path}."));
    let names: Vec<_> = tree.0.keys().filter(is_meant).cloned().collect();
    for name in names {
        let text = String::from_utf8_lossy(tree.get(&name).expect("it is of this test"));
        let changed = text.replace(from, to);
        count += usize::from(changed != text);
        tree.add(name, changed);
    }
    assert!(count > 0, "no {path} has {from}");
}

#[test]
fn harm_to_the_lists_of_what_is_inside_is_refused_by_name() {
    let digest = |tree: &Tree, path: &str| {
        let bytes = tree.get(path).expect("the release has this file");
        sha256(bytes).hex()
    };
    refuse_all(&[
        // A component is hidden, and all checksums agree with the change.
        (
            &|tree| {
                let mut files = std::mem::take(tree);
                let kept = signatures::take(&mut files);
                replace(&mut files, "sbom/arm/multus-distro", "serde", "sered");
                sample::reseal(&mut files);
                files.extend(kept);
                *tree = files;
            },
            BY_OWNER,
            "SHA256SUMS.sig: it is not by this key over these bytes",
        ),
        // The owner of the key signed it all the same.
        (
            &|tree| {
                signed_all_the_same(tree, |tree| {
                    let distro = digest(tree, "bin/arm/multus-distro");
                    let other = digest(tree, "bin/amd64/multus-distro");
                    replace(tree, "sbom/arm/multus-distro", &distro, &other);
                });
            },
            BY_OWNER,
            "sbom/arm/multus-distro: it is about another file than the one of this release",
        ),
        (
            &|tree| {
                let distro = "sbom/amd64/multus-distro";
                signed_all_the_same(tree, |tree| replace(tree, distro, "serde", "sered"));
            },
            BY_OWNER,
            "THIRD-PARTY.txt has no licence of sered 1.0.0",
        ),
    ]);
}

#[test]
fn harm_to_signatures_is_refused_by_name() {
    let chart = format!("{CHART}.prov");
    let crd = "charts/assets/k3s-multus-crd/k3s-multus-crd-9.8.7.tgz.prov";
    let no_key = "it is not by this key over these bytes";
    let signature = |path: &str| format!("{path}: {no_key}");
    let missing = |path: &str| format!("{path} is missing: it was not signed");
    refuse_all(&[
        (&|_| {}, &["--key", "other.pub"], &signature(SUMS)),
        (&|tree| drop(tree.0.remove(SUMS)), BY_OWNER, &missing(SUMS)),
        (
            &|tree| from_another_release(tree, SUMS),
            BY_OWNER,
            &signature(SUMS),
        ),
        (
            &|tree| tree.add(SUMS, "MEUCIQ"),
            BY_OWNER,
            "SHA256SUMS.sig: it is not",
        ),
        (
            &|tree| tree.add(SUMS, "~"),
            BY_OWNER,
            "it is not a signature in base64",
        ),
        (
            &|tree| tree.add(SUMS, vec![b'A'; (4 << 20) + 1]),
            BY_OWNER,
            "SHA256SUMS.sig has 4194305 bytes, and a file of this kind has at most 4194304",
        ),
        (
            &|tree| drop(tree.0.remove("SHA256SUMS.sigstore.json")),
            BY_OWNER,
            &missing("SHA256SUMS.sigstore.json"),
        ),
        (
            &|tree| from_another_release(tree, "SHA256SUMS.sigstore.json"),
            BY_OWNER,
            &signature("SHA256SUMS.sigstore.json"),
        ),
        (
            &|tree| {
                let path = "SHA256SUMS.sigstore.json";
                let text = String::from_utf8_lossy(tree.get(path).expect("it is of this test"));
                let text = text.replace("bundle.v0.3", "bundle.v0.4");
                tree.add(path, text);
            },
            BY_OWNER,
            "bundle.v0.4+json`, and this program reads",
        ),
        // The signature counts, and other readers find another digest.
        (
            &|tree| {
                let path = "SHA256SUMS.sigstore.json";
                let text = String::from_utf8_lossy(tree.get(path).expect("it is of this test"));
                let text = text.replace("SHA2_256", "SHA2_512");
                tree.add(path, text);
            },
            BY_OWNER,
            "SHA256SUMS.sigstore.json: it has more than the signature, or has it in another form",
        ),
        (
            &|tree| swap(tree, ARM, "airgap/sha256sum-amd64.txt.sig"),
            BY_OWNER,
            &signature("airgap/sha256sum-amd64.txt.sig"),
        ),
        (&|tree| drop(tree.0.remove(ARM)), BY_OWNER, &missing(ARM)),
        (
            &|tree| drop(tree.0.remove(&chart)),
            BY_OWNER,
            &missing(&chart),
        ),
        (
            &|tree| swap(tree, &chart, crd),
            BY_OWNER,
            "tgz.prov: it is not",
        ),
        (
            &|tree| damage(tree, "charts/keyring.gpg"),
            BY_OWNER,
            "charts/keyring.gpg: it is not",
        ),
    ]);
}

#[test]
fn harm_to_signatures_of_images_is_refused_by_name() {
    let no_key = "it is not by this key over these bytes";
    refuse_all(&[
        (
            &|tree| damage(tree, &image(tree, ".json")),
            BY_OWNER,
            ".json is not the text about docker.io/multusrs/multus@sha256:",
        ),
        (
            &|tree| {
                let text = key(OTHER)
                    .sign_text(tree.get(&image(tree, ".json")).expect("it is of this test"));
                tree.add(image(tree, ".json.sig"), text);
            },
            BY_OWNER,
            &format!(".json.sig: {no_key}"),
        ),
        (
            &|tree| drop(tree.0.remove(&image(tree, ".sigstore.json"))),
            BY_OWNER,
            ".sigstore.json is missing: it was not signed",
        ),
        (
            &|tree| {
                let other = tree
                    .get(&provenance(OWNER))
                    .expect("it is of this test")
                    .to_vec();
                tree.add(image(tree, ".sigstore.json"), other);
            },
            BY_OWNER,
            "predicateType \"https://slsa.dev/provenance/v1\", and this program reads https://sigstore.dev",
        ),
        (
            &|tree| tree.add(format!("signatures/{}.json", "0".repeat(64)), "{}"),
            &[],
            "0000.json is the signature of nothing in this release",
        ),
        (
            &|tree| tree.add("charts/assets/x/x-1.0.0.tgz.prov", ""),
            &[],
            "x-1.0.0.tgz.prov is the signature of nothing in this release",
        ),
    ]);
}

#[test]
fn missing_and_foreign_statements_are_refused_by_name() {
    let [owner, other] = [OWNER, OTHER].map(provenance);
    refuse_all(&[
        (
            &|tree| drop(tree.0.remove(&other)),
            BY_BOTH,
            &format!("{other} is missing: the owner of this key did not state"),
        ),
        (
            &|tree| drop(tree.0.remove(&owner)),
            BY_OWNER,
            &format!("{owner} is missing"),
        ),
        (
            &|tree| copy(tree, &owner, &other),
            BY_BOTH,
            &format!("{other}: its signature does not count: it is not by this key"),
        ),
        // The other builder's release was another one.
        (
            &|tree| from_another_release(tree, &other),
            BY_BOTH,
            "the statement is about README.md with the sha256",
        ),
        (
            &|tree| tree.add(&other, "{}"),
            BY_BOTH,
            &format!("{other}: it is damaged"),
        ),
        (
            &|_| {},
            &["--attested-by", "owner.pub", "--attested-by", "owner.pub"],
            "is given twice: name the keys of different builders",
        ),
        (
            &|_| {},
            &["--key", "release/SHA256SUMS"],
            "it is not a key in PEM",
        ),
        (
            &|_| {},
            &["--key", "absent.pub"],
            "cannot use the key absent.pub, name the file of a public key in PEM: No such file",
        ),
    ]);
}

/// Adds a statement that a stranger signed, under a name that no key has.
fn add_of_stranger(tree: &mut Tree, change: impl FnOnce(&mut Value)) -> String {
    let path = format!("provenance/{}.sigstore.json", "0".repeat(64));
    let bytes = tree.get(&provenance(OTHER)).expect("it is of this test");
    let statement = bundle::statement_of_anyone(bytes).expect("it is of this test");
    let mut statement: Value = serde_json::from_slice(&statement).expect("it is of this test");
    change(&mut statement);
    let bytes = serde_json::to_vec(&statement).expect("it is of this test");
    tree.add(&path, bundle::sign_statement(&bytes, &key(OTHER)));
    path
}

#[test]
fn statements_of_strangers_are_about_this_release_or_refused_by_name() {
    let path = format!("provenance/{}.sigstore.json", "0".repeat(64));
    let refused = format!("{path} is not a statement about this release: remove it");
    for keys in [BY_OWNER, BY_BOTH, &[]] {
        refuse_all(&[
            (&|tree| tree.add(&path, "garbage"), keys, &refused),
            (
                &|tree| {
                    let from = image(tree, ".sigstore.json");
                    copy(tree, &from, &path);
                },
                keys,
                &refused,
            ),
            (
                &|tree| {
                    add_of_stranger(tree, |one| {
                        one["predicateType"] = json!("https://slsa.dev/verification_summary/v1");
                        one["predicate"] = json!({"verificationResult": "PASSED"});
                    });
                },
                keys,
                &refused,
            ),
            (
                &|tree| {
                    add_of_stranger(tree, |one| drop(subjects(one).pop()));
                },
                keys,
                &refused,
            ),
        ]);
    }
    // What says more of an image than that it is signed goes to no registry, whoever signed it.
    refuse_all(&[(
        &|tree| {
            let path = image(tree, ".sigstore.json");
            let bytes = tree.get(&path).expect("it is of this test");
            let statement = bundle::statement_of_anyone(bytes).expect("it is of this test");
            let mut statement: Value =
                serde_json::from_slice(&statement).expect("it is of this test");
            statement["predicate"] = json!({"verificationResult": "PASSED"});
            let bytes = serde_json::to_vec(&statement).expect("it is of this test");
            tree.add(&path, bundle::sign_statement(&bytes, &key(OTHER)));
        },
        &[],
        "the statement says more than that the image is signed",
    )]);
    // One that is about this release is listed, and counts for nobody.
    let dir = tempfile::tempdir().expect("it is of this test");
    let mut tree = signed("9.8.7");
    let path = add_of_stranger(&mut tree, |_| {});
    tree.write_new(&dir.path().join("release"))
        .expect("it is of this test");
    for (keys, unchecked) in [
        (BY_BOTH, vec![path.clone()]),
        (BY_OWNER, vec![path, provenance(OTHER)]),
    ] {
        let stdout = succeeds(verify(dir.path(), keys));
        let lines = stdout.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("unchecked: ")?.split_once(','));
        let found: Vec<_> = lines.map(|(path, _)| path.to_owned()).collect();
        assert_eq!(found, unchecked, "{stdout}");
    }
}

/// A change of a statement, and the words in which it is refused.
type Change<'a> = (&'a dyn Fn(&mut Value), &'a str);

/// Changes the statement of the other builder, who signs it all the same; it must be refused in these words.
fn refuse_restated(changes: &[Change<'_>]) {
    for (change, expected) in changes {
        refuse_all(&[(&|tree| restate(tree, OTHER, change), BY_BOTH, expected)]);
    }
}

#[test]
fn two_keys_of_one_builder_are_one_builder() {
    refuse_restated(&[(
        &|one| one["predicate"]["runDetails"]["builder"]["id"] = json!("https://a.example"),
        "the statements of two keys name one builder, https://a.example",
    )]);
}

#[test]
fn statements_about_other_files_are_refused_by_name() {
    let shim = "bin/arm/multus-shim";
    refuse_restated(&[
        (
            &|one| subject(one, shim)["digest"]["sha256"] = json!("0".repeat(64)),
            "the statement is about bin/arm/multus-shim with the sha256 0000",
        ),
        // The architectures of a program are swapped.
        (
            &|one| {
                subject(one, shim)["name"] = json!("bin/x");
                subject(one, "bin/amd64/multus-shim")["name"] = json!(shim);
                subject(one, "bin/x")["name"] = json!("bin/amd64/multus-shim");
            },
            "the statement is about bin/amd64/multus-shim with the sha256",
        ),
        (
            &|one| {
                let mut outside = subject(one, shim).clone();
                outside["name"] = json!("../../etc/passwd");
                subjects(one).push(outside);
            },
            "about ../../etc/passwd, which is not in this release",
        ),
        (
            &|one| subjects(one).retain(|subject| subject["name"] != shim),
            "the statement is not about bin/arm/multus-shim, which is in this release",
        ),
        (
            &|one| {
                let again = subject(one, shim).clone();
                subjects(one).push(again);
            },
            "the statement names bin/arm/multus-shim twice",
        ),
    ]);
}

#[test]
fn statements_about_other_builds_and_of_other_formats_are_refused_by_name() {
    let build = |one: &mut Value, name: &str, value: Value| {
        one["predicate"]["buildDefinition"][name] = value;
    };
    let parameter = |one: &mut Value, name: &str, value: Value| {
        one["predicate"]["buildDefinition"]["externalParameters"][name] = value;
    };
    refuse_restated(&[
        (
            &|one| one["_type"] = json!("https://in-toto.io/Statement/v2"),
            "the statement has the _type \"https://in-toto.io/Statement/v2\", and this program reads",
        ),
        (
            &|one| one["predicateType"] = json!("https://slsa.dev/provenance/v2"),
            "predicateType \"https://slsa.dev/provenance/v2\", and this program reads",
        ),
        (
            &|one| build(one, "buildType", json!("x")),
            "about a build of the type \"x\", and this program reads",
        ),
        (
            &|one| parameter(one, "commit", json!("0".repeat(40))),
            "about a build with the commit \"0000",
        ),
        (
            &|one| parameter(one, "architectures", json!(["arm", "amd64"])),
            "with the architectures [\"arm\",\"amd64\"], and release.json says [\"amd64\",\"arm\"]",
        ),
        (
            &|one| parameter(one, "flags", json!("--weak")),
            "with the flags \"--weak\", and release.json says null",
        ),
        (
            &|one| one["predicate"]["runDetails"] = json!({}),
            "the statement names no builder",
        ),
    ]);
}

#[test]
fn link_in_place_of_a_signature_is_not_followed() {
    let dir = tempfile::tempdir().expect("it is of this test");
    let at = dir.path().join("release");
    signed("9.8.7").write_new(&at).expect("it is of this test");
    fs::rename(at.join(SUMS), dir.path().join("elsewhere")).expect("it is of this test");
    symlink("../elsewhere", at.join(SUMS)).expect("it is of this test");
    let expected = "SHA256SUMS.sig is not a regular file";
    refused(verify(dir.path(), BY_OWNER), FAILED, expected);
}

#[test]
fn medium_is_vouched_for_by_the_key_of_the_owner() {
    let dir = tempfile::tempdir().expect("it is of this test");
    let tree = signed("9.8.7");
    tree.write_new(&dir.path().join("all"))
        .expect("it is of this test");
    let medium = dir.path().join("release");
    fs::rename(dir.path().join("all/airgap"), &medium).expect("it is of this test");
    let stdout = succeeds(verify(dir.path(), BY_OWNER));
    assert!(
        stdout.contains("sha256sum-arm.txt: signed by the owner of --key\n"),
        "{stdout}"
    );
    for (args, signed, count) in [
        (&["--json"][..], false, 0),
        (&["--key", "owner.pub", "--json"], true, 2),
    ] {
        let json = succeeds(verify(dir.path(), args));
        let verdict: Value = serde_json::from_str(&json).expect("it is of this test");
        assert_eq!(verdict["checkedSignatures"], signed);
        assert_eq!(verdict["signed"].as_array().map(Vec::len), Some(count));
        assert_eq!(verdict["medium"][1]["arch"], "arm");
    }
    succeeds(verify(dir.path(), &[]));
    let usage = "--attested-by is for a release";
    refused(verify(dir.path(), BY_BOTH), BAD_USAGE, usage);
    let expected = "sha256sum-amd64.txt.sig: it is not by this key";
    refused(
        verify(dir.path(), &["--key", "other.pub"]),
        FAILED,
        expected,
    );
    let signature = medium.join("sha256sum-arm.txt.sig");
    let sound = fs::read(&signature).expect("it is of this test");
    fs::copy(medium.join("sha256sum-amd64.txt.sig"), &signature).expect("it is of this test");
    let expected = "sha256sum-arm.txt.sig: it is not by this key";
    refused(verify(dir.path(), BY_OWNER), FAILED, expected);
    fs::remove_file(&signature).expect("it is of this test");
    let expected = "sha256sum-arm.txt.sig is missing";
    refused(verify(dir.path(), BY_OWNER), FAILED, expected);
    fs::write(&signature, sound).expect("it is of this test");
    // Everything else reads the medium as before.
    let at = text(&medium);
    succeeds(command(&["explain", at]));
    sample::damage(&medium.join(sample::archive(sample::ARCHES[1])));
    let expected = "is not the file that sha256sum-arm.txt names";
    refused(verify(dir.path(), BY_OWNER), FAILED, expected);
}
