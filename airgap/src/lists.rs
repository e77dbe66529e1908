//! Image lists and checksum files, in the forms that existing tools read.

use archive::{digest::Digest, layout::Layout, oci};

/// The list of all architectures.
pub const ALL_IMAGES: &str = "multus-images.txt";

/// The name of an architecture's archive, without what says how it is compressed.
pub fn archive_name(architecture: &str) -> String {
    format!("multus-airgap-images-{architecture}.tar")
}

/// What an architecture's sums file names: both forms of its archive, and its list.
pub fn names(architecture: &str) -> [String; 3] {
    let archive = archive_name(architecture);
    [
        format!("{archive}.zst"),
        format!("{archive}.gz"),
        format!("multus-images.linux-{architecture}.txt"),
    ]
}

/// The same names without digests, as the distros' own lists are written.
pub fn names_alone(layout: &Layout) -> String {
    let text = references(layout);
    let names = text.lines().filter_map(|line| line.split_once('@'));
    let lines: Vec<_> = names.map(|(name, _)| format!("{name}\n")).collect();
    lines.concat()
}

/// One full reference a line, with tag and digest, sorted. The digest is that of what the layout's name points at.
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

/// What `sha256sum -c` reads: hash, two spaces, name; sorted by name.
pub fn sums<'a>(files: impl IntoIterator<Item = (&'a str, Digest)>) -> String {
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort();
    let lines = files
        .into_iter()
        .map(|(name, digest)| format!("{}  {name}\n", digest.hex()));
    lines.collect::<Vec<_>>().concat()
}

/// Reads what [`sums`] writes. `None` for any other form, order or a repeated name.
pub fn parse_sums(text: &str) -> Option<Vec<(String, Digest)>> {
    let lines = text.lines().map(|line| {
        let (hex, name) = line.split_once("  ")?;
        Some((name.to_owned(), Digest::from_hex(hex).ok()?))
    });
    let files: Vec<_> = lines.collect::<Option<_>>()?;
    let is_ours = sums(files.iter().map(|(name, digest)| (name.as_str(), *digest))) == text
        && files.windows(2).all(|pair| pair[0].0 < pair[1].0);
    is_ours.then_some(files)
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;

    use super::*;

    #[test]
    fn sums_come_back_and_other_forms_do_not() {
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
