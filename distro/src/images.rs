//! Image archives of a release: a directory of them is checked ([`archive::medium`]), and this node's archive is copied to where the distro
//! imports from.

mod archive;
mod install;

use std::path::Path;

use ::archive::{
    lists,
    medium::{Medium, Sound},
};
use anyhow::{Context as _, bail, ensure};

pub(crate) use self::{
    archive::{images_for_this_node, references},
    install::install,
};
use crate::{assets::IMAGES, trusted_key::TrustedKey};

/// Below the data directory: the distro imports archives from here before its kubelet starts.
pub(crate) const IMAGES_DIR: &str = "agent/images";

/// Returns this machine's architecture, as a release names it.
pub(crate) fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A directory that is sound, and holds all images of the charts for this node.
#[derive(Debug)]
pub(crate) struct CheckedDir {
    pub(crate) medium: Medium,
    pub(crate) sound: Sound,
    /// The names of the checksum files that the owner of the key signed.
    pub(crate) signed: Vec<String>,
}

/// Checks the signatures first where there is a key, then every file, then the content of this node's archive.
pub(crate) fn check(dir: &Path, trusted: Option<&TrustedKey>) -> anyhow::Result<CheckedDir> {
    ensure!(
        dir.is_dir(),
        "there is no directory {}: name the one with the release's airgap files",
        dir.display()
    );
    let unsound = || format!("{} is not sound", dir.display());
    let medium = Medium::open(dir, Some(arch())).with_context(unsound)?;
    let signed = match trusted {
        Some(trusted) => check_signatures(&medium, trusted)?,
        None => Vec::new(),
    };
    let sound = medium.check(Some(arch())).with_context(unsound)?;
    for image in IMAGES {
        let mut images = sound.archives.iter().flat_map(|one| &one.images);
        ensure!(
            images.any(|one| one.reference == *image),
            "{} lacks {image}: take archive and program from the same release",
            lists::archive_name(arch())
        );
    }
    Ok(CheckedDir {
        medium,
        sound,
        signed,
    })
}

/// Checks that the owner of a key signed every checksum file, so that no file of anybody else is taken; returns their names.
fn check_signatures(medium: &Medium, trusted: &TrustedKey) -> anyhow::Result<Vec<String>> {
    let files = medium.signed_files()?;
    let mut signed = Vec::new();
    for (name, text) in &files {
        if lists::architecture_of_sums(name).is_none() {
            continue;
        }
        let signature = format!("{name}{}", lists::SIGNATURE);
        let path = medium.path(&signature);
        let bytes = files.get(&signature).with_context(|| {
            format!(
                "{} is missing, and only {} is trusted: copy it from the release, or take a release that its owner signed",
                path.display(),
                trusted.origin
            )
        })?;
        if let Err(error) = trusted.key.verify_text(text, bytes) {
            bail!(
                "{}: {error} ({}): {name} was changed after it was signed, or somebody else signed it; copy the release again from where the owner of the key publishes it",
                path.display(),
                trusted.origin
            );
        }
        signed.push(name.clone());
    }
    Ok(signed)
}
