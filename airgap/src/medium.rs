//! The files of `airgap/` for one architecture: archives, lists, and the checksum file that names every other one.
//!
//! A release and an applied delta write the same files, so that each medium passes the same checks.

use std::collections::BTreeMap;

use archive::{digest::sha256, layout::Layout};

use crate::{delta::Archive, lists};

/// Returns the files by their path on the medium, made from an architecture's slice, its archive and the text of [`lists::ALL_DIGESTS`].
///
/// Lists that do not depend on the architecture are the same for each, and each checksum file names them.
pub fn files(
    architecture: &str,
    part: &Layout,
    archive: Archive,
    all_digests: &str,
) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let tags = lists::references(part);
    for list in lists::tag_lists(architecture) {
        files.insert(list, tags.clone().into_bytes());
    }
    let all_digests = all_digests.to_owned().into_bytes();
    files.insert(lists::ALL_DIGESTS.to_owned(), all_digests);
    let digests = lists::digests(part).into_bytes();
    files.insert(lists::digest_list(architecture), digests);
    let mut sums: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)))
        .collect();
    let [zst, gz] = lists::archives(architecture);
    sums.push((zst.clone(), archive.full.zst));
    sums.push((gz.clone(), archive.full.gz));
    files.insert(zst, archive.zst);
    files.insert(gz, archive.gz);
    let sums = lists::sums(sums.iter().map(|(name, digest)| (name.as_str(), *digest)));
    files.insert(lists::sums_name(architecture), sums.into_bytes());
    files
}
