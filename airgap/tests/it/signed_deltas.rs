//! Deltas between signed releases: the key of the owner vouches for them before they are applied, and for what they make; every harm to one
//! is refused by name, also where all checksums agree with it.

use std::{fs, path::Path, sync::OnceLock};

use airgap::{check, lists, pack, tree::Tree, zstd};
use archive::{
    delta::{Delta, FILE, INDEX, LIST, PATCHES, PROGRAM, SIGNATURE, SUMS},
    digest::sha256,
    layout::blob_path,
    oci::{self, Index},
    tar::{Entry, Kind},
};

use crate::{
    program::{FAILED, command, refused, succeeds},
    sample, signatures,
};

const PIECE: &str = "multus-airgap-delta-arm.tar.zst";
const OTHER_PIECE: &str = "multus-airgap-delta-amd64.tar.zst";
const KEY: [&str; 2] = ["--key", "owner.pub"];

/// A former medium, a signed release and the deltas between them.
struct Case {
    former: Tree,
    next: Tree,
    deltas: Tree,
}

impl Case {
    fn get() -> &'static Self {
        static CASE: OnceLock<Case> = OnceLock::new();
        CASE.get_or_init(|| {
            let next = signed("5.0.1");
            Self {
                deltas: deltas(&next, "5.0.0"),
                former: airgap_of(&sample::release("5.0.0", sample::COMMIT, "")),
                next: airgap_of(&next),
            }
        })
    }
}

fn signed(version: &str) -> Tree {
    let mut tree = sample::release(version, sample::COMMIT, "new");
    signatures::sign(&mut tree);
    tree
}

/// Returns the files below `airgap/`.
fn airgap_of(release: &Tree) -> Tree {
    let files = release.below("airgap/");
    Tree(
        files
            .map(|(name, file)| (name.to_owned(), file.clone()))
            .collect(),
    )
}

/// Returns the deltas that `bundle` makes from a former release.
fn deltas(next: &Tree, former: &str) -> Tree {
    let dir = tempfile::tempdir().expect("it is of this test");
    let path = |name: &str| dir.path().join(name);
    sample::write(&path("former"), former);
    next.write_new(&path("next")).expect("it is of this test");
    let mut bundle = command(&["bundle", "next", "--base", "former", "--out", "delta"]);
    bundle.current_dir(dir.path());
    succeeds(bundle);
    Tree::read(&path("delta")).expect("it is of this test")
}

/// Writes former medium, deltas and keys below a directory.
fn write(dir: &Path, deltas: &Tree) {
    let case = Case::get();
    case.former
        .write_new(&dir.join("former"))
        .expect("it is of this test");
    deltas
        .write_new(&dir.join("delta"))
        .expect("it is of this test");
    signatures::write_keys(dir);
}

fn entries(piece: &[u8]) -> Vec<Entry> {
    check::read(PIECE, piece).expect("it is of this test")
}

/// Replaces a delta, with its checksum, as a careful attacker would.
fn replace(deltas: &mut Tree, piece: &str, entries: &[Entry]) {
    let (bytes, packed) = pack::bytes(entries, zstd::ARCHIVE).expect("it is of this test");
    let arch = piece.strip_prefix("multus-airgap-delta-");
    let arch = arch.and_then(|rest| rest.strip_suffix(".tar.zst"));
    let sums = lists::sums([(piece, packed.digest)]);
    deltas.add(lists::sums_name(arch.expect("it is a delta")), sums);
    deltas.add(piece, bytes);
}

fn bytes<'a>(entries: &'a mut [Entry], path: &str) -> &'a mut Vec<u8> {
    let entry = entries.iter_mut().find(|entry| entry.path == path);
    match &mut entry.expect("the delta has it").kind {
        Kind::File(bytes) => bytes,
        _ => panic!("{path} is no file"),
    }
}

fn damage(entries: &mut [Entry], path: &str) {
    let bytes = bytes(entries, path);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
}

fn remove(entries: &mut Vec<Entry>, path: &str) {
    let before = entries.len();
    entries.retain(|entry| entry.path != path);
    assert_eq!(entries.len() + 1, before, "{path}");
}

fn describe(entries: &mut [Entry], change: impl FnOnce(&mut Delta)) {
    let text = bytes(entries, FILE);
    let mut delta: Delta = oci::from_bytes(text).expect("it is of this test");
    change(&mut delta);
    *text = oci::to_bytes(&delta);
}

fn index(entries: &mut [Entry], change: impl FnOnce(&mut Index)) {
    let text = bytes(entries, INDEX);
    let mut index: Index = oci::from_bytes(text).expect("it is of this test");
    change(&mut index);
    *text = oci::to_bytes(&index);
}

/// Takes a part from another delta.
fn take(entries: &mut [Entry], other: &Tree, piece: &str, path: &str) {
    let mut from = self::entries(other.get(piece).expect("it is of this test"));
    bytes(entries, path).clone_from(bytes(&mut from, path));
}

#[test]
fn owner_vouches_for_deltas_and_for_what_they_make() {
    let case = Case::get();
    let dir = tempfile::tempdir().expect("it is of this test");
    write(dir.path(), &case.deltas);
    let run = |args: &[&str]| {
        let mut command = command(args);
        command.current_dir(dir.path());
        command
    };
    let checked = succeeds(run(&[&["verify", "delta"][..], &KEY].concat()));
    for piece in [PIECE, OTHER_PIECE] {
        let line = format!("{piece}: signed by the owner of --key\n");
        assert!(checked.contains(&line), "{checked}");
    }
    let explained = succeeds(run(&["explain", "delta"]));
    let line = "makes sha256sum-arm.txt with a signature, not checked";
    assert!(explained.contains(line), "{explained}");
    let apply = ["apply", "delta", "--base", "former", "--out"];
    succeeds(run(&[&apply[..], &["next"], &KEY].concat()));
    let made = Tree::read(&dir.path().join("next")).expect("it is of this test");
    assert_eq!(made, case.next);
    succeeds(run(&[&["verify", "next"][..], &KEY].concat()));
    // Without a key deltas are checked for damage alone, and make the same; lines say so.
    for args in [&["verify", "delta"][..], &[&apply[..], &["again"]].concat()] {
        let output = run(args).output().expect("it is of this test");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        assert!(
            stderr.contains("which") && stderr.contains("not checked"),
            "{stderr}"
        );
    }
    let made = Tree::read(&dir.path().join("again")).expect("it is of this test");
    assert_eq!(made, case.next);
    // One delta alone is enough.
    let one = format!("delta/{PIECE}");
    let args = ["apply", &one, "--base", "former", "--out", "one"];
    succeeds(run(&[&args[..], &KEY].concat()));
    let sums = dir.path().join("one/sha256sum-arm.txt.sig");
    let expected = case.next.get("sha256sum-arm.txt.sig");
    assert_eq!(fs::read(sums).ok().as_deref(), expected);
}

#[test]
fn deltas_to_other_files_than_the_signed_ones_are_not_signed() {
    let dir = tempfile::tempdir().expect("it is of this test");
    let case = Case::get();
    write(dir.path(), &case.deltas);
    let run = |args: &[&str]| {
        let mut command = command(args);
        command.current_dir(dir.path());
        command
    };
    // The release without one of its architectures has another list of digests.
    case.next
        .write_new(&dir.path().join("next"))
        .expect("it is of this test");
    for name in case.next.0.keys().filter(|name| name.contains("amd64")) {
        fs::remove_file(dir.path().join("next").join(name)).expect("it is of this test");
    }
    let bundle = ["bundle", "next", "--base", "former", "--out", "partial"];
    let output = run(&bundle).output().expect("it is of this test");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let note = format!(
        "{PIECE} is not signed, since it makes other files than sha256sum-arm.txt of the new release, which is: sha256sum.txt in the delta has another digest for {LIST}"
    );
    assert!(stderr.contains(&note), "{stderr}");
    succeeds(run(&["verify", "partial"]));
    let expected = format!("{PIECE} is not signed: make it from the signed release");
    refused(
        run(&[&["verify", "partial"][..], &KEY].concat()),
        FAILED,
        &expected,
    );
}

/// A change of a delta, and the words in which it is refused.
type Harm<'a> = (&'a dyn Fn(&mut Vec<Entry>), &'a str);

/// Refuses the delta with each change when it is verified and when it is applied, unless only applying it can show the change.
fn refuse_all(harms: &[Harm<'_>], needs_base: bool) {
    for (change, expected) in harms {
        let mut deltas = Case::get().deltas.clone();
        let mut parts = entries(deltas.get(PIECE).expect("it is of this test"));
        change(&mut parts);
        replace(&mut deltas, PIECE, &parts);
        let dir = tempfile::tempdir().expect("it is of this test");
        write(dir.path(), &deltas);
        let mut verify = command(&[&["verify", "delta"][..], &KEY].concat());
        verify.current_dir(dir.path());
        if needs_base {
            succeeds(verify);
        } else {
            refused(verify, FAILED, expected);
        }
        let args = ["apply", "delta", "--base", "former", "--out", "never"];
        let mut apply = command(&[&args[..], &KEY].concat());
        apply.current_dir(dir.path());
        refused(apply, FAILED, expected);
        assert!(!dir.path().join("never").exists(), "{expected}");
    }
}

#[test]
fn harm_to_the_signature_of_a_delta_is_refused_by_name() {
    let former = deltas(&signed("5.0.2"), "5.0.0");
    let not_by_key = format!("{PIECE}: it is not by this key over these bytes");
    let unsigned = "is not signed: make it from the signed release";
    let missing = |path: &str| format!("{path} is missing in the delta, or damaged");
    refuse_all(
        &[
            (&|parts| remove(parts, SIGNATURE), &missing(SIGNATURE)),
            (&|parts| remove(parts, SUMS), &missing(SUMS)),
            (
                &|parts| {
                    remove(parts, SIGNATURE);
                    remove(parts, SUMS);
                    describe(parts, |delta| delta.schema = 2);
                },
                unsigned,
            ),
            (
                &|parts| describe(parts, |delta| delta.schema = 2),
                "sha256sum.txt does not belong in the delta",
            ),
            (
                &|parts| describe(parts, |delta| delta.schema = 4),
                "this is not a delta: delta.json is missing, damaged or of another version",
            ),
            (
                &|parts| take(parts, &Case::get().deltas, OTHER_PIECE, SIGNATURE),
                &not_by_key,
            ),
            (
                &|parts| *bytes(parts, SIGNATURE) = signatures::by_other(bytes(parts, SUMS)),
                &not_by_key,
            ),
            (
                &|parts| *bytes(parts, SIGNATURE) = b"~".to_vec(),
                "it is not a signature in base64",
            ),
            (
                &|parts| *bytes(parts, SIGNATURE) = vec![b'A'; (4 << 20) + 1],
                "has 4194305 bytes, and a signature has at most 4194304",
            ),
            (
                &|parts| *bytes(parts, SUMS) = b"no checksums".to_vec(),
                &missing(SUMS),
            ),
            // What the same owner signed for the other architecture, or for another release.
            (
                &|parts| {
                    for path in [SUMS, SIGNATURE] {
                        take(parts, &Case::get().deltas, OTHER_PIECE, path);
                    }
                },
                "sha256sum.txt in the delta names other files than the delta makes",
            ),
            (
                &|parts| {
                    for path in [SUMS, SIGNATURE] {
                        take(parts, &former, PIECE, path);
                    }
                },
                "sha256sum.txt in the delta has another digest for k3s/image-list-multus.txt",
            ),
        ],
        false,
    );
}

#[test]
fn harm_to_what_a_signed_delta_makes_is_refused_by_name() {
    let other = |path: &str| {
        format!("{SUMS} in the delta has another digest for {path} than what the delta makes")
    };
    let [zst, gz] = lists::archives("arm");
    let image = sample::image_of("5.0.1");
    refuse_all(
        &[
            (
                &|parts| describe(parts, |delta| delta.full.zst = sha256(b"")),
                &other(&zst),
            ),
            (
                &|parts| describe(parts, |delta| delta.full.gz = sha256(b"")),
                &other(&gz),
            ),
            (
                &|parts| {
                    remove(parts, PROGRAM);
                    describe(parts, |delta| delta.program = None);
                },
                "sha256sum.txt in the delta names other files than the delta makes",
            ),
            (
                &|parts| {
                    let program = b"a program of somebody else";
                    *bytes(parts, PROGRAM) = program.to_vec();
                    describe(parts, |delta| {
                        let one = delta.program.as_mut().expect("it is of this test");
                        (one.digest, one.base) = (sha256(program), None);
                    });
                },
                &other("multus-airgap-arm"),
            ),
            (
                &|parts| {
                    let list = String::from_utf8_lossy(bytes(parts, LIST)).into_owned();
                    let (name, _) = list.trim().split_once("@sha256:").expect("a digest");
                    let list = format!("{name}@{}\n", sha256(b"another image"));
                    *bytes(parts, LIST) = list.into_bytes();
                },
                &other(LIST),
            ),
            // An image of somebody else, with all that it consists of, under the name of the release's.
            (
                &|parts| {
                    let manifest = {
                        let mut found = Vec::new();
                        index(parts, |index| found.push(index.manifests[0].clone()));
                        found.remove(0)
                    };
                    let path = blob_path(&manifest.digest);
                    let mut forged = bytes(parts, &path).clone();
                    forged.push(b'\n');
                    let digest = sha256(&forged);
                    parts.push(Entry::file(blob_path(&digest), 0o644, forged));
                    index(parts, |index| index.manifests[0].digest = digest);
                },
                &other("multus-images-digests.linux-arm.txt"),
            ),
            (
                &|parts| {
                    let name = image.replace("multusrs", "others");
                    let list = String::from_utf8_lossy(bytes(parts, LIST)).into_owned();
                    *bytes(parts, LIST) = list.replace(&image, &name).into_bytes();
                    index(parts, |index| {
                        let names = &mut index.manifests[0].annotations;
                        names.insert(oci::REF_NAME.to_owned(), name.clone());
                    });
                },
                &other("k3s/image-list-multus.txt"),
            ),
            (
                &|parts| parts.push(Entry::file("more", 0o644, "")),
                "more does not belong in the delta",
            ),
            (
                &|parts| parts.push(Entry::link("more", "/etc/passwd")),
                "more",
            ),
        ],
        false,
    );
}

/// A difference has no digest of its own: what it makes has one, and its owner signed that.
#[test]
fn harm_to_differences_is_refused_before_anything_is_written() {
    let sound = entries(Case::get().deltas.get(PIECE).expect("it is of this test"));
    let mut harms: Vec<Harm<'_>> = vec![(
        &|parts: &mut Vec<Entry>| damage(parts, PROGRAM),
        "program is missing in the delta, or damaged",
    )];
    let difference = sound.iter().find(|one| one.path.starts_with(PATCHES));
    let path = &difference.expect("a layer is made of the former one").path;
    let harm = |parts: &mut Vec<Entry>| damage(parts, path);
    harms.push((&harm, path));
    refuse_all(&harms, true);
}
