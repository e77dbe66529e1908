//! `airgap push`: sends images and charts of a release to a registry; what the registry has is not sent again.

use std::path::{Path, PathBuf};

use airgap::{
    check,
    push::{self, Artifact, PushStats},
    registry,
};
use anyhow::{Context as _, ensure};
use archive::{layout::Layout, oci};
use serde_json::json;

use crate::{login, tree::Tree, ui};

/// Send images and charts to a registry; a second run sends nothing
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap push registry.example:5000\n  cargo xtask airgap push oci://registry.example/mirror --user me --json\n  cargo xtask airgap push 127.0.0.1:5000 --plain-http --archive multus-airgap-images-amd64.tar.zst"
)]
pub(super) struct Args {
    /// Registry, with an optional path in it
    registry: String,
    /// Release to take from
    #[arg(long, default_value = "dist")]
    dist: PathBuf,
    /// Take the images of one archive instead, and no charts
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    #[command(flatten)]
    login: login::Options,
    /// Print what was sent as JSON
    #[arg(long)]
    json: bool,
}

/// The directory of charts below the registry's path.
const CHARTS: &str = "charts";

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let target = args.registry.strip_prefix("oci://");
    let target = target.unwrap_or(&args.registry).trim_end_matches('/');
    for scheme in ["http", "https"] {
        let hint = if scheme == "http" {
            " and give --plain-http"
        } else {
            ""
        };
        ensure!(
            !target.starts_with(&format!("{scheme}://")),
            "the registry is {target}: leave {scheme}:// out{hint}"
        );
    }
    let (host, path) = target.split_once('/').unwrap_or((target, ""));
    ensure!(
        !host.is_empty(),
        "name a registry, as registry.example:5000"
    );
    let mut artifacts = match &args.archive {
        Some(archive) => of_archive(archive)?,
        None => of_release(&args.dist)?,
    };
    if !path.is_empty() {
        for artifact in &mut artifacts {
            artifact.repository = format!("{path}/{}", artifact.repository);
        }
    }
    let registry = args.login.open(host, true)?;
    let total = artifacts.iter().map(size).sum();
    let progress = ui::Progress::new(&format!("push to {host}"), total);
    let mut all = PushStats::default();
    let mut pushed = Vec::new();
    for artifact in &artifacts {
        let name = format!("{host}/{}:{}", artifact.repository, artifact.tag);
        let stats = push::send(&registry, artifact, &|len| progress.add(len))
            .map_err(|error| with_hint(error, &name))?;
        all.sent += stats.sent;
        all.present += stats.present;
        pushed.push((name, stats));
    }
    progress.finish();
    if args.json {
        let items: Vec<_> = pushed
            .iter()
            .map(
                |(name, stats)| json!({"name": name, "sent": stats.sent, "present": stats.present}),
            )
            .collect();
        let all = json!({"sent": all.sent, "present": all.present, "items": items});
        return ui::json(&all);
    }
    for (name, stats) in &pushed {
        ui::data(&format!(
            "{name}: {} bytes sent, {} were there already\n",
            stats.sent, stats.present
        ))?;
    }
    ui::data(&format!("{} bytes sent\n", all.sent))
}

/// Names the artifact in the error, and adds a hint when a login is missing.
fn with_hint(error: registry::Error, name: &str) -> anyhow::Error {
    let is_login = matches!(error, registry::Error::Login { .. });
    let context = if is_login {
        format!("{name}: {}", login::HINT)
    } else {
        name.to_owned()
    };
    anyhow::Error::new(error).context(context)
}

fn size(artifact: &Artifact) -> u64 {
    let blobs = artifact.blobs.values().map(Vec::len);
    let manifests = artifact.manifests.iter().map(|(_, bytes)| bytes.len());
    blobs.chain(manifests).sum::<usize>() as u64
}

fn of_archive(path: &Path) -> anyhow::Result<Vec<Artifact>> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let layout = Layout::from_entries(check::read(&name, &bytes)?).context(name)?;
    Ok(push::artifacts(&layout)?)
}

fn of_release(dist: &Path) -> anyhow::Result<Vec<Artifact>> {
    let unusable = || {
        format!(
            "cannot read images and charts from {}, make them with `cargo xtask dist`",
            dist.display()
        )
    };
    let layout = Layout::read(&dist.join("oci")).with_context(unusable)?;
    let mut artifacts = push::artifacts(&layout)?;
    let charts = Tree::read(&dist.join("charts/assets")).with_context(unusable)?;
    for (path, file) in &charts.0 {
        artifacts.push(chart(&file.bytes).with_context(|| path.clone())?);
    }
    Ok(artifacts)
}

fn chart(tgz: &[u8]) -> anyhow::Result<Artifact> {
    let artifact = chart::oci::artifact(tgz)?;
    let blobs = artifact.blobs.into_iter();
    Ok(Artifact {
        repository: format!("{CHARTS}/{}", artifact.name),
        tag: artifact.tag,
        blobs: blobs
            .map(|(descriptor, bytes)| (descriptor.digest, bytes))
            .collect(),
        manifests: vec![(oci::MANIFEST, artifact.manifest)],
    })
}
