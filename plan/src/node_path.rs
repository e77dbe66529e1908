//! Paths of the node in configurations.

use std::path::{Path, PathBuf};

/// Removes the prefix `/host` or `/hostroot`, below which upstream's charts mount directories of the node: ours mounts the complete node.
pub fn node_path(text: &str) -> PathBuf {
    let path = Path::new(text);
    ["/hostroot", "/host"]
        .iter()
        .find_map(|prefix| path.strip_prefix(prefix).ok())
        .map_or_else(|| path.to_owned(), |rest| Path::new("/").join(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_mounts_are_removed() {
        for (text, expected) in [
            ("/host/etc/cni/net.d", "/etc/cni/net.d"),
            ("/hostroot/opt/cni/bin/", "/opt/cni/bin"),
            ("/hostroot", "/"),
            ("/hostile/etc", "/hostile/etc"),
            ("/etc/host/x", "/etc/host/x"),
            ("host/x", "host/x"),
        ] {
            assert_eq!(node_path(text), Path::new(expected), "{text}");
        }
    }
}
