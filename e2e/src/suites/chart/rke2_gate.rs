//! The gate of RKE2's repository: `make validate` there runs `scripts/validate-charts` on every chart that a release of RKE2 would carry.
//! It renders each with values of other charts, reads one annotation by columns, and looks images up in a list.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, ensure};

use super::render;
use crate::{
    programs::published_charts::unpacked,
    report::{Checked, Report},
    test_env::TestEnv,
};

const CHARTS: [&str; 2] = ["rke2-multus", "rke2-multus-crd"];
/// Versions as RKE2's own settings have them, of the oldest and of a coming minor release.
const KUBERNETES: [&str; 3] = ["v1.25.0", "v1.34.12", "v1.45.3"];
const REGISTRIES: &str =
    "global.systemDefaultRegistry=my-registry,global.cattle.systemDefaultRegistry=my-registry";
/// Values that each rendering sets, whatever the chart.
const VALUES: &str = "vCenter.clusterId=test-id,global.clusterDNS=10.43.0.10\\,2001:cafe:43::a,rke2-whereabouts.enabled=true";

pub(super) fn run(env: &TestEnv, report: &mut Report) -> Checked {
    report.check("RKE2's validation of charts accepts ours", || {
        let listed = env.dist.join("airgap/multus-images.txt");
        let listed = fs::read_to_string(listed)?;
        let listed: BTreeSet<_> = listed.lines().map(without_registry).collect();
        for name in CHARTS {
            for version in KUBERNETES {
                let mirrored = images(env, name, version, &format!("{REGISTRIES},{VALUES}"))?;
                ensure!(
                    mirrored.iter().all(|image| image.contains("my-registry")),
                    "{name}: {mirrored:?}"
                );
                ensure!(
                    is_supported(env, name, version)?,
                    "{name}: {version} is not supported"
                );
                let images = images(env, name, version, VALUES)?;
                let unknown: Vec<_> = images
                    .iter()
                    .filter(|image| !listed.contains(without_registry(image)))
                    .collect();
                ensure!(unknown.is_empty(), "{name}: {unknown:?} are in no archive");
                ensure!(
                    images.is_empty() == name.ends_with("-crd"),
                    "{name}: {images:?}"
                );
            }
        }
        Ok(())
    })
}

/// Returns what stands in the second column of lines whose first is `image:`, with the objects of `helm test`.
fn images(env: &TestEnv, name: &str, version: &str, values: &str) -> anyhow::Result<Vec<String>> {
    let version = format!("--kube-version={version}");
    let set = format!("--set={values}");
    let text = render::with_tests(env, "test-chart", &env.chart(name)?, &[&version, &set])?;
    let columns = text.lines().map(str::split_whitespace);
    let images = columns.filter_map(|mut columns| {
        let is_image = columns.next()?.starts_with("image:");
        is_image.then(|| columns.next().unwrap_or_default().replace('"', ""))
    });
    Ok(images.collect())
}

fn without_registry(image: &str) -> &str {
    image.strip_prefix("docker.io/").unwrap_or(image)
}

/// Reads the annotation as the script does: by columns, without its last character, and each number of a version by itself. Without an
/// annotation that it recognises every version is supported.
fn is_supported(env: &TestEnv, name: &str, version: &str) -> anyhow::Result<bool> {
    let chart = unpacked(env, &env.chart(name)?)?.join("Chart.yaml");
    let text = fs::read_to_string(chart)?;
    // Helm writes keys without quotes when it packs a chart again.
    let text = text.replace('"', "'").replace(
        "'catalog.cattle.io/kube-version'",
        "catalog.cattle.io/kube-version",
    );
    let line = text
        .lines()
        .find(|line| {
            line.trim_start()
                .starts_with("catalog.cattle.io/kube-version:")
        })
        .context("there is no annotation")?;
    let columns: Vec<_> = line.split_whitespace().collect();
    let [_, _, lower, _, upper] = columns[..] else {
        anyhow::bail!("{line:?} has {} columns", columns.len());
    };
    let bound = |text: &str| numbers(text.trim_end_matches('\''));
    let (lower, upper, version) = (bound(lower)?, bound(upper)?, numbers(version)?);
    Ok((0..3).all(|at| (lower[at]..=upper[at]).contains(&version[at])))
}

fn numbers(version: &str) -> anyhow::Result<Vec<u32>> {
    let version = version.trim_start_matches(['v', 'V']);
    let version = version.split('-').next().unwrap_or_default();
    let numbers: Vec<_> = version
        .split('.')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    ensure!(numbers.len() == 3, "{version:?} is no version");
    Ok(numbers)
}
