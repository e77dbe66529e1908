//! The first difference of two releases, down to the byte and inside archives. Causes come before their consequences.

use std::fmt::Write as _;

use archive::{
    gzip,
    layout::Layout,
    read::{self, Limits},
    tar::{Entry, Kind},
    verify::{self, Image, MAX_UNPACKED, PlatformImage},
};

use crate::tree::{File, Tree};

const LIMITS: Limits = Limits {
    entries: 100_000,
    total: MAX_UNPACKED,
    links: true,
};

/// Directories in the order of cause and effect: a program that differs makes its layer, its archive and all checksums differ.
const CAUSES: [&str; 13] = [
    "bin/",
    "charts/",
    "manifests/",
    "bindata/",
    "completions/",
    "man/",
    "LICENSE",
    "THIRD-PARTY.txt",
    "oci/",
    "airgap/",
    "sbom/",
    "release.json",
    "SHA256SUMS",
];
/// The number of bytes to print.
const SHOWN: usize = 8;

/// Describes the first difference, or returns `None` when every byte is the same.
pub(crate) fn first(one: &Tree, other: &Tree) -> Option<String> {
    let mut paths: Vec<_> = one.0.keys().chain(other.0.keys()).collect();
    paths.sort_by_key(|path| (rank(path), path.as_str()));
    paths.dedup();
    let path = paths
        .into_iter()
        .find(|path| one.0.get(*path) != other.0.get(*path))?;
    if path.starts_with("oci/")
        && let Some(text) = compare_images(one, other)
    {
        return Some(text);
    }
    Some(match (one.0.get(path), other.0.get(path)) {
        (Some(one), Some(other)) => compare_files(path, one, other),
        (Some(_), None) => format!("{path}, which only the first has"),
        _ => format!("{path}, which only the second has"),
    })
}

fn rank(path: &str) -> usize {
    let found = CAUSES.iter().position(|cause| path.starts_with(cause));
    found.unwrap_or(CAUSES.len())
}

fn compare_files(path: &str, one: &File, other: &File) -> String {
    if one.bytes == other.bytes {
        return format!("{path}: only one of them may be executed");
    }
    compare_bytes(path, &one.bytes, &other.bytes)
}

/// Compares bytes, those of archives by their entries, however deeply they are nested.
fn compare_bytes(path: &str, one: &[u8], other: &[u8]) -> String {
    let unpacked = (unpack(path, one), unpack(path, other));
    if let (Some(one), Some(other)) = unpacked
        && one != other
    {
        let entries = (
            read::entries(&one, &LIMITS).ok(),
            read::entries(&other, &LIMITS).ok(),
        );
        return match entries {
            (Some(one), Some(other)) => compare_entries(path, &one, &other),
            _ => at_byte(&format!("{path}, uncompressed,"), &one, &other),
        };
    }
    at_byte(path, one, other)
}

fn unpack(path: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    match path.rsplit('.').next() {
        Some("tar") => Some(bytes.to_vec()),
        Some("gz" | "tgz") => gzip::decompress(bytes, MAX_UNPACKED).ok(),
        _ => None,
    }
}

fn compare_entries(path: &str, one: &[Entry], other: &[Entry]) -> String {
    for (first, second) in one.iter().zip(other) {
        let name = format!("{path}: entry {}", first.path);
        if first.path != second.path {
            return format!("{name}, where the second has {}", second.path);
        }
        if first.mode != second.mode {
            return format!("{name}: modes {:o} and {:o}", first.mode, second.mode);
        }
        match (&first.kind, &second.kind) {
            (Kind::File(one), Kind::File(other)) if one != other => {
                return compare_bytes(&name, one, other);
            }
            (one, other) if one != other => return format!("{name}: not of the same kind"),
            _ => {}
        }
    }
    let longer = if one.len() > other.len() { one } else { other };
    match longer.get(one.len().min(other.len())) {
        Some(entry) => format!("{path}: entry {}, which only one has", entry.path),
        None => format!("{path}: the headers of its entries"),
    }
}

fn at_byte(path: &str, one: &[u8], other: &[u8]) -> String {
    let pairs = one.iter().zip(other);
    let at = pairs.take_while(|(one, other)| one == other).count();
    let show = |bytes: &[u8]| {
        let rest = bytes.get(at..).unwrap_or_default();
        let rest = &rest[..rest.len().min(SHOWN)];
        if rest.is_empty() {
            return "its end".to_owned();
        }
        rest.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    format!("{path} at byte {at}: {} and {}", show(one), show(other))
}

/// Compares images from the index down, since the names of blobs follow from their bytes.
fn compare_images(one: &Tree, other: &Tree) -> Option<String> {
    let (one, other) = (images(one)?, images(other)?);
    for (first, second) in one.0.iter().zip(&other.0) {
        if first.reference != second.reference {
            return Some(format!(
                "oci/index.json: image {}, where the second has {}",
                first.reference, second.reference
            ));
        }
        for (own, their) in first.platforms.iter().zip(&second.platforms) {
            let name = format!("oci, {} for {}", first.reference, own.platform.architecture);
            if let Some(text) = compare_platforms(&name, (own, &one.1), (their, &other.1)) {
                return Some(text);
            }
        }
    }
    None
}

fn compare_platforms(
    name: &str,
    (own, own_layout): (&PlatformImage, &Layout),
    (their, their_layout): (&PlatformImage, &Layout),
) -> Option<String> {
    for (layer, (first, second)) in own.layers.iter().zip(&their.layers).enumerate() {
        let name = format!("{name}: layer {layer}");
        let (one, other) = (&first.blob.digest, &second.blob.digest);
        let (one, other) = (own_layout.blobs.get(one)?, their_layout.blobs.get(other)?);
        if first.diff_id != second.diff_id {
            let one = verify::unpack(first, one).ok()?;
            let other = verify::unpack(second, other).ok()?;
            let entries = (read::entries(&one, &LIMITS), read::entries(&other, &LIMITS));
            return Some(match entries {
                (Ok(one), Ok(other)) => compare_entries(&name, &one, &other),
                _ => at_byte(&name, &one, &other),
            });
        }
        if one != other {
            return Some(at_byte(&format!("{name}, compressed,"), one, other));
        }
    }
    for (what, one, other) in [
        ("configuration", &own.config, &their.config),
        ("manifest", &own.manifest, &their.manifest),
    ] {
        if one.digest != other.digest {
            let one = own_layout.blobs.get(&one.digest)?;
            let other = their_layout.blobs.get(&other.digest)?;
            return Some(at_byte(&format!("{name}: its {what}"), one, other));
        }
    }
    None
}

fn images(tree: &Tree) -> Option<(Vec<Image>, Layout)> {
    let files = tree.below("oci/");
    let files = files.map(|(path, file)| (path.to_owned(), file.bytes.clone()));
    let layout = Layout::from_files(files).ok()?;
    let images = verify::images(&layout).ok()?;
    Some((images, layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> Tree {
        let mut tree = Tree::default();
        for (path, bytes) in files {
            tree.add(*path, *bytes);
        }
        tree
    }

    #[track_caller]
    fn check(one: &[(&str, &[u8])], other: &[(&str, &[u8])], expected: &str) {
        let found = first(&tree(one), &tree(other));
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[test]
    fn cause_is_named_before_its_consequences() {
        check(
            &[
                ("airgap/a", b"1"),
                ("bin/x", b"same so far"),
                ("SHA256SUMS", b"1"),
            ],
            &[
                ("airgap/a", b"2"),
                ("bin/x", b"same so long"),
                ("SHA256SUMS", b"2"),
            ],
            "bin/x at byte 8: 666172 and 6c6f6e67",
        );
        check(
            &[("a", b"12")],
            &[("a", b"1")],
            "a at byte 1: 32 and its end",
        );
        check(&[("a", b"1")], &[], "a, which only the first has");
        check(&[], &[("a", b"1")], "a, which only the second has");
        let same = tree(&[("a", b"1")]);
        assert_eq!(first(&same, &same), None);
    }

    #[test]
    fn archives_are_compared_by_their_entries() {
        let tar = |entries: &[Entry]| archive::tar::write_in_order(entries).unwrap();
        let chart = |text: &str| {
            gzip::compress(&tar(&[
                Entry::file("c/Chart.yaml", 0o644, "name: c"),
                Entry::file("c/values.yaml", 0o644, text),
            ]))
        };
        let (one, other) = (chart("a: 1\n"), chart("a: 2\n"));
        check(
            &[("charts/c.tgz", &one)],
            &[("charts/c.tgz", &other)],
            "charts/c.tgz: entry c/values.yaml at byte 3: 310a and 320a",
        );
        // An archive in an archive.
        let pack = |tgz: &[u8]| tar(&[Entry::file("c.tgz", 0o644, tgz)]);
        check(
            &[("airgap/a.tar", &pack(&one))],
            &[("airgap/a.tar", &pack(&other))],
            "airgap/a.tar: entry c.tgz: entry c/values.yaml at byte 3: 310a and 320a",
        );
        let fewer = gzip::compress(&tar(&[Entry::file("c/Chart.yaml", 0o644, "name: c")]));
        check(
            &[("charts/c.tgz", &one)],
            &[("charts/c.tgz", &fewer)],
            "charts/c.tgz: entry c/values.yaml, which only one has",
        );
        let mode = gzip::compress(&tar(&[Entry::file("c/Chart.yaml", 0o755, "name: c")]));
        check(
            &[("charts/c.tgz", &fewer)],
            &[("charts/c.tgz", &mode)],
            "charts/c.tgz: entry c/Chart.yaml: modes 644 and 755",
        );
    }
}
