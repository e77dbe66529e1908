//! Verifies the charts wherever they are: in repository, bindata and manifests, and inside every multus-distro.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use archive::{
    digest::sha256,
    gzip,
    oci::REF_NAME,
    read::{self, Limits},
    tar::Kind,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use chart::{Distro, bindata, index::Packed, manifest};
use serde_json::Value;

use super::{Standard, claim_same, file};
use crate::{
    arch::Arch,
    charts,
    description::{ChartEntry, Release},
    elf,
    tree::Tree,
};

/// The limits of Helm, which are above those of any chart here.
const LIMITS: Limits = Limits {
    entries: 1000,
    total: 5 << 20,
    links: false,
};

/// Checks `charts/`, `bindata/`, `manifests/` and what the programs carry.
pub(super) fn check(
    tree: &Tree,
    release: &Release,
    arches: &[Arch],
    standard: Standard<'_>,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<Vec<ChartEntry>> {
    let mut packed = Vec::new();
    for name in charts::names() {
        let version = &release.version;
        let path = format!("assets/{name}/{name}-{version}.tgz");
        let full = format!("charts/{path}");
        let bytes = file(tree, &full)?.to_vec();
        check_content(&bytes, &name, release, standard).with_context(|| full.clone())?;
        claimed.insert(full);
        packed.push(Packed {
            name,
            version: version.clone(),
            path,
            bytes,
        });
    }
    let path = "charts/index.yaml".to_owned();
    if standard.is_checkout() {
        let index = charts::index(&packed, release.epoch)?;
        claim_same(tree, claimed, path, index.as_bytes(), "the charts")?;
    } else {
        let index = String::from_utf8_lossy(file(tree, &path)?);
        for chart in &packed {
            ensure!(
                index.contains(&sha256(&chart.bytes).hex()),
                "{path} does not follow from the charts: it has no digest of charts/{}",
                chart.path
            );
        }
        claimed.insert(path);
    }
    for distro in charts::distros() {
        check_manifest(tree, distro, &packed, claimed)?;
    }
    check_plain_manifest(tree, release, standard, claimed)?;
    if standard.is_checkout() {
        check_bindata(tree, &packed, claimed)?;
    } else {
        check_other_bindata(tree, &packed, claimed)?;
    }
    for arch in arches {
        check_embedded(tree, *arch, release, &packed)?;
    }
    Ok(charts::entries(&packed))
}

/// Checks that the archive is a chart of this name and version, and that the main chart runs an image of this release.
fn check_content(
    bytes: &[u8],
    name: &str,
    release: &Release,
    standard: Standard<'_>,
) -> anyhow::Result<()> {
    let entries = read::entries(&gzip::decompress(bytes, LIMITS.total)?, &LIMITS)?;
    let text = |path: &str| {
        let path = format!("{name}/{path}");
        let found = entries.iter().find_map(|entry| match &entry.kind {
            Kind::File(bytes) if entry.path == path => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        });
        found.with_context(|| format!("{path} is missing in it"))
    };
    let description = text("Chart.yaml")?;
    for line in [
        format!("name: {name}"),
        format!("version: {}", release.version),
    ] {
        ensure!(
            description.lines().any(|found| found == line),
            "its Chart.yaml does not say `{line}`"
        );
    }
    if name.ends_with("-crd") {
        return Ok(());
    }
    let values = text("values.yaml")?;
    // The values of a release of this project may name no registry.
    let registry = release.image_prefix.registry_value();
    let has = |line: String| values.lines().any(|found| found.trim() == line);
    let names_registry = registry.is_empty() || has(format!("registry: {registry}"));
    let names_image = release.images.iter().any(|image| {
        let name = image.reference.split_once('/').map(|(_, name)| name);
        let parts = name.and_then(|name| name.rsplit_once(':'));
        parts.is_some_and(|(repository, tag)| {
            names_registry && has(format!("repository: {repository}")) && has(format!("tag: {tag}"))
        })
    });
    ensure!(
        names_image,
        "its values name no image of this release ({REF_NAME})"
    );
    check_architectures(&text("values.schema.json")?, release, standard)
}

/// Checks that the chart selects nodes that the image is made for. A release for fewer architectures, which is made for tests, passes too.
fn check_architectures(
    schema: &str,
    release: &Release,
    standard: Standard<'_>,
) -> anyhow::Result<()> {
    let schema: Value = serde_json::from_str(schema).context("its schema is damaged")?;
    let selected = &schema["properties"]["architectures"]["default"];
    let selected: Vec<&str> = selected
        .as_array()
        .context("it selects no architectures")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let all: Vec<_> = Arch::ALL.into_iter().map(Arch::name).collect();
    let platforms = release.images.iter().flat_map(|image| &image.platforms);
    let made: Vec<_> = platforms.map(|platform| platform.arch.as_str()).collect();
    ensure!(
        (selected == all || !standard.is_checkout())
            && made.iter().all(|name| selected.contains(name)),
        "it selects nodes of {}, the images are made for {}",
        selected.join(", "),
        made.join(", ")
    );
    Ok(())
}

/// Checks that a manifest has its charts: K3s' names their files, RKE2's carries them.
fn check_manifest(
    tree: &Tree,
    distro: Distro,
    packed: &[Packed],
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let path = charts::manifest_path(distro);
    let text = String::from_utf8_lossy(file(tree, &path)?).into_owned();
    let prefix = format!("{}-", distro.as_str());
    let own = packed
        .iter()
        .filter(|chart| chart.name.starts_with(&prefix));
    let key = match distro {
        Distro::K3s => "  chart: ",
        Distro::Rke2 => "  chartContent: ",
    };
    let mut found: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(key))
        .collect();
    for chart in own {
        let at = found.iter().position(|value| match distro {
            Distro::K3s => chart.path.rsplit('/').next() == value.rsplit('/').next(),
            Distro::Rke2 => STANDARD
                .decode(value)
                .is_ok_and(|bytes| bytes == chart.bytes),
        });
        let at = at.with_context(|| format!("{path} does not have charts/{}", chart.path))?;
        found.remove(at);
    }
    ensure!(found.is_empty(), "{path} has an unknown chart");
    claimed.insert(path);
    Ok(())
}

/// Checks that the manifest for `kubectl apply` is that of the checkout; of another commit, that it runs an image of this release and no
/// other one, or that there is none.
fn check_plain_manifest(
    tree: &Tree,
    release: &Release,
    standard: Standard<'_>,
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let path = charts::PLAIN_MANIFEST.to_owned();
    if standard.is_checkout() {
        let expected = manifest::plain(release.settings());
        return claim_same(tree, claimed, path, expected.as_bytes(), "chart/rendered");
    }
    let Some(bytes) = tree.get(&path) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(bytes);
    let images = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("image: "));
    let images: BTreeSet<_> = images.map(|image| image.trim_matches('"')).collect();
    let known = |image: &&str| {
        let mut references = release.images.iter().map(|one| one.reference.as_str());
        references.any(|one| one == *image || one.ends_with(&format!("/{image}")))
    };
    ensure!(
        !images.is_empty() && images.iter().all(known),
        "{path} runs {images:?}, which are not the images of this release"
    );
    claimed.insert(path);
    Ok(())
}

/// Checks that Go sources hold the assets of the embed tree, which are K3s' charts and manifest.
fn check_bindata(
    tree: &Tree,
    packed: &[Packed],
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let k3s = file(tree, &charts::manifest_path(Distro::K3s))?;
    for (path, expected_file) in charts::bindata(packed, k3s).0 {
        let found = file(tree, &path)?;
        if path.starts_with("bindata/go/") {
            let read = |bytes: &[u8]| {
                let assets = bindata::read(&String::from_utf8_lossy(bytes));
                assets.with_context(|| format!("{path} is damaged"))
            };
            let expected = read(&expected_file.bytes)?;
            if let Some((name, _)) = read(found)?.iter().find(|one| !expected.contains(one)) {
                bail!("{path}: its asset {name} is not the packed one");
            }
        }
        let source = "charts/ and manifests/";
        claim_same(tree, claimed, path, &expected_file.bytes, source)?;
    }
    Ok(())
}

/// Checks bindata of another commit, which may hold other assets: those that are named as charts and manifests are the packed ones.
fn check_other_bindata(
    tree: &Tree,
    packed: &[Packed],
    claimed: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let k3s = file(tree, &charts::manifest_path(Distro::K3s))?;
    let is_packed = |name: &str, bytes: &[u8]| {
        let name = name.rsplit('/').next().unwrap_or(name);
        let chart = packed
            .iter()
            .find(|chart| chart.path.ends_with(&format!("/{name}")));
        match chart {
            Some(chart) => chart.bytes == bytes,
            None => name != manifest::FILE_NAME || bytes == k3s,
        }
    };
    for (path, found) in tree.below("bindata/") {
        let path = format!("bindata/{path}");
        let assets = if path.ends_with("bindata.go") {
            bindata::read(&String::from_utf8_lossy(&found.bytes))
                .with_context(|| format!("{path} is damaged"))?
        } else {
            vec![(path.clone(), found.bytes.clone())]
        };
        for (name, bytes) in assets {
            ensure!(
                is_packed(&name, &bytes),
                "{path}: its asset {name} is not the packed one"
            );
        }
        claimed.insert(path);
    }
    Ok(())
}

/// Checks that `multus-distro` carries the published charts and manifests, byte by byte.
fn check_embedded(
    tree: &Tree,
    arch: Arch,
    release: &Release,
    packed: &[Packed],
) -> anyhow::Result<()> {
    let path = format!("bin/{}/multus-distro", arch.name());
    let program = file(tree, &path)?;
    for chart in packed.iter().filter(|chart| chart.is_of_distro()) {
        ensure!(
            elf::contains(program, &chart.bytes),
            "{path} does not carry charts/{}",
            chart.path
        );
    }
    let image = release.settings().image();
    ensure!(
        elf::contains(program, image.as_bytes()),
        "{path} does not name {image}"
    );
    for distro in charts::distros() {
        let manifest = charts::manifest_path(distro);
        ensure!(
            elf::contains(program, file(tree, &manifest)?),
            "{path} does not carry {manifest}"
        );
    }
    Ok(())
}
