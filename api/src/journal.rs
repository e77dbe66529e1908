//! DEL requests that came while no daemon answered: the shim leaves them here, the daemon replays them.
//!
//! A file of the journal is a [`Request`](crate::Request) as it would have gone to `/cni`, without the variables that are not CNI's.

use std::path::{Path, PathBuf};

use cni::{ContainerId, IfName};

use crate::PRIVATE_DIR;

/// The journal's folder below [`PRIVATE_DIR`].
pub const PENDING_DIR: &str = "pending";
/// How a file of the journal ends; temporary files end otherwise.
pub const SUFFIX: &str = ".json";

/// The journal of a state directory.
pub fn dir(cni_dir: &Path) -> PathBuf {
    cni_dir.join(PRIVATE_DIR).join(PENDING_DIR)
}

/// The file for one attachment: the same DEL twice is one file, and one for another namespace is another.
pub fn file_name(container_id: &ContainerId, ifname: &IfName, netns: &str) -> String {
    format!(
        "{container_id}-{ifname}-{:016x}{SUFFIX}",
        hash(netns.as_bytes())
    )
}

/// Whether a name in the journal's folder is a complete file.
pub fn is_entry(file_name: &str) -> bool {
    !file_name.starts_with('.') && file_name.ends_with(SUFFIX)
}

/// FNV-1a: it tells apart, nothing more.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable_and_tell_apart() {
        let id = ContainerId::parse("0f1e").unwrap();
        let ifname = IfName::parse("eth0").unwrap();
        assert_eq!(
            file_name(&id, &ifname, ""),
            "0f1e-eth0-cbf29ce484222325.json"
        );
        assert_eq!(
            file_name(&id, &ifname, "a"),
            "0f1e-eth0-af63dc4c8601ec8c.json"
        );
        assert!(is_entry(&file_name(&id, &ifname, "a")));
        assert!(!is_entry(".0f1e.json") && !is_entry("x.tmp"));
        assert_eq!(
            dir(Path::new("/var/lib/cni/multus")),
            Path::new("/var/lib/cni/multus/.multus-rs/pending")
        );
    }
}
