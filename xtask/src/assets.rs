//! The files of a release as a forge takes them: flat names, one archive with everything and its modes, and signed checksums over all of them.

use anyhow::{Context as _, ensure};
use archive::{
    digest::sha256,
    tar::{self, Entry},
};
use release::{parts::flat_name, signatures::sums_signature};
use signing::SecretKey;

use crate::{description, tree::Tree};

/// The name of the notes among the files.
pub(crate) const NOTES: &str = "RELEASE-NOTES.md";

/// Returns the name of the archive with the complete release.
pub(crate) fn archive_name(version: &str) -> String {
    format!("{}.tar", directory(version))
}

/// Returns the directory in that archive.
fn directory(version: &str) -> String {
    format!("multus-rs-v{version}")
}

/// Returns all files of a release for a forge, with the signature of this key over their checksums.
pub(crate) fn assets(
    release: &Tree,
    version: &str,
    notes: &str,
    key: Option<&SecretKey>,
) -> anyhow::Result<Tree> {
    let mut assets = Tree::default();
    for (path, file) in &release.0 {
        let Some(name) = flat_name(path) else {
            continue;
        };
        let is_free = assets.get(&name).is_none_or(|other| other == file.bytes);
        ensure!(
            is_free,
            "two files of the release would be {name}: {path} is one"
        );
        assets.0.insert(name, file.clone());
    }
    assets.add(archive_name(version), whole(release, version)?);
    assets.add(NOTES, notes);
    let sums = assets.0.iter();
    let sums = sums.map(|(name, file)| (name.as_str(), sha256(&file.bytes)));
    let sums = archive::lists::sums(sums);
    if let Some(key) = key {
        let signature = key.sign_text(sums.as_bytes());
        assets.add(sums_signature(description::SUMS), signature);
    }
    assets.add(description::SUMS, sums);
    Ok(assets)
}

/// Packs the release with its modes; the bytes follow from the release alone.
fn whole(release: &Tree, version: &str) -> anyhow::Result<Vec<u8>> {
    let directory = directory(version);
    let entry = |(path, file): (&String, &crate::tree::File)| {
        let mode = if file.is_program { 0o755 } else { 0o644 };
        Entry::file(format!("{directory}/{path}"), mode, file.bytes.clone())
    };
    let entries: Vec<_> = release.0.iter().map(entry).collect();
    tar::write(&entries).context("cannot pack the release")
}

#[cfg(test)]
mod tests {
    use archive::{
        read::{self, Limits},
        tar::Kind,
    };

    use super::*;

    fn release() -> Tree {
        let mut tree = Tree::default();
        for path in [
            "SHA256SUMS",
            "SHA256SUMS.sig",
            "release.json",
            "LICENSE",
            "README.md",
            "exports/hauler.yaml",
            "krew/kubectl-multus-v1.2.3-linux-arm.tar.gz",
            "krew/multus.yaml",
            "oci/blobs/sha256/ab",
            "man/a.1",
            "bindata/go/static/x.go",
            "charts/index.yaml",
            "charts/assets/k3s-multus/k3s-multus-1.2.3.tgz",
            "charts/assets/k3s-multus/k3s-multus-1.2.3.tgz.prov",
            "manifests/k3s/multus.yaml",
            "manifests/rke2/multus.yaml",
            "plugins/cni-plugins-linux-arm-v1.2.3.tgz",
            "airgap/multus-airgap-images-arm.tar",
            "airgap/multus-images.txt",
            "airgap/k3s/image-list-multus.txt",
            "airgap/sha256sum-arm.txt",
            "airgap/sha256sum-arm.txt.sig",
            "charts/keyring.gpg",
            "provenance/ab.sigstore.json",
            "signatures/ab.sigstore.json",
            "sbom/vex.cdx.json",
            "sbom/arm/multus-shim.cdx.json",
        ] {
            tree.add(path, path);
        }
        tree.add_program("bin/arm/multus-airgap", b"program".to_vec());
        tree.add_program("airgap/multus-airgap-arm", b"program".to_vec());
        tree
    }

    #[test]
    fn names_are_flat_and_the_archive_has_everything() {
        let assets = assets(&release(), "1.2.3", "- New.\n", None).unwrap();
        let names: Vec<_> = assets.0.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "LICENSE",
                "RELEASE-NOTES.md",
                "SHA256SUMS",
                "bindata-static-x.go",
                "cni-plugins-linux-arm-v1.2.3.tgz",
                "hauler.yaml",
                "k3s-multus-1.2.3.tgz",
                "k3s-multus-1.2.3.tgz.prov",
                "k3s-multus.yaml",
                "keyring.gpg",
                "krew-multus.yaml",
                "kubectl-multus-v1.2.3-linux-arm.tar.gz",
                "multus-airgap-arm",
                "multus-airgap-images-arm.tar",
                "multus-images.txt",
                "multus-rs-v1.2.3.tar",
                "provenance-ab.sigstore.json",
                "release.json",
                "rke2-multus.yaml",
                "sha256sum-arm.txt",
                "sha256sum-arm.txt.sig",
                "vex.cdx.json",
            ]
        );
        let tar = assets.get("multus-rs-v1.2.3.tar").unwrap();
        let limits = Limits {
            entries: 100,
            total: 1 << 20,
            links: false,
        };
        let entries = read::entries(tar, &limits).unwrap();
        let files = entries
            .iter()
            .filter(|one| matches!(one.kind, Kind::File(_)));
        assert_eq!(files.count(), release().0.len());
        let mode = |path: &str| entries.iter().find(|one| one.path == path).unwrap().mode;
        assert_eq!(mode("multus-rs-v1.2.3/bin/arm/multus-airgap"), 0o755);
        assert_eq!(mode("multus-rs-v1.2.3/LICENSE"), 0o644);
        let sums = String::from_utf8(assets.get(description::SUMS).unwrap().to_vec()).unwrap();
        let sums = archive::lists::parse_sums(&sums).unwrap();
        assert_eq!(sums.len(), names.len() - 1);
        for (name, digest) in sums {
            assert_eq!(sha256(assets.get(&name).unwrap()), digest, "{name}");
        }
    }

    #[test]
    fn different_files_never_get_one_name() {
        let mut tree = release();
        tree.add("airgap/multus-airgap-arm", "another program");
        let error = assets(&tree, "1.2.3", "", None).unwrap_err().to_string();
        assert!(error.contains("would be multus-airgap-arm"), "{error}");
    }
}
