//! `airgap push`: sends images and charts of a release to a registry; what the registry has is not sent again.

use std::path::{Path, PathBuf};

use airgap::{
    check, names,
    push::{self, Artifact, PushStats},
    registry,
};
use anyhow::{Context as _, ensure};
use archive::{layout::Layout, oci};
use serde_json::json;

use super::attach;
use crate::{
    login,
    tree::{File, Tree},
    ui,
};

/// Send images, with the lists of what is inside of them, and charts to a registry; a second run sends nothing
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap push registry.example:5000\n  cargo xtask airgap push oci://registry.example/mirror --user me --json\n  SSL_CERT_FILE=/etc/ssl/own-ca.pem cargo xtask airgap push registry.example:5000\n  cargo xtask airgap push registry.example/team --charts-to helm/team        charts go to registry.example/helm/team/rke2-multus\n  cargo xtask airgap push registry.example/team --images-only                the project permits images alone\n  cargo xtask airgap push 127.0.0.1:5000 --plain-http --archive multus-airgap-images-amd64.tar.zst"
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
    /// Send charts below this repository, as team/helm for REGISTRY/team/helm/rke2-multus; below charts/ of the path of REGISTRY unless set
    #[arg(long, value_name = "REPOSITORY", conflicts_with = "archive")]
    charts_to: Option<String>,
    /// Send no charts
    #[arg(long, conflicts_with_all = ["archive", "charts_to"])]
    images_only: bool,
    #[command(flatten)]
    login: login::Options,
    /// Print what was sent as JSON
    #[arg(long)]
    json: bool,
}

/// The repository of charts below the path of REGISTRY.
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
        names::is_host(host),
        "`{host}` in {target} is not the name of a registry: write HOST or HOST:PORT, as registry.example:5000"
    );
    let own_path = Some(path).filter(|path| !path.is_empty());
    let charts_to = args.charts_to.as_deref();
    for (place, repository) in [("REGISTRY", own_path), ("--charts-to", charts_to)] {
        ensure!(
            repository.is_none_or(names::is_repository),
            "`{}` in {place} is not a repository: write lower-case letters and digits, with . _ - and / between",
            repository.unwrap_or_default()
        );
    }
    let below = |repository: &str| match path {
        "" => repository.to_owned(),
        path => format!("{path}/{repository}"),
    };
    let mut artifacts = match &args.archive {
        Some(archive) => of_archive(archive)?,
        None => images(&args.dist)?,
    };
    for artifact in &mut artifacts {
        artifact.repository = below(&artifact.repository);
    }
    let attachments = attachments(args, below)?;
    if args.archive.is_none() && !args.images_only {
        let to = args.charts_to.clone().unwrap_or_else(|| below(CHARTS));
        artifacts.extend(charts(&args.dist, &to)?);
    }
    for Artifact {
        repository, tag, ..
    } in &artifacts
    {
        ensure!(
            names::is_repository(repository) && names::is_tag(tag),
            "`{host}/{repository}:{tag}` is too long, or not the name of an image: name a shorter path"
        );
    }
    let registries = args.login.registries(&[host.to_owned()].into())?;
    let registry = registries.open(host, true)?;
    let attached = attachments.iter().map(attach::Attachment::size);
    let total = artifacts.iter().map(size).chain(attached).sum();
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
    for attachment in &attachments {
        let name = attachment.name(host);
        let stats = attachment.send(&registry, &|len| progress.add(len));
        let stats = stats.map_err(|error| with_hint(error, &name))?;
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

/// Returns what belongs to images of the release, in the repositories that `below` names.
fn attachments(
    args: &Args,
    below: impl Fn(&str) -> String,
) -> anyhow::Result<Vec<attach::Attachment>> {
    let mut attachments = match &args.archive {
        Some(_) => Vec::new(),
        None => attach::of_release(&args.dist).with_context(|| unusable("images", &args.dist))?,
    };
    for attachment in &mut attachments {
        attachment.repository = below(&attachment.repository);
    }
    Ok(attachments)
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

fn images(dist: &Path) -> anyhow::Result<Vec<Artifact>> {
    let layout = Layout::read(&dist.join("oci")).with_context(|| unusable("images", dist))?;
    push::artifacts(&layout).with_context(|| unusable("images", dist))
}

/// Returns the charts of a release, below a repository.
fn charts(dist: &Path, to: &str) -> anyhow::Result<Vec<Artifact>> {
    let charts =
        Tree::read(&dist.join("charts/assets")).with_context(|| unusable("charts", dist))?;
    let artifact =
        |(path, file): (&String, &File)| chart(&file.bytes, to).with_context(|| path.clone());
    charts.0.iter().map(artifact).collect()
}

fn unusable(kind: &str, dist: &Path) -> String {
    format!(
        "cannot read {kind} from {}, make them with `cargo xtask dist`",
        dist.display()
    )
}

fn chart(tgz: &[u8], to: &str) -> anyhow::Result<Artifact> {
    let artifact = chart::oci::artifact(tgz)?;
    let blobs = artifact.blobs.into_iter();
    Ok(Artifact {
        repository: format!("{to}/{}", artifact.name),
        tag: artifact.tag,
        blobs: blobs
            .map(|(descriptor, bytes)| (descriptor.digest, bytes))
            .collect(),
        manifests: vec![(oci::MANIFEST, artifact.manifest)],
    })
}
