//! How large things may be. A limit is raised here, in a commit that says why, or not at all.

use anyhow::bail;
use archive::verify::Image;

use super::Budget;
use crate::{arch::Arch, cmd::build, tree::Tree};

/// The uncompressed layers of one platform of one of our images.
const IMAGE: u64 = 10_000_000;
/// An architecture's `.tar.zst`.
const ARCHIVE: u64 = 3_000_000;
/// A packed chart: with what Helm keeps of a release, it must fit into one Secret of a megabyte many times over.
const CHART: u64 = 100_000;
/// A manifest that carries charts: etcd takes a request of a megabyte and a half.
const MANIFEST: u64 = 1_000_000;

/// Everything of a release that is held to a limit.
pub(super) fn of(arches: &[Arch], tree: &Tree, images: &[Image]) -> Vec<Budget> {
    let files = tree.0.iter().filter_map(|(path, file)| {
        Some(Budget {
            what: path.clone(),
            size: file.bytes.len() as u64,
            limit: of_file(path, arches)?,
        })
    });
    let mut budgets: Vec<_> = files.collect();
    for image in images {
        if !crate::sets::is_own(&image.reference).unwrap_or(true) {
            continue;
        }
        for platform in &image.platforms {
            let sizes = platform.layers.iter().map(|layer| layer.tar.len() as u64);
            budgets.push(Budget {
                what: format!("{} {}", image.reference, platform.platform.architecture),
                size: sizes.sum(),
                limit: IMAGE,
            });
        }
    }
    budgets
}

fn of_file(path: &str, arches: &[Arch]) -> Option<u64> {
    let (folder, rest) = path.split_once('/')?;
    match folder {
        "bin" => {
            let (arch, name) = rest.split_once('/')?;
            let arch = Arch::parse(arch).filter(|arch| arches.contains(arch))?;
            build::budget(arch, name)
        }
        "airgap" if rest.ends_with(".tar.zst") => Some(ARCHIVE),
        "charts" if rest.starts_with("assets/") => Some(CHART),
        "manifests" => Some(MANIFEST),
        _ => None,
    }
}

/// Fails where anything is larger than it may be, and names all that is.
pub(super) fn hold(budgets: &[Budget]) -> anyhow::Result<()> {
    let over: Vec<_> = budgets
        .iter()
        .filter(|budget| budget.size > budget.limit)
        .map(|one| {
            format!(
                "{} has {} bytes, its budget is {}",
                one.what, one.size, one.limit
            )
        })
        .collect();
    if over.is_empty() {
        return Ok(());
    }
    bail!("{}", over.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_has_a_limit() {
        let check = |path, expected| assert_eq!(of_file(path, &[Arch::Arm]), expected, "{path}");
        check("airgap/multus-airgap-images-arm.tar.zst", Some(ARCHIVE));
        check("airgap/multus-airgap-images-arm.tar.gz", None);
        check("charts/assets/k3s-multus/k3s-multus-5.0.0.tgz", Some(CHART));
        check("manifests/rke2/multus.yaml", Some(MANIFEST));
        assert!(of_file("bin/arm/multus-shim", &[Arch::Arm]).is_some());
        assert!(of_file("bin/arm/kubectl-multus", &[Arch::Arm]).is_some());
        check("bin/amd64/multus-shim", None);
    }

    #[test]
    fn all_that_is_too_large_is_named() {
        let budget = |what: &str, size| Budget {
            what: what.into(),
            size,
            limit: 10,
        };
        hold(&[budget("a", 10)]).unwrap();
        let error = hold(&[budget("a", 11), budget("b", 10), budget("c", 12)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a has 11 bytes, its budget is 10; c has 12 bytes, its budget is 10"
        );
    }
}
