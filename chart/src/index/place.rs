//! Where archives and their unpacked files lie in a charts repository.

/// How a repository is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// As rke2-charts: a chart and its CRD chart share a folder.
    Rke2,
    /// As k3s-charts: every chart has a folder of its own.
    K3s,
}

impl Layout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Rke2, Self::K3s];

    /// The archive's path.
    pub fn asset(self, name: &str, version: &str) -> String {
        format!("assets/{}/{name}-{version}.tgz", self.package(name))
    }

    /// The folder that it is unpacked to.
    pub fn folder(self, name: &str, version: &str) -> String {
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
    fn each_has_its_own_places() {
        let places =
            |layout: Layout, name: &str| (layout.asset(name, "v1"), layout.folder(name, "v1"));
        for (layout, name, asset, folder) in [
            (Layout::Rke2, "a", "assets/a/a-v1.tgz", "charts/a/a/v1"),
            (
                Layout::Rke2,
                "a-crd",
                "assets/a/a-crd-v1.tgz",
                "charts/a/a-crd/v1",
            ),
            (Layout::K3s, "a", "assets/a/a-v1.tgz", "charts/a/v1"),
            (
                Layout::K3s,
                "a-crd",
                "assets/a-crd/a-crd-v1.tgz",
                "charts/a-crd/v1",
            ),
        ] {
            assert_eq!(places(layout, name), (asset.to_owned(), folder.to_owned()));
        }
    }
}
