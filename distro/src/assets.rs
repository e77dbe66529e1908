//! What this binary carries: the packed charts and each distro's manifest.

use include_dir::{Dir, include_dir};

static ASSETS: Dir<'_> = include_dir!("$OUT_DIR/assets");
/// The images that the charts name; the same list stands in the airgap archives.
pub(crate) const IMAGES: [&str; 1] = [concat!(
    "docker.io/multusrs/multus:v",
    env!("CARGO_PKG_VERSION")
)];

/// A packed chart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chart {
    /// Its archive's file name, `<name>-<version>.tgz`.
    pub(crate) file: &'static str,
    /// The archive.
    pub(crate) bytes: &'static [u8],
}

impl Chart {
    /// The chart's name.
    pub(crate) fn name(&self) -> &'static str {
        let ending = concat!("-", env!("CARGO_PKG_VERSION"), ".tgz");
        self.file.strip_suffix(ending).unwrap_or(self.file)
    }
}

/// All charts, sorted by file name.
pub(crate) fn charts() -> Vec<Chart> {
    let mut charts: Vec<Chart> = ASSETS
        .get_dir("charts")
        .into_iter()
        .flat_map(Dir::files)
        .filter_map(|file| {
            Some(Chart {
                file: file.path().file_name()?.to_str()?,
                bytes: file.contents(),
            })
        })
        .collect();
    charts.sort_by_key(|chart| chart.file);
    charts
}

/// `multus.yaml` of a distro, variables not replaced.
pub(crate) fn manifest(distro: &str) -> Option<&'static str> {
    ASSETS
        .get_file(format!("manifests/{distro}/multus.yaml"))?
        .contents_utf8()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_and_both_manifests_are_here() {
        let names: Vec<&str> = charts().iter().map(Chart::name).collect();
        assert_eq!(
            names,
            [
                "k3s-multus",
                "k3s-multus-crd",
                "rke2-multus",
                "rke2-multus-crd"
            ]
        );
        assert!(manifest("k3s").unwrap().contains("k3s-multus-crd"));
        assert!(manifest("rke2").unwrap().contains("chartContent"));
        assert!(manifest("other").is_none());
    }
}
