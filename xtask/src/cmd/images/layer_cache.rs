//! A cache of compressed layers, since compression takes most of the time of a release whose programs did not change.

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::SystemTime,
};

use airgap::zstd::{self, Settings};
use archive::digest::sha256;

use crate::tree::Tree;

/// Files that are kept: those of some releases for every architecture.
const KEPT: usize = 32;

/// Compresses a layer, or takes it from the directory if the bytes there still unpack to it.
///
/// A name has all that the bytes follow from: the layer, the compressor's version and its settings.
pub(super) fn compress(dir: &Path, tar: &[u8], settings: Settings) -> io::Result<Vec<u8>> {
    let name = format!("{}-{}.zst", sha256(tar).hex(), settings.fingerprint());
    let path = dir.join(&name);
    if let Ok(packed) = fs::read(&path)
        && zstd::decompress(&packed, tar.len() as u64).is_ok_and(|unpacked| unpacked == tar)
    {
        // Best effort: it is only removed earlier otherwise.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(packed);
    }
    let packed = zstd::compress(tar, settings)?;
    let mut tree = Tree::default();
    tree.add(name, packed.clone());
    tree.update(dir, &[]).map_err(io::Error::other)?;
    remove_old(dir)?;
    Ok(packed)
}

/// Removes what was not used for the longest time, beyond [`KEPT`] files.
fn remove_old(dir: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let surplus = files.len().saturating_sub(KEPT);
    for (_, path) in &files[..surplus] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FAST: Settings = Settings {
        level: 1,
        window_log: 20,
        job: 0,
    };

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn layers_of_all_architectures_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let layers: [&[u8]; 3] = [b"amd64", b"arm64", b"arm"];
        let packed = layers.map(|layer| compress(dir.path(), layer, FAST).unwrap());
        let stored = names(dir.path());
        assert_eq!(stored.len(), 3);
        let again = layers.map(|layer| compress(dir.path(), layer, FAST).unwrap());
        assert_eq!(again, packed);
        assert_eq!(names(dir.path()), stored);
    }

    #[test]
    fn other_settings_and_damaged_files_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let packed = compress(dir.path(), b"layer", FAST).unwrap();
        let [name] = &names(dir.path())[..] else {
            panic!("one file")
        };
        assert!(name.contains("-zstd1."), "{name}");
        fs::write(dir.path().join(name), "damaged").unwrap();
        assert_eq!(compress(dir.path(), b"layer", FAST).unwrap(), packed);
        for other in [
            Settings { level: 2, ..FAST },
            Settings {
                window_log: 21,
                ..FAST
            },
            Settings {
                job: 1 << 20,
                ..FAST
            },
        ] {
            let before = names(dir.path()).len();
            compress(dir.path(), b"layer", other).unwrap();
            assert_eq!(names(dir.path()).len(), before + 1, "{other:?}");
        }
    }

    #[test]
    fn longest_unused_layers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::UNIX_EPOCH;
        for number in 0..KEPT {
            let path = dir.path().join(format!("{number}"));
            let time = long_ago + Duration::from_secs(number as u64);
            File::create(path).unwrap().set_modified(time).unwrap();
        }
        compress(dir.path(), b"layer", FAST).unwrap();
        let stored = names(dir.path());
        assert_eq!(stored.len(), KEPT);
        assert!(!stored.contains(&"0".to_owned()), "{stored:?}");
        assert!(stored.contains(&"1".to_owned()), "{stored:?}");
    }
}
