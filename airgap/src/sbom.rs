//! `sbom/`, `LICENSE` and `THIRD-PARTY.txt`: the names of the documents about what is inside of a release, and what both formats of them
//! list. `xtask` writes them.

pub mod cyclonedx;
pub mod spdx;

use std::collections::BTreeSet;

use crate::arch::Arch;

/// The directory of the documents in a release.
pub const DIR: &str = "sbom/";
/// The licence of this project, in a release and below [`crate::image::DOCUMENTS`] in an image.
pub const LICENCE: &str = "LICENSE";
/// The licences of everything else that is linked into programs, in the same places.
pub const NOTICES: &str = "THIRD-PARTY.txt";
/// The advisories that do not apply.
pub const VEX: &str = "sbom/vex.cdx.json";

/// One component of a document, as both formats name it.
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

/// The content of a document, as both formats have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub subject: Item,
    pub items: BTreeSet<Item>,
}

/// Returns the name of an image in the names of its documents.
pub fn image_name(reference: &str) -> &str {
    let repository = reference
        .rsplit_once(':')
        .map_or(reference, |(repository, _)| repository);
    repository.rsplit('/').next().unwrap_or(repository)
}

/// Returns the path of a document without its ending.
pub fn stem(arch: &str, subject: &str) -> String {
    format!("{DIR}{arch}/{subject}")
}

/// Returns the path of the documents of an image without their endings.
pub fn image_stem(arch: &str, reference: &str) -> String {
    stem(arch, &format!("image-{}", image_name(reference)))
}

/// Returns both paths of the documents of an image for an architecture, with their media types.
pub fn image_documents(arch: Arch, reference: &str) -> [(String, &'static str); 2] {
    let [cyclonedx, spdx] = paths(&image_stem(arch.name(), reference));
    [(cyclonedx, cyclonedx::MEDIA_TYPE), (spdx, spdx::MEDIA_TYPE)]
}

/// Returns the paths of both documents, CycloneDX first.
pub fn paths(stem: &str) -> [String; 2] {
    [format!("{stem}.cdx.json"), format!("{stem}.spdx.json")]
}
