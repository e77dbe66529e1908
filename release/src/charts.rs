//! The packed charts of a release, and the bindata and manifests that are generated from them.

use anyhow::Context as _;
use archive::digest::sha256;
use chart::{
    BuildSettings, CHARTS, Distro, IDENTITIES,
    bindata::{self, Asset},
    index::{self, Packed},
    manifest,
    oci::{self, Artifact},
};

use crate::{description::ChartEntry, tree::Tree};

/// The Go package of charts as assets of a distro's static files.
const STATIC: &str = "static";
/// The Go package of manifests as assets of K3s' deploy controller; RKE2 reads files next to its charts instead.
const DEPLOY: &str = "deploy";
/// The build tag under which K3s leaves out its assets.
const NO_STAGE: &str = "no_stage";

/// Checks and packs the chart under all names, and their CRD charts.
pub fn pack<'a>(settings: impl Into<BuildSettings<'a>>) -> anyhow::Result<Vec<Packed>> {
    let settings = settings.into();
    check(&settings)?;
    index::pack_all(&settings).context("cannot pack the charts")
}

/// Checks the chart; returns how many files are the same under all names.
pub fn check<'a>(settings: impl Into<BuildSettings<'a>>) -> anyhow::Result<usize> {
    chart::check::check(settings).context("the chart is not sound")
}

/// Returns the names of a release's charts.
pub fn names() -> impl Iterator<Item = String> {
    let of = |identity| CHARTS.into_iter().map(move |chart| chart.name(identity));
    IDENTITIES.into_iter().flat_map(of)
}

/// Returns the distros that have a manifest.
pub fn distros() -> impl Iterator<Item = Distro> {
    IDENTITIES
        .into_iter()
        .filter_map(|identity| identity.distro)
}

/// Returns the path of a distro's manifest in a release.
pub(crate) fn manifest_path(distro: Distro) -> String {
    format!("manifests/{}/{}", distro.as_str(), manifest::FILE_NAME)
}

/// Returns everything below `charts/`.
pub fn repository(charts: &[Packed], epoch: u64) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for chart in charts {
        tree.add(format!("charts/{}", chart.path), chart.bytes.clone());
    }
    tree.add("charts/index.yaml", index(charts, epoch)?);
    Ok(tree)
}

/// Returns the text of the repository's index.
pub fn index(charts: &[Packed], epoch: u64) -> anyhow::Result<String> {
    index::index_yaml(charts, &api::time::rfc3339(epoch)).context("cannot index the charts")
}

/// The path of the manifest for `kubectl apply` in a release.
pub const PLAIN_MANIFEST: &str = "manifests/kubernetes/multus.yaml";

/// Returns everything below `bindata/` and `manifests/`.
pub fn generated(settings: &BuildSettings<'_>, charts: &[Packed]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for distro in distros() {
        let text = manifest::helm_charts(distro, settings)
            .with_context(|| format!("cannot make the manifest for {}", distro.as_str()))?;
        tree.add(manifest_path(distro), text);
    }
    tree.add(PLAIN_MANIFEST, manifest::plain(settings));
    let k3s = tree.get(&manifest_path(Distro::K3s));
    let bindata = bindata(charts, k3s.context("K3s has a manifest")?);
    tree.extend(bindata);
    Ok(tree)
}

/// Returns everything below `bindata/`: K3s' charts and manifest as Go sources and as a tree for `go:embed`. RKE2's tree embeds no charts,
/// since its manifest carries them.
pub(crate) fn bindata(charts: &[Packed], k3s_manifest: &[u8]) -> Tree {
    let mut tree = Tree::default();
    let asset = |chart: &Packed| {
        let file = chart.path.rsplit('/').next().unwrap_or(&chart.path);
        let name = format!("{}/{file}", manifest::STATIC_DIR);
        (name, chart.bytes.clone())
    };
    let own = format!("{}-", Distro::K3s.as_str());
    let charts: Vec<Asset> = charts
        .iter()
        .filter(|chart| chart.name.starts_with(&own))
        .map(asset)
        .collect();
    let manifest = (manifest::FILE_NAME.to_owned(), k3s_manifest.to_vec());
    for (package, assets) in [(STATIC, charts), (DEPLOY, vec![manifest])] {
        let with_assets = format!("!{NO_STAGE}");
        tree.add(
            format!("bindata/go/{package}/zz_generated_bindata.go"),
            bindata::go(package, Some(&with_assets), &assets),
        );
        tree.add(
            format!("bindata/go/{package}/{NO_STAGE}.go"),
            bindata::without_assets(package, NO_STAGE),
        );
        for (name, bytes) in assets {
            tree.add(format!("bindata/embed/{package}/{name}"), bytes);
        }
    }
    tree
}

/// Makes the artifact of a chart's archive, and of its signature for Helm, as registries get it.
pub fn artifact(tgz: &[u8], provenance: Option<&[u8]>) -> anyhow::Result<Artifact> {
    Ok(oci::artifact(tgz, provenance)?)
}

/// Returns the charts as `release.json` lists them.
pub fn entries(charts: &[Packed]) -> Vec<ChartEntry> {
    let entry = |chart: &Packed| ChartEntry {
        name: chart.name.clone(),
        version: chart.version.clone(),
        path: format!("charts/{}", chart.path),
        digest: sha256(&chart.bytes),
    };
    charts.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindata_holds_the_charts_of_k3s_alone_and_both_build_tags() {
        let charts = pack("5.0.0").unwrap();
        let paths: Vec<String> = bindata(&charts, b"manifest").0.into_keys().collect();
        assert_eq!(
            paths,
            [
                "bindata/embed/deploy/multus.yaml",
                "bindata/embed/static/charts/k3s-multus-5.0.0.tgz",
                "bindata/embed/static/charts/k3s-multus-crd-5.0.0.tgz",
                "bindata/go/deploy/no_stage.go",
                "bindata/go/deploy/zz_generated_bindata.go",
                "bindata/go/static/no_stage.go",
                "bindata/go/static/zz_generated_bindata.go",
            ]
        );
    }
}
