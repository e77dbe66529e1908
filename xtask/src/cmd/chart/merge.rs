//! `chart merge`: adds charts to a repository that clients use. No published byte changes; everything is checked before the first write,
//! and the index is written last.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use ::chart::{
    Distro, Identity,
    index::{
        Packed,
        check::{self, Finding, Unpacked},
        layout::RepositoryLayout,
        merge::{self, Listing},
        read::Index,
    },
    pack::is_stray_file,
    package::{CHART_YAML, Package},
};
use anyhow::{Context as _, bail, ensure};
use archive::digest::sha256;
use clap::ValueEnum;
use release::signatures;
use serde_json::json;

use super::repository::{self, INDEX};
use crate::{
    charts,
    description::{self, ChartEntry, Release},
    project::Project,
    tree::Tree,
    ui,
};

/// Add charts to a charts repository; no published entry or file changes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart merge --release dist --into ../rke2-charts --layout rke2 --json\n  cargo xtask chart merge --into ../k3s-charts --layout k3s k3s-multus-4.3.17+upv4.3.017.tgz"
)]
pub(super) struct Args {
    /// Archives of charts; those of --release, or this checkout's, for that distro unless set
    #[arg(value_name = "TGZ")]
    charts: Vec<PathBuf>,
    /// Release whose charts are added, as its release.json names them; this checkout's unless set
    #[arg(long, value_name = "DIR", conflicts_with = "charts")]
    release: Option<PathBuf>,
    /// Directory with index.yaml, assets/ and charts/, or an empty one for a new repository
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Layout of the repository
    #[arg(long, value_enum)]
    layout: Style,
    /// Print what was added as JSON
    #[arg(long)]
    json: bool,
}

/// The known layouts of repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Style {
    /// assets/NAME/NAME-crd-VERSION.tgz, charts/NAME/NAME-crd/VERSION/
    Rke2,
    /// assets/NAME-crd/NAME-crd-VERSION.tgz, charts/NAME-crd/VERSION/
    K3s,
}

/// The repository into which charts are merged.
struct Repository<'a> {
    dir: &'a Path,
    layout: RepositoryLayout,
    /// The paths of the archives in its index.
    listed: BTreeSet<String>,
}

/// A chart on its way into a repository.
pub(crate) struct Source {
    /// Its name in messages.
    origin: String,
    archive: Vec<u8>,
    /// Its signature for Helm.
    signature: Option<Vec<u8>>,
}

impl Source {
    /// Returns a chart with the signature that lies next to its archive, if there is one.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let signature = signature_path(path);
        Ok(Self {
            origin: path.display().to_string(),
            archive: super::read(path)?,
            signature: read_present(&signature)?,
        })
    }
}

/// Returns the path of the signature of an archive, where Helm looks for it.
fn signature_path(archive: &Path) -> PathBuf {
    let mut path = archive.as_os_str().to_owned();
    path.push(signatures::CHART);
    path.into()
}

/// Reads a file that may be absent.
fn read_present(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    path.exists().then(|| super::read(path)).transpose()
}

pub(super) fn run(project: &Project, args: &Args) -> anyhow::Result<()> {
    let (layout, distro) = match args.layout {
        Style::Rke2 => (RepositoryLayout::Rke2, Distro::Rke2),
        Style::K3s => (RepositoryLayout::K3s, Distro::K3s),
    };
    let mut epoch = project.epoch;
    let sources = if let Some(dir) = &args.release {
        let release = release(dir)?;
        epoch = release.epoch;
        release_charts(dir, &release, distro)?
    } else if args.charts.is_empty() {
        own(project, distro)?
    } else {
        let charts = args.charts.iter().map(|path| Source::read(path));
        charts.collect::<anyhow::Result<_>>()?
    };
    let merge = Merge::of(&args.into, layout, &sources, epoch)?;
    let count = sources.len();
    let added = merge.write()?;
    if args.json {
        let item = |(name, version): &(String, String)| json!({"name": name, "version": version});
        ui::json(&added.iter().map(item).collect::<Vec<_>>())?;
    } else {
        for (name, version) in &added {
            ui::data(&format!("{name} {version}\n"))?;
        }
    }
    ui::note(&format!(
        "{}: {} added, {} published already; next: cargo xtask chart index --check {}",
        args.into.display(),
        added.len(),
        count - added.len(),
        args.into.display()
    ));
    Ok(())
}

/// Charts on their way into a repository, after everything was checked.
pub(crate) struct Merge<'a> {
    dir: &'a Path,
    tree: Tree,
    added: Vec<(String, String)>,
    /// Keeps other runs from writing between the reading of the index and its writing.
    _lock: fs::File,
}

impl<'a> Merge<'a> {
    /// Reads a repository of all charts of this project, in which each chart has a directory of its own.
    pub(crate) fn read(dir: &'a Path, sources: &[Source], epoch: u64) -> anyhow::Result<Self> {
        Self::of(dir, RepositoryLayout::K3s, sources, epoch)
    }

    fn of(
        dir: &'a Path,
        layout: RepositoryLayout,
        sources: &[Source],
        epoch: u64,
    ) -> anyhow::Result<Self> {
        ensure_repository(dir)?;
        let lock = fs::File::open(dir)?;
        lock.lock()
            .with_context(|| format!("cannot lock {}", dir.display()))?;
        let path = dir.join(INDEX);
        let index = match fs::read_to_string(&path) {
            Ok(index) => Some(index),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let context = || format!("cannot merge into {}", path.display());
        let parsed = index.as_deref().map(Index::read).transpose();
        let listed = parsed
            .with_context(context)?
            .as_ref()
            .map(check::listed)
            .unwrap_or_default();
        ensure_layout(dir, layout, &listed)?;
        let repository = Repository {
            dir,
            layout,
            listed,
        };
        let mut tree = Tree::default();
        let mut listings = Vec::new();
        for source in sources {
            let listing = repository.add(source, &mut tree);
            let context = || format!("cannot publish {}", source.origin);
            listings.push(listing.with_context(context)?);
        }
        let now = api::time::rfc3339(epoch);
        let merged = merge::merge(index.as_deref(), &listings, &now).with_context(context)?;
        tree.add(INDEX, merged.text);
        Ok(Self {
            dir,
            tree,
            added: merged.added,
            _lock: lock,
        })
    }

    /// Writes charts and index; returns name and version of each chart that is new.
    pub(crate) fn write(self) -> anyhow::Result<Vec<(String, String)>> {
        self.tree.update(self.dir, &[])?;
        Ok(self.added)
    }
}

/// Returns all charts of a release.
pub(crate) fn charts_of(dir: &Path, release: &Release) -> anyhow::Result<Vec<Source>> {
    let all = release.charts.iter();
    all.map(|chart| read_chart(dir, chart)).collect()
}

/// Fails unless the directory is a charts repository, or the empty beginning of one.
fn ensure_repository(dir: &Path) -> anyhow::Result<()> {
    let name = dir.display();
    ensure!(
        dir.is_dir(),
        "there is no directory {name}: name another one, or make it, empty, for a new repository"
    );
    let context = || format!("cannot read {name}");
    let mut entries = fs::read_dir(dir).with_context(context)?;
    let is_other = |entry: &io::Result<fs::DirEntry>| {
        let hidden = entry
            .as_ref()
            .map(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
        !hidden.unwrap_or(false)
    };
    let is_source = dir.join("Cargo.toml").exists();
    let is_empty = !entries.any(|entry| is_other(&entry));
    ensure!(
        !is_source && (is_empty || dir.join(INDEX).is_file()),
        "{name} is not a charts repository: name a directory with {INDEX}, or an empty one"
    );
    Ok(())
}

/// Fails where the repository shows another layout: by its unpacked charts, or without any by the paths of its archives.
fn ensure_layout(
    dir: &Path,
    layout: RepositoryLayout,
    listed: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let name = dir.display();
    let unpacked = layout_of_unpacked(dir).with_context(|| format!("cannot read {name}"))?;
    let assets = repository::files(dir, "assets")?;
    let paths = listed.iter().chain(assets.keys()).map(String::as_str);
    let found = unpacked.or_else(|| RepositoryLayout::from_assets(paths));
    if let Some(found) = found.filter(|found| *found != layout) {
        let found = found.as_str();
        bail!("{name} is laid out as {found}-charts: give --layout {found}, or another directory");
    }
    Ok(())
}

/// Returns the layout of the first unpacked chart in a repository.
fn layout_of_unpacked(dir: &Path) -> io::Result<Option<RepositoryLayout>> {
    let subdirs = |dir: &Path| -> io::Result<Vec<PathBuf>> {
        if !dir.is_dir() {
            return Ok(Vec::new());
        }
        let paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
        let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
        paths.retain(|path| path.is_dir());
        paths.sort();
        Ok(paths)
    };
    for package in subdirs(&dir.join("charts"))? {
        for below in subdirs(&package)? {
            if below.join(CHART_YAML).exists() {
                return Ok(Some(RepositoryLayout::K3s));
            }
            let mut versions = subdirs(&below)?.into_iter();
            if versions.any(|version| version.join(CHART_YAML).exists()) {
                return Ok(Some(RepositoryLayout::Rke2));
            }
        }
    }
    Ok(None)
}

pub(super) fn own(project: &Project, distro: Distro) -> anyhow::Result<Vec<Source>> {
    let name = Identity::of(distro).name;
    let packed = charts::pack(project.settings())?.into_iter();
    let own = packed.filter(|chart| chart.name.starts_with(name));
    let source = |chart: Packed| Source {
        origin: chart.name,
        archive: chart.bytes,
        signature: None,
    };
    Ok(own.map(source).collect())
}

fn release(dir: &Path) -> anyhow::Result<Release> {
    let path = dir.join(description::FILE);
    let bytes = fs::read(&path).with_context(|| {
        format!(
            "cannot read {}: name the directory of a release with --release",
            path.display()
        )
    })?;
    Release::parse(&bytes).with_context(|| path.display().to_string())
}

/// Returns the charts that a release has for a distro, with the digests in its description.
fn release_charts(dir: &Path, release: &Release, distro: Distro) -> anyhow::Result<Vec<Source>> {
    let name = Identity::of(distro).name;
    let own = release
        .charts
        .iter()
        .filter(|chart| chart.name.starts_with(name));
    own.map(|chart| read_chart(dir, chart)).collect()
}

/// Returns a chart of a release, with the digest in its description.
fn read_chart(dir: &Path, chart: &ChartEntry) -> anyhow::Result<Source> {
    let path = dir.join(&chart.path);
    let source = Source::read(&path)?;
    ensure!(
        sha256(&source.archive) == chart.digest,
        "{} is not the chart that {} names: copy the release again, and check it with `cargo xtask verify {}`",
        path.display(),
        description::FILE,
        dir.display()
    );
    Ok(source)
}

impl Repository<'_> {
    /// Adds an archive, its signature and its files to the tree; fails when other bytes are published under their paths. What lies there
    /// without being published is named as `chart index --check` names it.
    fn add(&self, source: &Source, tree: &mut Tree) -> anyhow::Result<Listing> {
        let (dir, layout) = (self.dir, self.layout);
        let bytes = &source.archive[..];
        let package = Package::read(bytes)?;
        // The version becomes a part of paths, so it has to be a valid one.
        package.version()?;
        let metadata = &package.metadata;
        if let Some(file) = package.files.iter().find(|file| is_stray_file(&file.path)) {
            bail!(
                "its {} is a stray file of an editor or of patch: pack it again without",
                file.path
            );
        }
        let asset = layout.asset(&metadata.name, &metadata.version);
        let published = dir.join(&asset);
        let is_listed = self.listed.contains(&asset);
        let is_present = published.exists();
        if is_present && super::read(&published)? != bytes {
            ensure!(
                is_listed,
                Finding::orphan(&dir.display().to_string(), Some(layout), &asset)
            );
            bail!(
                "{} is published with other bytes: give the chart a new version",
                published.display()
            );
        }
        if let Some(signature) = &source.signature {
            let published = signature_path(&published);
            let found = read_present(&published)?;
            ensure!(
                found.is_none_or(|found| found == *signature),
                "{} is published with other bytes: the chart is signed by another key, so give it a new version or remove that file",
                published.display()
            );
            tree.add(format!("{asset}{}", signatures::CHART), signature.clone());
        }
        let unpacked = layout.directory(&metadata.name, &metadata.version);
        let found = repository::unpacked_files(dir, &unpacked)?;
        if !found.is_empty() {
            let same = Package::from_files(found)
                .is_ok_and(|found| Unpacked::of(&found) == Unpacked::of(&package));
            if !same && is_present {
                let (directory, asset) = (unpacked, asset);
                bail!(Finding::Differs { directory, asset });
            }
            ensure!(same || is_listed, Finding::Directory(unpacked));
            ensure!(
                same,
                "{} is published with other files: give the chart a new version",
                dir.join(&unpacked).display()
            );
        }
        for file in &package.files {
            tree.add(format!("{unpacked}/{}", file.path), file.bytes.clone());
        }
        tree.add(&asset, bytes);
        Ok(Listing {
            metadata: package.metadata,
            digest: sha256(bytes),
            url: asset,
        })
    }
}
