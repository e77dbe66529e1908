//! Image archives of a release: a folder of them checked against its sums, and put where the distro imports from.

mod archive;
mod folder;
mod put;

pub(crate) use self::{
    archive::{of_node, references, sound},
    folder::{Folder, arch, hash},
    put::{CACHE, install},
};

/// Below the data directory: what the distro imports before its kubelet starts.
pub(crate) const IMAGES_DIR: &str = "agent/images";
/// What every archive of a release begins with.
pub(crate) const STEM: &str = "multus-airgap-";
/// The endings of archives, the better one first.
pub(crate) const ENDINGS: [&str; 2] = [".tar.zst", ".tar.gz"];

/// An archive's name without its ending.
pub(crate) fn stem(name: &str) -> Option<&str> {
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending))
}
