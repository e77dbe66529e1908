//! The paths of archives and unpacked charts in a charts repository.

/// The layout of a charts repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryLayout {
    /// The layout of rke2-charts: a chart and its CRD chart share a directory.
    Rke2,
    /// The layout of k3s-charts: every chart has its own directory.
    K3s,
}

impl RepositoryLayout {
    /// Both layouts.
    pub const ALL: [Self; 2] = [Self::Rke2, Self::K3s];

    /// Returns the name that the command line has for the layout.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rke2 => "rke2",
            Self::K3s => "k3s",
        }
    }

    /// Returns the path of an archive.
    pub fn asset(self, name: &str, version: &str) -> String {
        format!("assets/{}/{name}-{version}.tgz", self.package(name))
    }

    /// Returns the directory of an unpacked chart.
    pub fn directory(self, name: &str, version: &str) -> String {
        match self {
            Self::Rke2 => format!("charts/{}/{name}/{version}", self.package(name)),
            Self::K3s => format!("charts/{name}/{version}"),
        }
    }

    fn package(self, name: &str) -> &str {
        match self {
            Self::Rke2 => name.strip_suffix("-crd").unwrap_or(name),
            Self::K3s => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layout_has_its_own_paths() {
        use RepositoryLayout::{K3s, Rke2};
        for (layout, name, asset, directory) in [
            (Rke2, "a", "assets/a/a-v1.tgz", "charts/a/a/v1"),
            (Rke2, "a-crd", "assets/a/a-crd-v1.tgz", "charts/a/a-crd/v1"),
            (K3s, "a", "assets/a/a-v1.tgz", "charts/a/v1"),
            (K3s, "a-crd", "assets/a-crd/a-crd-v1.tgz", "charts/a-crd/v1"),
        ] {
            assert_eq!(layout.asset(name, "v1"), asset);
            assert_eq!(layout.directory(name, "v1"), directory);
        }
    }
}
