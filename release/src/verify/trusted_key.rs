//! Checks that every `multus-distro` of a release has the key built in that the release names, and no other one.

use anyhow::ensure;
use archive::digest::Digest;
use signing::PublicKey;

use super::file;
use crate::{arch::Arch, description::Release, tree::Tree};

const BEGIN: &[u8] = b"-----BEGIN PUBLIC KEY-----\n";
const END: &[u8] = b"-----END PUBLIC KEY-----\n";
/// Longer than a key of any algorithm that is read.
const LONGEST: usize = 400;

pub(super) fn check(tree: &Tree, release: &Release, arches: &[Arch]) -> anyhow::Result<()> {
    for arch in arches {
        let path = format!("bin/{}/multus-distro", arch.name());
        let found = built_in(file(tree, &path)?);
        let expected: Vec<_> = release.trusted_key.into_iter().collect();
        ensure!(
            found == expected,
            "{path} has {} built in, and the release names {}",
            names(&found),
            names(&expected)
        );
    }
    Ok(())
}

/// Returns the ids of the keys in a program.
fn built_in(program: &[u8]) -> Vec<Digest> {
    let mut ids = Vec::new();
    let starts = program.windows(BEGIN.len()).enumerate();
    for (start, _) in starts.filter(|(_, window)| *window == BEGIN) {
        let rest = &program[start..program.len().min(start + LONGEST)];
        let end = rest.windows(END.len()).position(|window| window == END);
        let text = end.and_then(|end| std::str::from_utf8(&rest[..end + END.len()]).ok());
        let key = text.and_then(|text| PublicKey::from_pem(text).ok());
        ids.extend(key.map(|key| key.id()));
    }
    ids
}

fn names(ids: &[Digest]) -> String {
    let names: Vec<_> = ids
        .iter()
        .map(|id| format!("the key {}", id.hex()))
        .collect();
    if names.is_empty() {
        return "no key".to_owned();
    }
    names.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = include_str!("../../../signing/tests/fixtures/ed25519.pub");

    #[test]
    fn keys_are_found_in_a_program() {
        let id = PublicKey::from_pem(KEY).unwrap().id();
        let program = |parts: &[&[u8]]| built_in(&parts.concat());
        assert_eq!(program(&[b"\x7fELF", KEY.as_bytes(), b"\0"]), [id]);
        assert_eq!(program(&[KEY.as_bytes(), KEY.as_bytes()]), [id, id]);
        assert_eq!(program(&[b"\x7fELF"]), []);
        assert_eq!(program(&[BEGIN, b"AAAA\n", END]), []);
        assert_eq!(program(&[BEGIN]), []);
    }
}
