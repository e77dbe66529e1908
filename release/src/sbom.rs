//! `sbom/`, `LICENSE` and `THIRD-PARTY.txt`: the names of the documents about what is inside of a release, and what
//! they list. `xtask` writes them.

pub mod cyclonedx;

use std::collections::BTreeSet;

use crate::arch::Arch;

/// The directory of the documents in a release.
pub const DIR: &str = "sbom/";
/// The licence of this project, in a release and below [`crate::image::DOCUMENTS`] in an image.
pub const LICENCE: &str = "LICENSE";
/// The licences of everything else that is linked into programs, in the same places.
pub const NOTICES: &str = "THIRD-PARTY.txt";
/// The ending of a document, which is CycloneDX in JSON.
pub(crate) const ENDING: &str = ".cdx.json";
/// The advisories that do not apply.
pub const VEX: &str = "sbom/vex.cdx.json";

/// One component of a document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    pub name: String,
    pub version: Option<String>,
    /// The package URL, by which scanners find a component.
    pub purl: Option<String>,
    /// The sha256 of the file, of the image's manifest, or of the crate's archive, in hex.
    pub sha256: Option<String>,
    /// It took part in the build alone.
    pub is_build_only: bool,
}

/// The content of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub subject: Item,
    pub items: BTreeSet<Item>,
}

/// Returns the name of an image in the names of its documents.
pub(crate) fn image_name(reference: &str) -> &str {
    let repository = reference
        .rsplit_once(':')
        .map_or(reference, |(repository, _)| repository);
    repository.rsplit('/').next().unwrap_or(repository)
}

/// Returns the path of a document without its ending.
pub fn stem(arch: &str, subject: &str) -> String {
    format!("{DIR}{arch}/{subject}")
}

/// Returns the path of the document of an image without its ending.
pub fn image_stem(arch: &str, reference: &str) -> String {
    stem(arch, &format!("image-{}", image_name(reference)))
}

/// Returns the path of the document of an image for an architecture.
pub fn image_document(arch: Arch, reference: &str) -> String {
    path(&image_stem(arch.name(), reference))
}

/// Returns the path of a document.
pub fn path(stem: &str) -> String {
    format!("{stem}{ENDING}")
}
