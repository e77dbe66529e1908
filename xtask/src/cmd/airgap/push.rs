//! `airgap push`: sends images and charts of a release to a registry; what the registry has is not sent again.

use std::path::{Path, PathBuf};

use airgap::{
    check,
    push::{self, Moved, Parcel},
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
    let (host, path) = target.split_once('/').unwrap_or((target, ""));
    ensure!(
        !host.is_empty(),
        "name a registry, as registry.example:5000"
    );
    let mut parcels = match &args.archive {
        Some(archive) => of_archive(archive)?,
        None => of_release(&args.dist)?,
    };
    if !path.is_empty() {
        for parcel in &mut parcels {
            parcel.repository = format!("{path}/{}", parcel.repository);
        }
    }
    let registry = args.login.open(host)?;
    let total = parcels.iter().map(size).sum();
    let progress = ui::Progress::new(&format!("push to {host}"), total);
    let mut all = Moved::default();
    let mut pushed = Vec::new();
    for parcel in &parcels {
        let name = format!("{host}/{}:{}", parcel.repository, parcel.tag);
        let moved = push::send(&registry, parcel, &|len| progress.add(len))
            .map_err(|error| with_hint(error, &name))?;
        all.sent += moved.sent;
        all.present += moved.present;
        pushed.push((name, moved));
    }
    progress.finish();
    if args.json {
        let items: Vec<_> = pushed
            .iter()
            .map(
                |(name, moved)| json!({"name": name, "sent": moved.sent, "present": moved.present}),
            )
            .collect();
        let all = json!({"sent": all.sent, "present": all.present, "items": items});
        return ui::json(&all);
    }
    for (name, moved) in &pushed {
        ui::data(&format!(
            "{name}: {} bytes sent, {} were there already\n",
            moved.sent, moved.present
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

fn size(parcel: &Parcel) -> u64 {
    let blobs = parcel.blobs.values().map(Vec::len);
    let manifests = parcel.manifests.iter().map(|(_, bytes)| bytes.len());
    blobs.chain(manifests).sum::<usize>() as u64
}

fn of_archive(path: &Path) -> anyhow::Result<Vec<Parcel>> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let layout = Layout::from_entries(check::read(&name, &bytes)?).context(name)?;
    Ok(push::parcels(&layout)?)
}

fn of_release(dist: &Path) -> anyhow::Result<Vec<Parcel>> {
    let unusable = || {
        format!(
            "cannot read images and charts from {}, make them with `cargo xtask dist`",
            dist.display()
        )
    };
    let layout = Layout::read(&dist.join("oci")).with_context(unusable)?;
    let mut parcels = push::parcels(&layout)?;
    let charts = Tree::read(&dist.join("charts/assets")).with_context(unusable)?;
    for (path, file) in &charts.0 {
        parcels.push(chart(&file.bytes).with_context(|| path.clone())?);
    }
    Ok(parcels)
}

fn chart(tgz: &[u8]) -> anyhow::Result<Parcel> {
    let artifact = chart::oci::artifact(tgz)?;
    let blobs = artifact.blobs.into_iter();
    Ok(Parcel {
        repository: format!("{CHARTS}/{}", artifact.name),
        tag: artifact.tag,
        blobs: blobs
            .map(|(descriptor, bytes)| (descriptor.digest, bytes))
            .collect(),
        manifests: vec![(oci::MANIFEST, artifact.manifest)],
    })
}
