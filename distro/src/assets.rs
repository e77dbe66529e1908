//! The embedded data: the packed charts, each distro's manifest, and the names of the images.

use include_dir::{Dir, include_dir};

static ASSETS: Dir<'_> = include_dir!("$OUT_DIR/assets");
/// The images that the charts name; the airgap archives hold the same ones.
pub(crate) const IMAGES: [&str; 1] = [env!("MULTUS_IMAGE")];

/// A packed chart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chart {
    /// The archive's file name, `<name>-<version>.tgz`.
    pub(crate) file: &'static str,
    pub(crate) bytes: &'static [u8],
}

impl Chart {
    pub(crate) fn name(&self) -> &'static str {
        let ending = concat!("-", env!("CARGO_PKG_VERSION"), ".tgz");
        self.file.strip_suffix(ending).unwrap_or(self.file)
    }
}

/// Returns all charts, sorted by file name.
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

/// Returns `multus.yaml` of a distro, its variables not replaced yet.
pub(crate) fn manifest(distro: &str) -> Option<&'static str> {
    ASSETS
        .get_file(format!("manifests/{distro}/multus.yaml"))?
        .contents_utf8()
}

/// Returns an image's reference as the chart renders it: a registry replaces the public one before the repository.
pub(crate) fn with_registry(image: &str, registry: &str) -> String {
    let registry = registry.trim_end_matches('/');
    match image.split_once('/') {
        Some((_, repository)) if !registry.is_empty() => format!("{registry}/{repository}"),
        _ => image.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_replaces_the_public_one() {
        let image = "docker.io/multusrs/multus:v5.0.0";
        assert_eq!(with_registry(image, ""), image);
        let own = "reg.example:5000/multusrs/multus:v5.0.0";
        assert_eq!(with_registry(image, "reg.example:5000/"), own);
    }

    #[test]
    fn charts_and_manifests_of_both_distros_are_embedded() {
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
