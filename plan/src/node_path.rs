//! Paths in configurations, as the node names them.

use std::path::{Path, PathBuf};

/// What upstream's charts mounted below `/host` or `/hostroot` is meant without that: here one mount shows the whole node.
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
    fn mounts_of_the_node_are_the_node() {
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
