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

    /// Returns the layout of a repository with archives under these paths: what the directories of CRD charts show, or without any the
    /// distros in the names of charts. `None` where they show neither, or both.
    pub fn from_assets<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let by_directory = paths.clone().filter_map(Self::by_directory);
        let by_name = paths.filter_map(|path| Self::by_name(path.rsplit('/').next()?));
        let mut found = by_directory.collect::<Vec<_>>();
        if found.is_empty() {
            found = by_name.collect();
        }
        let first = found.first().copied()?;
        found.iter().all(|layout| *layout == first).then_some(first)
    }

    /// Returns the only layout in which an archive has this path.
    fn by_directory(path: &str) -> Option<Self> {
        let (package, file) = path.strip_prefix("assets/")?.split_once('/')?;
        let rest = file.strip_prefix(package)?.strip_prefix('-')?;
        if rest.starts_with("crd-") {
            Some(Self::Rke2)
        } else if package.ends_with("-crd") {
            Some(Self::K3s)
        } else {
            None
        }
    }

    fn by_name(file: &str) -> Option<Self> {
        let has_prefix = |layout: &Self| {
            let rest = file.strip_prefix(layout.as_str());
            rest.is_some_and(|rest| rest.starts_with('-'))
        };
        Self::ALL.into_iter().find(has_prefix)
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

    #[test]
    fn paths_of_archives_show_the_layout() {
        use RepositoryLayout::{K3s, Rke2};
        let check = |paths: &[&str], expected| {
            let found = RepositoryLayout::from_assets(paths.iter().copied());
            assert_eq!(found, expected, "{paths:?}");
        };
        for layout in RepositoryLayout::ALL {
            let asset = |name| layout.asset(name, "v1");
            check(&[&asset("a"), &asset("a-crd")], Some(layout));
            // A directory shows more than a name.
            check(&[&asset("rke2-a-crd"), &asset("k3s-a-crd")], Some(layout));
            check(
                &[&asset("a"), &asset("crd"), "index.yaml", "assets/x"],
                None,
            );
        }
        check(&["assets/rke2-a/rke2-a-v1.tgz"], Some(Rke2));
        check(
            &["assets/k3s-a/k3s-a-v1.tgz", "assets/b/b-1.tgz"],
            Some(K3s),
        );
        check(&[&Rke2.asset("a-crd", "1"), &K3s.asset("b-crd", "1")], None);
        check(
            &[&Rke2.asset("rke2-a", "1"), &Rke2.asset("k3s-a", "1")],
            None,
        );
        check(&[], None);
    }
}
