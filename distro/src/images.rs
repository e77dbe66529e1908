//! Image archives of a release: a directory of them is checked against its checksums, and copied to where the distro imports from.

mod archive;
mod archive_dir;
mod install;

pub(crate) use self::{
    archive::{images_for_this_node, references, verify_archives},
    archive_dir::{ArchiveDir, arch, hash},
    install::install,
};

/// Below the data directory: the distro imports archives from here before its kubelet starts.
pub(crate) const IMAGES_DIR: &str = "agent/images";
/// The beginning of the name of every archive of a release.
pub(crate) const STEM: &str = "multus-airgap-";
/// The endings of archives, the smaller form first.
pub(crate) const ENDINGS: [&str; 2] = [".tar.zst", ".tar.gz"];

/// Returns whether this is the name of the program for operators of some architecture, which no node needs.
pub(crate) fn is_program(name: &str) -> bool {
    let arch = name.strip_prefix(STEM);
    arch.is_some_and(|arch| !arch.is_empty() && !arch.contains(['-', '.']))
}

/// Returns an archive's name without its ending.
pub(crate) fn stem(name: &str) -> Option<&str> {
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending))
}
