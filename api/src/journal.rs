//! The journal of DELs that the shim could not deliver: the shim writes them, the daemon replays them.
//!
//! A file of the journal is the [`Request`](crate::Request) that the shim would have sent to `/cni`, with the variables of CNI only.

use std::path::{Path, PathBuf};

use cni::{ContainerId, IfName};

use crate::PRIVATE_DIR;

/// The journal's directory below [`PRIVATE_DIR`].
pub const PENDING_DIR: &str = "pending";
/// The suffix of complete files; temporary files have another.
pub const SUFFIX: &str = ".json";

/// Returns the journal's directory below a state directory.
pub fn dir(cni_dir: &Path) -> PathBuf {
    cni_dir.join(PRIVATE_DIR).join(PENDING_DIR)
}

/// Returns the file name for one attachment. The same DEL twice has one file; the same attachment with another namespace has another.
pub fn file_name(container_id: &ContainerId, ifname: &IfName, netns: &str) -> String {
    format!(
        "{container_id}-{ifname}-{:016x}{SUFFIX}",
        hash(netns.as_bytes())
    )
}

/// Returns whether a name in the journal's directory is that of a complete file.
pub fn is_entry(file_name: &str) -> bool {
    !file_name.starts_with('.') && file_name.ends_with(SUFFIX)
}

/// FNV-1a, which only has to keep namespaces apart.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_stable_and_distinct() {
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
