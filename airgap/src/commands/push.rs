//! `push`: sends images, with the lists of what is inside of them, and charts to a registry; what the registry has is not sent again.

mod attach;
mod images;
mod signatures;

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, ensure};
use archive::{
    layout::Layout,
    lists,
    oci::{self, Descriptor},
};
use cmdline::BadUsage;
use registry::{
    Registry, names,
    push::{self, Artifact, PushStats},
};
use release::{
    charts,
    signatures::{CHART, IMAGES, LIMIT, PROVENANCE, Trust},
    source::{self, Source},
    tree::{File, Tree},
};
use serde_json::json;

use super::{
    connection::{ConnectionOptions, with_hint},
    trust,
};
use crate::ui;

/// The place to which images and charts go.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Destination {
    /// Registry, with an optional path in it
    pub registry: String,
    /// Send charts below this repository, as team/helm for REGISTRY/team/helm/rke2-multus; below charts/ of the path of REGISTRY unless set
    #[arg(long, value_name = "REPOSITORY")]
    pub charts_to: Option<String>,
    /// Send no charts
    #[arg(long, conflicts_with = "charts_to")]
    pub images_only: bool,
}

/// The options besides the source.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    to: Destination,
    #[command(flatten)]
    login: ConnectionOptions,
    #[command(flatten)]
    trust: trust::Options,
    /// Print what was sent as JSON
    #[arg(long)]
    json: bool,
}

/// The repository of charts below the path of REGISTRY.
const CHARTS: &str = "charts";

/// Sends the images of the source, and the lists and charts of a release.
pub fn run(options: &Options, from: &Source) -> anyhow::Result<()> {
    let trust = options.trust.trust()?;
    let report = trust::check(&trust, from)?;
    for path in &report.unchecked_statements {
        ui::note(&format!(
            "{path} is not sent: name the key of whoever signed it with --attested-by"
        ));
    }
    let mut push = Push::prepare(&options.to, &options.login, from)?;
    push.retain_statements(&trust);
    let pushed = push.send()?;
    let all = PushStats {
        sent: pushed.iter().map(|(_, stats)| stats.sent).sum(),
        present: pushed.iter().map(|(_, stats)| stats.present).sum(),
    };
    if options.json {
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

/// Everything of a source that goes to a registry, under the names that it gets there.
pub struct Push {
    registry: Registry,
    artifacts: Vec<Artifact>,
    signatures: Tree,
    attachments: Vec<attach::Attachment>,
}

impl Push {
    /// Reads the source and decides about names and logins; sends nothing.
    pub fn prepare(
        to: &Destination,
        login: &ConnectionOptions,
        from: &Source,
    ) -> anyhow::Result<Self> {
        let target = Target::parse(to)?;
        let has_charts = matches!(from, Source::Release(_));
        if !has_charts && to.charts_to.is_some() {
            let usage = "--charts-to is for a release: archives hold no charts";
            return Err(BadUsage(usage.to_owned()).into());
        }
        let mut artifacts = images_of(from)?;
        let attachments = attachments(from, &target)?;
        for artifact in &mut artifacts {
            artifact.repository = target.below(&artifact.repository);
        }
        if let Source::Release(dist) = from
            && !to.images_only
        {
            let place = to.charts_to.clone();
            let place = place.unwrap_or_else(|| target.below(CHARTS));
            artifacts.extend(charts_of(dist, &place)?);
        }
        let host = target.host;
        for Artifact {
            repository, tag, ..
        } in &artifacts
        {
            ensure!(
                names::is_repository(repository) && names::is_tag(tag),
                "`{host}/{repository}:{tag}` is too long, or not the name of an image: name a shorter path"
            );
        }
        Ok(Self {
            registry: login.open(host)?,
            artifacts,
            signatures: signatures_of(from)?,
            attachments,
        })
    }

    /// Leaves out the statements of builders whose keys are not given.
    pub fn retain_statements(&mut self, trust: &Trust) {
        let signatures = &mut self.signatures.0;
        signatures.retain(|path, _| !path.starts_with(PROVENANCE) || trust.names_statement(path));
    }

    /// Fails when the registry has any of the names with other bytes, and names all of these.
    pub fn ensure_unpublished(&self) -> anyhow::Result<()> {
        let mut published = Vec::new();
        for artifact in &self.artifacts {
            let name = self.name(artifact);
            let found = self.registry.digest_of(&artifact.repository, &artifact.tag);
            let found = found.map_err(with_hint).with_context(|| name.clone())?;
            let own = artifact.digest();
            if let Some(other) = found.filter(|found| *found != own) {
                published.push(format!("{name} is {other}, this release has {own}"));
            }
        }
        ensure!(
            published.is_empty(),
            "published with other bytes already, which nodes and lists may name: {}; give the release a new version",
            published.join("; ")
        );
        Ok(())
    }

    /// Sends what the registry does not have; returns the names with the numbers of bytes.
    pub fn send(&self) -> anyhow::Result<Vec<(String, PushStats)>> {
        let host = self.registry.host();
        let attached = self.attachments.iter().map(attach::Attachment::size);
        let total = self.artifacts.iter().map(size).chain(attached).sum();
        let progress = ui::Progress::new(&format!("push to {host}"), total);
        let mut pushed = Vec::new();
        for artifact in &self.artifacts {
            let name = self.name(artifact);
            let stats = push::send(&self.registry, artifact, &|len| progress.add(len))
                .map_err(with_hint)
                .with_context(|| name.clone())?;
            pushed.push((name, stats));
        }
        for artifact in &self.artifacts {
            let subject = subject(artifact);
            let name = format!("{host}/{}@{}", artifact.repository, subject.digest);
            let attach = signatures::attach(
                &self.registry,
                &artifact.repository,
                &subject,
                &self.signatures,
                &|_| {},
            );
            let stats = attach
                .map_err(with_hint)
                .with_context(|| format!("cannot attach the signatures of {name}"))?;
            if stats != PushStats::default() {
                pushed.push((format!("signatures of {name}"), stats));
            }
        }
        for attachment in &self.attachments {
            let name = attachment.name(host);
            let stats = attachment
                .send(&self.registry, &|len| progress.add(len))
                .map_err(with_hint)
                .with_context(|| name.clone())?;
            pushed.push((name, stats));
        }
        progress.finish();
        Ok(pushed)
    }

    /// Gives further tags to what has the tag `of`: those that `choose` returns for the tags of its repository. Returns the names that
    /// changed.
    pub fn retag(
        &self,
        of: &str,
        choose: impl Fn(&BTreeSet<String>) -> Vec<String>,
    ) -> anyhow::Result<Vec<String>> {
        let mut changed = Vec::new();
        for artifact in self.artifacts.iter().filter(|one| one.tag == of) {
            let repository = &artifact.repository;
            let name = self.name(artifact);
            let context = || format!("cannot give {name} additional tags");
            let tags = self.registry.tags(repository);
            let tags = tags.map_err(with_hint).with_context(context)?;
            ensure!(
                tags.contains(of),
                "cannot give {name} further tags: the registry has it and does not list it, so what else it has is unknown"
            );
            for tag in choose(&tags) {
                let further = Artifact {
                    tag,
                    ..artifact.clone()
                };
                let sent = push::tag(&self.registry, &further);
                if sent.map_err(with_hint).with_context(context)? {
                    changed.push(self.name(&further));
                }
            }
        }
        Ok(changed)
    }

    fn name(&self, artifact: &Artifact) -> String {
        let (host, repository) = (self.registry.host(), &artifact.repository);
        format!("{host}/{repository}:{}", artifact.tag)
    }
}

/// A registry and the path below which everything goes.
struct Target<'a> {
    host: &'a str,
    path: &'a str,
}

impl<'a> Target<'a> {
    fn parse(to: &'a Destination) -> anyhow::Result<Self> {
        let target = to.registry.strip_prefix("oci://");
        let target = target.unwrap_or(&to.registry).trim_end_matches('/');
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
        let charts_to = to.charts_to.as_deref();
        for (place, repository) in [("REGISTRY", own_path), ("--charts-to", charts_to)] {
            ensure!(
                repository.is_none_or(names::is_repository),
                "`{}` in {place} is not a repository: write lower-case letters and digits, with . _ - and / between",
                repository.unwrap_or_default()
            );
        }
        Ok(Self { host, path })
    }

    fn below(&self, repository: &str) -> String {
        match self.path {
            "" => repository.to_owned(),
            path => format!("{path}/{repository}"),
        }
    }
}

/// Returns the signatures of a release, none for others and for a release that is not signed.
fn signatures_of(from: &Source) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    if let Source::Release(dist) = from {
        for dir in [IMAGES, PROVENANCE] {
            let path = dist.join(dir);
            if path.is_dir() {
                let files = Tree::read_below_name(&path, dir, LIMIT)?;
                tree.extend(files);
            }
        }
    }
    Ok(tree)
}

/// Returns the manifest that gets the tag.
fn subject(artifact: &Artifact) -> Descriptor {
    let (media_type, bytes) = artifact
        .manifests
        .last()
        .expect("an artifact has a manifest");
    Descriptor::of(media_type, bytes)
}

fn size(artifact: &Artifact) -> u64 {
    let blobs = artifact.blobs.values().map(Vec::len);
    let manifests = artifact.manifests.iter().map(|(_, bytes)| bytes.len());
    blobs.chain(manifests).sum::<usize>() as u64
}

fn images_of(from: &Source) -> anyhow::Result<Vec<Artifact>> {
    match from {
        Source::Release(_) => Ok(images::artifacts(&from.layout()?)?),
        Source::Medium(dir) => {
            let layout = from.layout()?;
            note_other_digests(dir, &layout);
            Ok(images::artifacts(&layout)?)
        }
        // It is for one architecture, so its tags name manifests, as in the archive.
        Source::Archive(path) => Ok(images::artifacts(&source::archive_layout(path)?)?),
    }
}

/// Returns what belongs to images of a release, in the repositories of the target.
fn attachments(from: &Source, target: &Target<'_>) -> anyhow::Result<Vec<attach::Attachment>> {
    let Source::Release(dist) = from else {
        return Ok(Vec::new());
    };
    let attachments = attach::attachments(dist);
    let mut attachments = attachments.with_context(|| {
        format!(
            "cannot read the lists of images from {}: name the directory of a release",
            dist.display()
        )
    })?;
    for attachment in &mut attachments {
        attachment.repository = target.below(&attachment.repository);
    }
    Ok(attachments)
}

/// Says which images get other digests than the release's: those of a directory without the archives of all its architectures.
fn note_other_digests(dir: &Path, layout: &Layout) {
    let listed = std::fs::read_to_string(dir.join(lists::ALL_DIGESTS)).unwrap_or_default();
    for line in lists::digests(&layout.images).lines() {
        if !listed.lines().any(|known| known == line) {
            ui::note(&format!(
                "{line}: the digest is not the one of {}, since the directory has not all architectures",
                lists::ALL_DIGESTS
            ));
        }
    }
}

/// Returns the charts of a release, below a repository.
fn charts_of(dist: &Path, to: &str) -> anyhow::Result<Vec<Artifact>> {
    let charts = Tree::read(&dist.join("charts/assets")).with_context(|| {
        format!(
            "cannot read charts from {}: name the directory of a release",
            dist.display()
        )
    })?;
    let archives = charts.0.iter();
    let archives = archives.filter(|(path, _)| !path.ends_with(CHART));
    let artifact = |(path, file): (&String, &File)| {
        let provenance = charts.get(&format!("{path}{CHART}"));
        chart(&file.bytes, provenance, to).with_context(|| path.clone())
    };
    archives.map(artifact).collect()
}

fn chart(tgz: &[u8], provenance: Option<&[u8]>, to: &str) -> anyhow::Result<Artifact> {
    let artifact = charts::artifact(tgz, provenance)?;
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
