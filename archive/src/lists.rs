//! Image lists and checksum files, in the forms that existing tools read, and the names that they and what they are about have.

use std::collections::BTreeMap;

use crate::{
    digest::Digest,
    oci::{self, Descriptor},
};

/// The list for all architectures, with tags: the form that skopeo and the distros' scripts read.
pub const ALL_IMAGES: &str = "multus-images.txt";
/// The list for all architectures, with tags and the digests that a registry has for them.
pub const ALL_DIGESTS: &str = "multus-images-digests.txt";
/// The list for all architectures under the name that K3s' own tree uses.
pub const K3S: &str = "k3s/image-list-multus.txt";
/// The ending of the signature of a checksum file.
pub const SIGNATURE: &str = ".sig";

/// Returns the name of an architecture's archive.
pub fn archive_name(architecture: &str) -> String {
    format!("multus-airgap-images-{architecture}.tar")
}

/// Returns the name of the program for an operator's machine of this architecture.
pub fn program_name(architecture: &str) -> String {
    format!("multus-airgap-{architecture}")
}

/// Returns the name of an architecture's checksum file.
pub fn sums_name(architecture: &str) -> String {
    format!("sha256sum-{architecture}.txt")
}

/// Returns the architecture in the name of a checksum file, or `None` for any other name.
pub fn architecture_of_sums(name: &str) -> Option<&str> {
    name.strip_prefix("sha256sum-")?.strip_suffix(".txt")
}

/// Returns the architecture in the name of an archive, or `None` for any other name.
pub fn architecture_of_archive(name: &str) -> Option<&str> {
    name.strip_prefix("multus-airgap-images-")?
        .strip_suffix(".tar")
}

/// Returns the names of the lists with tags that an architecture's checksum file names.
pub fn tag_lists(architecture: &str) -> [String; 4] {
    [
        ALL_IMAGES.to_owned(),
        K3S.to_owned(),
        format!("multus-images.linux-{architecture}.txt"),
        format!("rke2/rke2-images-multus.linux-{architecture}.txt"),
    ]
}

/// Returns the name of an architecture's list with tags and the digests that its archive has for them.
pub fn digest_list(architecture: &str) -> String {
    format!("multus-images-digests.linux-{architecture}.txt")
}

/// Returns the names of all lists that an architecture's checksum file names.
pub fn names(architecture: &str) -> Vec<String> {
    let digests = [ALL_DIGESTS.to_owned(), digest_list(architecture)];
    tag_lists(architecture).into_iter().chain(digests).collect()
}

/// Returns one name with its tag per line, sorted.
pub fn references(images: &[Descriptor]) -> String {
    let mut names: Vec<_> = images
        .iter()
        .filter_map(|image| Some(format!("{}\n", image.annotations.get(oci::REF_NAME)?)))
        .collect();
    names.sort();
    names.concat()
}

/// Returns one full reference per line, with tag and digest, sorted. The digest is that of the descriptor with the name.
pub fn digests(images: &[Descriptor]) -> String {
    let mut lines: Vec<String> = images
        .iter()
        .filter_map(|image| {
            let name = image.annotations.get(oci::REF_NAME)?;
            Some(format!("{name}@{}\n", image.digest))
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// Returns the names in a list with digests, as a list with tags has them.
pub fn without_digests(list: &str) -> String {
    let names = list.lines().map(|line| {
        let name = line.split_once('@').map_or(line, |(name, _)| name);
        format!("{}\n", name.trim_end())
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.concat()
}

/// Returns the text of every list of an architecture by its name, made from its images and the text of [`ALL_DIGESTS`].
pub fn texts(
    architecture: &str,
    images: &[Descriptor],
    all_digests: &str,
) -> BTreeMap<String, String> {
    let tags = references(images);
    let tag_lists = tag_lists(architecture).map(|name| (name, tags.clone()));
    let mut texts = BTreeMap::from(tag_lists);
    texts.insert(ALL_DIGESTS.to_owned(), all_digests.to_owned());
    texts.insert(digest_list(architecture), digests(images));
    texts
}

/// Returns the text that `sha256sum -c` reads: hash, two spaces, name; sorted by name.
pub fn sums<'a>(files: impl IntoIterator<Item = (&'a str, Digest)>) -> String {
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort();
    let lines = files
        .into_iter()
        .map(|(name, digest)| format!("{}  {name}\n", digest.hex()));
    lines.collect::<Vec<_>>().concat()
}

/// Parses the text that [`sums`] returns, or returns `None` for any other form, another order or a repeated name.
pub fn parse_sums(text: &str) -> Option<Vec<(String, Digest)>> {
    let lines = text.lines().map(|line| {
        let (hex, name) = line.split_once("  ")?;
        Some((name.to_owned(), Digest::from_hex(hex).ok()?))
    });
    let files: Vec<_> = lines.collect::<Option<_>>()?;
    let is_exact = sums(files.iter().map(|(name, digest)| (name.as_str(), *digest))) == text
        && files.windows(2).all(|pair| pair[0].0 < pair[1].0);
    is_exact.then_some(files)
}

#[cfg(test)]
mod tests {
    use crate::digest::sha256;

    use super::*;

    #[test]
    fn sums_are_parsed_and_other_forms_are_refused() {
        let text = sums([("b", sha256(b"b")), ("a", sha256(b"a"))]);
        let parsed = parse_sums(&text).unwrap();
        assert_eq!(
            parsed,
            [("a".into(), sha256(b"a")), ("b".into(), sha256(b"b"))]
        );
        let reversed: Vec<_> = text.split_inclusive('\n').rev().collect();
        let reversed = reversed.concat();
        for bad in [&text.replace("  ", " *"), &reversed, &text.repeat(2), "x"] {
            assert_eq!(parse_sums(bad), None, "{bad}");
        }
    }
}
