//! The limits of sizes. A limit is raised here, in a commit that says why, or not at all.

use archive::verify::Image;
use release::{description::Budget, tree::Tree};

use crate::{arch::Arch, programs};

/// The uncompressed layers of one platform of the image.
const IMAGE: u64 = 12_000_000;
/// An architecture's archive. Its layers are gzip, a quarter larger than zstd, since Docker 20.10 loads no other compression; the one file is
/// smaller than the two twins that a medium had with zstd. Addresses for the whole cluster made it 0.23 MB larger, the
/// pools of whereabouts 0.09 MB, and the plugins' configurations in the daemon, which says what networks its node can serve, 0.22 MB.
const ARCHIVE: u64 = 5_400_000;
/// A packed chart: with what Helm stores of a release, it must fit into one Secret of a megabyte many times over.
const CHART: u64 = 100_000;
/// A manifest that carries charts: etcd accepts a request of a megabyte and a half.
const MANIFEST: u64 = 1_000_000;

/// Returns everything of a release that has a limit.
pub(crate) fn of(arches: &[Arch], tree: &Tree, images: &[Image]) -> Vec<Budget> {
    let files = tree.0.iter().filter_map(|(path, file)| {
        Some(Budget {
            what: path.clone(),
            size: file.bytes.len() as u64,
            limit: file_limit(path, arches)?,
        })
    });
    let mut budgets: Vec<_> = files.collect();
    for image in images {
        for platform in &image.platforms {
            let sizes = platform.layers.iter().map(|layer| layer.size);
            budgets.push(Budget {
                what: format!("{} {}", image.reference, platform.platform.architecture),
                size: sizes.sum(),
                limit: IMAGE,
            });
        }
    }
    budgets
}

fn file_limit(path: &str, arches: &[Arch]) -> Option<u64> {
    let (dir, rest) = path.split_once('/')?;
    match dir {
        "bin" => {
            let (arch, name) = rest.split_once('/')?;
            let arch = Arch::parse(arch).filter(|arch| arches.contains(arch))?;
            programs::budget(arch, name)
        }
        "airgap" if rest.strip_suffix(".tar").is_some() => Some(ARCHIVE),
        "charts" if rest.starts_with("assets/") => Some(CHART),
        "manifests" => Some(MANIFEST),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_follows_from_the_path() {
        let limit = |path: &str| file_limit(path, &[Arch::Arm]);
        let archive = "airgap/multus-airgap-images-arm.tar";
        assert_eq!(limit(archive), Some(ARCHIVE));
        let chart = "charts/assets/k3s-multus/k3s-multus-5.0.0.tgz";
        assert_eq!(limit(chart), Some(CHART));
        assert_eq!(limit("manifests/rke2/multus.yaml"), Some(MANIFEST));
        assert!(limit("bin/arm/multus-shim").is_some());
        assert!(limit("bin/arm/kubectl-multus").is_some());
        assert!(limit("bin/arm/multus-airgap").is_some());
        assert_eq!(limit("bin/amd64/multus-shim"), None);
    }
}
