//! Fuzz targets of archives and layouts that strangers made. `docs/contributing/testing.md` says how they run.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use crate::{
    digest::sha256,
    gzip,
    layout::{Layout, blob_path},
    read::{Limits, entries},
    tar::{Kind, is_plain, write_in_order},
    verify,
};

const LIMITS: Limits = Limits {
    entries: 16,
    total: 1 << 16,
    links: true,
};

/// A tar archive.
pub fn tars(input: &[u8]) -> bool {
    let Ok(found) = entries(input, &LIMITS) else {
        return false;
    };
    assert!(found.len() <= LIMITS.entries);
    let sizes = found.iter().map(|entry| match &entry.kind {
        Kind::File(bytes) => bytes.len() as u64,
        Kind::Dir | Kind::Link(_) => 0,
    });
    assert!(sizes.sum::<u64>() <= LIMITS.total);
    for (nth, entry) in found.iter().enumerate() {
        assert!(is_plain(&entry.path), "{}", entry.path);
        for other in &found[..nth] {
            let below = entry.path.strip_prefix(&other.path);
            let is_below = below.is_some_and(|rest| rest.starts_with('/'));
            assert!(entry.path != other.path && (!is_below || other.kind == Kind::Dir));
        }
    }
    // Long names can be read but not written.
    if let Ok(written) = write_in_order(&found) {
        let again = entries(&written, &LIMITS).expect("an archive is read as it is written");
        assert_eq!(again, found);
    }
    true
}

/// A gzip stream.
pub fn gzips(input: &[u8]) -> bool {
    const MAX: u64 = 1 << 16;
    let bytes = gzip::decompress(input, MAX);
    bytes.is_ok_and(|bytes| {
        assert!(bytes.len() as u64 <= MAX);
        true
    })
}

/// A layout: its blobs in the order in which they name each other, each ended by a zero byte, then its index. [`expand`] says how they
/// name each other.
pub fn layouts(input: &[u8]) -> bool {
    let mut parts = expand(input);
    let Some(index) = parts.pop() else {
        return false;
    };
    let mut files = vec![("index.json".to_owned(), index)];
    files.push(("oci-layout".to_owned(), crate::layout::MARKER.to_vec()));
    let blobs = parts
        .into_iter()
        .map(|blob| (blob_path(&sha256(&blob)), blob));
    files.extend(blobs);
    let Ok(layout) = Layout::from_files(files) else {
        return false;
    };
    let again = Layout::from_files(layout.files()).expect("a layout is read as it is written");
    assert_eq!(again, layout);
    let Ok(images) = verify::images(&layout) else {
        return false;
    };
    assert_eq!(images.len(), layout.images.len());
    for platform in images.iter().flat_map(|image| &image.platforms) {
        for blob in [&platform.manifest, &platform.config] {
            assert_eq!(layout.blobs[&blob.digest].len() as u64, blob.size);
        }
        for layer in &platform.layers {
            let bytes =
                verify::unpack(layer, &layout.blobs[&layer.blob.digest]).expect("it was verified");
            assert_eq!(sha256(&bytes), layer.diff_id);
        }
    }
    true
}

/// Splits an input at its zero bytes. In each part, `@N` becomes the digest of the part before it with that number, and `#N` its
/// length: no fuzzer finds a digest.
fn expand(input: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for part in input.split(|byte| *byte == 0).take(10) {
        let mut expanded = Vec::new();
        let mut rest = part;
        while let [byte, after @ ..] = rest {
            let digit = after.first().map(|digit| digit.wrapping_sub(b'0'));
            let named = digit.and_then(|digit| parts.get(usize::from(digit)));
            let text = match (byte, named) {
                (b'@', Some(named)) => sha256(named).to_string(),
                (b'#', Some(named)) => named.len().to_string(),
                _ => {
                    expanded.push(*byte);
                    rest = after;
                    continue;
                }
            };
            expanded.extend_from_slice(text.as_bytes());
            rest = &after[1..];
        }
        parts.push(expanded);
    }
    parts
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::{corpus::run, tar::with_checksums};

    use super::*;

    #[test]
    fn tars() {
        run("archive_tars", |input| super::tars(&with_checksums(input)));
    }

    #[test]
    fn gzips() {
        run("archive_gzips", super::gzips);
    }

    #[test]
    fn layouts() {
        run("archive_layouts", super::layouts);
    }

    #[test]
    fn parts_name_those_before_them() {
        let parts = expand(b"one\0@0 #0 @1 #");
        let first = sha256(b"one");
        assert_eq!(parts[1], format!("{first} 3 @1 #").into_bytes());
    }
}
