//! Deltas of a small release for two architectures, made and applied.

use archive::layout::Layout;

use super::*;
use crate::{arch::Arch, check, medium::ProgramsByArch, sample};

/// Returns a layout with one image for two architectures.
fn release(content: &str) -> Layout {
    sample::layout("docker.io/own/x:v1", &["amd64", "arm64"], content)
}

/// Returns programs for operators that pass for static ones.
fn programs(text: &str) -> ProgramsByArch {
    let program = |arch: Arch| {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16] = 2;
        bytes[18..20].copy_from_slice(&arch.machine().0.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        (arch.name().to_owned(), bytes)
    };
    [Arch::Amd64, Arch::Arm64].map(program).into()
}

#[test]
fn applied_deltas_are_the_releases_airgap_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let arches = ["amd64", "arm64"];
    let (old, new) = (release("old"), release("new"));
    let (of_old, of_new) = (programs("old"), programs("new"));
    let former = medium::tree(&old, &arches, &of_old).unwrap();
    former.update(&path("former/airgap"), &[]).unwrap();
    let patches = medium::deltas((&old, &of_old), (&new, &of_new), &[].into(), &arches).unwrap();
    patches.update(&path("delta"), &[]).unwrap();
    let found = Tree::read_medium(&path("delta"), signatures::MEDIUM_LIMIT)
        .unwrap()
        .0
        .into_iter();
    let found = check::dir(&found.map(|(path, file)| (path, file.bytes)).collect());
    assert!(found.unwrap().iter().all(|one| one.is_delta));
    for base in ["former", "former/airgap"] {
        to_dir(&path(base), &path("delta"), &path("airgap"), None).unwrap();
        let expected = medium::tree(&new, &arches, &of_new).unwrap();
        let made = Tree::read(&path("airgap")).unwrap();
        assert_eq!(made, expected);
        let files = made.0.into_iter().map(|(path, file)| (path, file.bytes));
        check::dir(&files.collect()).unwrap();
    }
    // Directories that a file system adds to a medium are passed over, and a file of that name is not.
    let made = Tree::read_medium(&path("airgap"), signatures::MEDIUM_LIMIT).unwrap();
    std::fs::create_dir(path("airgap/lost+found")).unwrap();
    std::fs::write(path("airgap/lost+found/x"), "").unwrap();
    assert_eq!(
        Tree::read_medium(&path("airgap"), signatures::MEDIUM_LIMIT).unwrap(),
        made
    );
    std::fs::write(path("airgap/System Volume Information"), "").unwrap();
    assert_ne!(
        Tree::read_medium(&path("airgap"), signatures::MEDIUM_LIMIT).unwrap(),
        made
    );
    // The delta of one architecture makes the files for that one.
    let one = path("delta/multus-airgap-delta-arm64.tar.zst");
    to_dir(&path("former"), &one, &path("one"), None).unwrap();
    let made = Tree::read(&path("one")).unwrap();
    assert!(made.get("sha256sum-arm64.txt").is_some() && made.get("sha256sum-amd64.txt").is_none());
    let program = lists::program_name("arm64");
    assert!(made.0[&program].is_program);
    // Without the former program the new one is left out, and all else is the same.
    let archive = lists::archives("arm64")[0].clone();
    std::fs::create_dir(path("archives")).unwrap();
    let former = path("former/airgap").join(&archive);
    std::fs::copy(former, path("archives").join(&archive)).unwrap();
    to_dir(&path("archives"), &one, &path("without"), None).unwrap();
    let mut expected = made;
    expected.0.remove(&program);
    let made = Tree::read(&path("without")).unwrap();
    assert_eq!(made, expected);
    let files = made.0.into_iter().map(|(path, file)| (path, file.bytes));
    check::dir(&files.collect()).unwrap();
    // A damaged delta is refused before anything is written.
    std::fs::write(&one, "x").unwrap();
    let error = to_dir(&path("former"), &path("delta"), &path("never"), None);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("is not the file that sha256sum-arm64.txt names"),
        "{error}"
    );
    let error = to_dir(&path("former"), &one, &path("x.tar.zst"), None);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("name a directory"), "{error}");
    assert!(!path("never").exists());
}
