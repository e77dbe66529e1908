//! Image lists and checksum files, in the forms that existing tools read.

use archive::{digest::Digest, layout::Layout, oci};

/// The name of the list for all architectures.
pub const ALL_IMAGES: &str = "multus-images.txt";

/// Returns the name of an architecture's archive, without the ending of its compression.
pub fn archive_name(architecture: &str) -> String {
    format!("multus-airgap-images-{architecture}.tar")
}

/// Returns the names in an architecture's checksum file: both forms of its archive, and its list.
pub fn names(architecture: &str) -> [String; 3] {
    let archive = archive_name(architecture);
    [
        format!("{archive}.zst"),
        format!("{archive}.gz"),
        format!("multus-images.linux-{architecture}.txt"),
    ]
}

/// Returns the references without digests, the form of the distros' own lists.
pub fn names_alone(layout: &Layout) -> String {
    let text = references(layout);
    let names = text.lines().filter_map(|line| line.split_once('@'));
    let lines: Vec<_> = names.map(|(name, _)| format!("{name}\n")).collect();
    lines.concat()
}

/// Returns one full reference per line, with tag and digest, sorted. The digest is the one that the layout has for the name.
pub fn references(layout: &Layout) -> String {
    let mut lines: Vec<String> = layout
        .images
        .iter()
        .filter_map(|image| {
            let name = image.annotations.get(oci::REF_NAME)?;
            Some(format!("{name}@{}\n", image.digest))
        })
        .collect();
    lines.sort();
    lines.concat()
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
    use archive::digest::sha256;

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
