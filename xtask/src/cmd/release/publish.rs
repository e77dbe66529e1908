//! `release publish`: images and charts to a registry, charts to a repository, files to a directory that a forge takes.
//!
//! All places are read before any is written to. What one has with other bytes under a name of this release is refused, and a tag that moves
//! with releases never moves back.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use airgap::commands::{
    connection::ConnectionOptions,
    push::{Destination, Push},
    trust,
};
use anyhow::{Context as _, ensure};
use cmdline::{BadUsage, counted};
use release::{
    signatures::{self, Trust},
    source::Source,
};
use semver::Version;
use serde_json::json;
use signing::PublicKey;

use super::check;
use crate::{
    assets, changelog,
    cmd::{chart, sign},
    description::{self, Release},
    project::Project,
    release_line,
    tree::Tree,
    ui,
};

/// Publish a release: to a registry, to a charts repository, as files for a forge, or to all of them
///
/// A second run changes nothing. Names that are published with other bytes are refused before anything is written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask release publish --registry registry.example/team --user me\n  cargo xtask release publish --charts ../charts --files assets --signing-key release.key\n  cargo xtask release publish --registry 127.0.0.1:5000 --plain-http --charts /tmp/charts --files /tmp/assets --json"
)]
pub(super) struct Args {
    /// Release to publish
    #[arg(long, value_name = "DIR", default_value = "dist")]
    dist: PathBuf,
    /// Registry for images, the lists of what is inside of them, and charts, with an optional path in it
    #[arg(long)]
    registry: Option<String>,
    /// Send charts below this repository of the registry; below charts/ of its path unless set
    #[arg(long, value_name = "REPOSITORY", requires = "registry")]
    charts_to: Option<String>,
    /// Send no charts to the registry
    #[arg(long, conflicts_with = "charts_to", requires = "registry")]
    images_only: bool,
    #[command(flatten)]
    login: ConnectionOptions,
    /// Directory of a charts repository, or an empty one, to add the charts to
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
    /// Directory for the files that a forge takes, under flat names with checksums and notes
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// Sign the checksums of --files with this private key, the one that signed the release
    #[arg(long, value_name = "FILE", requires = "files")]
    signing_key: Option<PathBuf>,
    #[command(flatten)]
    trust: trust::Options,
    /// Accept a release of uncommitted changes or a rehearsal, for trials
    #[arg(long)]
    allow_dirty: bool,
    /// Print what was published as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.registry.is_none() && args.charts.is_none() && args.files.is_none() {
        let usage = "name a place: --registry, --charts or --files";
        return Err(BadUsage(usage.to_owned()).into());
    }
    let signing_key = args.signing_key.as_deref().map(sign::secret_key);
    let signing_key = signing_key.transpose()?;
    let mut trust = args.trust.trust()?;
    if let Some(key) = &signing_key {
        // The files are signed by whoever signed the release, and by nobody else.
        ensure!(
            trust.key.as_ref().is_none_or(|one| *one == key.public()),
            "--signing-key is not the private half of --key: name the key that signed the release"
        );
        trust.key = Some(key.public());
    }
    let release = check::publishable(&args.dist, &trust, args.allow_dirty)?;
    let version: Version = release.version.parse().context("the release's version")?;
    let files = args.files.as_deref().map(|dir| {
        let notes = notes(&Project::open()?, &version, args.allow_dirty)?;
        let tree = Tree::read(&args.dist)?;
        let files = assets::assets(&tree, &release.version, &notes, signing_key.as_ref())?;
        ensure_unchanged(dir, &files, trust.key.as_ref())?;
        anyhow::Ok((dir, files))
    });
    let places = Places::read(args, &release, &version, files.transpose()?, &trust)?;
    places.write(args, &version)
}

/// Everything that is going to be written, after all places were read.
struct Places<'a> {
    push: Option<Push>,
    charts: Option<chart::Merge<'a>>,
    files: Option<(&'a Path, Tree)>,
    /// Whether the release is the newest one among the tags of the checkout.
    is_latest: bool,
}

impl<'a> Places<'a> {
    fn read(
        args: &'a Args,
        release: &Release,
        version: &Version,
        files: Option<(&'a Path, Tree)>,
        trust: &Trust,
    ) -> anyhow::Result<Self> {
        let push = args.registry.as_ref().map(|registry| {
            let to = Destination {
                registry: registry.clone(),
                charts_to: args.charts_to.clone(),
                images_only: args.images_only,
            };
            let mut push = Push::prepare(&to, &args.login, &Source::Release(args.dist.clone()))?;
            push.retain_statements(trust);
            push.ensure_unpublished()?;
            anyhow::Ok(push)
        });
        let charts = args.charts.as_ref().map(|dir| {
            let sources = chart::charts_of(&args.dist, release)?;
            chart::Merge::read(dir, &sources, release.epoch)
        });
        Ok(Self {
            push: push.transpose()?,
            charts: charts.transpose()?,
            files,
            is_latest: release_line::is_latest(version, &Project::open()?.released()?),
        })
    }

    fn write(self, args: &Args, version: &Version) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        let mut moved = Vec::new();
        let mut sent = 0;
        if let Some(push) = &self.push {
            for (name, stats) in push.send()? {
                lines.push(format!("{name}: {} bytes sent", stats.sent));
                sent += stats.sent;
            }
            moved = push.retag(&format!("v{version}"), |tags| moving_tags(version, tags))?;
            lines.extend(
                moved
                    .iter()
                    .map(|name| format!("{name}: is v{version} now")),
            );
        }
        let mut added = Vec::new();
        if let Some(charts) = self.charts {
            added = charts.write()?;
            let dir = args.charts.as_deref().unwrap_or(Path::new(""));
            let line = |(name, version): &(String, String)| {
                format!("{}: {name} {version} added", dir.display())
            };
            lines.extend(added.iter().map(line));
        }
        let mut files = 0;
        if let Some((dir, tree)) = &self.files {
            files = tree.0.len();
            tree.update(dir, &[])?;
            lines.push(format!("{}: {}", dir.display(), counted(files, "file")));
        }
        if args.json {
            let added: Vec<_> = added
                .iter()
                .map(|(name, version)| json!({"name": name, "version": version}))
                .collect();
            return ui::json(&json!({
                "version": version.to_string(), "tag": format!("v{version}"), "latest": self.is_latest, "prerelease": !version.pre.is_empty(),
                "sent": sent, "moved": moved, "charts": added, "files": files,
            }));
        }
        lines
            .iter()
            .try_for_each(|line| ui::data(&format!("{line}\n")))
    }
}

/// Returns the tags that move to this version in a repository with these tags.
fn moving_tags(version: &Version, tags: &BTreeSet<String>) -> Vec<String> {
    let published = release_line::versions(tags.iter().map(String::as_str));
    release_line::moving_tags(version, &published)
}

/// Returns the notes of the release; a trial may have none.
fn notes(project: &Project, version: &Version, is_trial: bool) -> anyhow::Result<String> {
    let notes = changelog::notes(&project.changelog()?, version);
    if is_trial {
        return Ok(notes.unwrap_or_else(|_| format!("A trial of {version}.\n")));
    }
    notes
}

/// Fails when the directory has other files than these, or one of them with other bytes: a forge takes all files that are in it.
///
/// The signature over the checksums may be there already, by this key.
fn ensure_unchanged(dir: &Path, files: &Tree, key: Option<&PublicKey>) -> anyhow::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let mut found = Tree::read(dir)?;
    let path = signatures::sums_signature(description::SUMS);
    if files.get(&path).is_none()
        && let Some(signature) = found.0.remove(&path)
    {
        let path = dir.join(path);
        let key = key.with_context(|| {
            format!(
                "{} is there and not checked: name the public key with --key",
                path.display()
            )
        })?;
        let sums = files.get(description::SUMS).unwrap_or_default();
        key.verify_text(sums, &signature.bytes).with_context(|| {
            format!(
                "{} is not a signature of --key over these files: sign them with --signing-key, or name another directory with --files",
                path.display()
            )
        })?;
    }
    for (path, file) in &found.0 {
        let name = dir.join(path);
        let own = files.0.get(path);
        let own = own.with_context(|| {
            format!(
                "{} is not a file of this release: name another directory with --files, or remove it",
                name.display()
            )
        })?;
        ensure!(
            own == file,
            "{} is there with other bytes or another mode: give the release a new version, or name another directory with --files",
            name.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use archive::digest::sha256;
    use signing::SecretKey;

    use super::*;

    #[test]
    fn files_of_another_release_are_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("files");
        let mut files = Tree::default();
        files.add("a", "1");
        files.add_program("b", b"2".to_vec());
        ensure_unchanged(&out, &files, None).unwrap();
        files.update(&out, &[]).unwrap();
        ensure_unchanged(&out, &files, None).unwrap();
        let refused = |files: &Tree, expected: &str| {
            let error = ensure_unchanged(&out, files, None).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let mut other = files.clone();
        other.add("a", "other");
        refused(&other, "a is there with other bytes");
        let mut other = files.clone();
        other.add("b", "2");
        refused(&other, "b is there with other bytes or another mode");
        let mut other = files.clone();
        other.0.remove("a");
        refused(&other, "a is not a file of this release");
    }

    #[test]
    fn checksums_that_are_signed_stay_so() {
        let dir = tempfile::tempdir().unwrap();
        let pem = include_str!("../../../../signing/tests/fixtures/p256.pem");
        let key = SecretKey::from_pem(pem).unwrap();
        let public = key.public();
        let files = |key| assets::assets(&Tree::default(), "1.2.3", "- New.\n", key).unwrap();
        files(Some(&key)).update(dir.path(), &[]).unwrap();
        ensure_unchanged(dir.path(), &files(Some(&key)), Some(&public)).unwrap();
        // A run without the private key finds the signature and checks it.
        ensure_unchanged(dir.path(), &files(None), Some(&public)).unwrap();
        let refused = |key: Option<&PublicKey>, expected: &str| {
            let error = ensure_unchanged(dir.path(), &files(None), key).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        refused(None, "is there and not checked: name the public key");
        let pem = include_str!("../../../../signing/tests/fixtures/ed25519.pem");
        let other = SecretKey::from_pem(pem).unwrap().public();
        refused(Some(&other), "is not a signature of --key over these files");
    }

    /// Runs the commands of the page in a directory with files of a release and `release.pub`.
    fn openssl_accepts(dir: &Path) -> bool {
        let pages = docs::Pages::of_checkout().unwrap();
        let page = pages.get("docs/verify.md").unwrap();
        let mut blocks = page.blocks.iter();
        let block = blocks
            .find(|block| block.text.contains("--ignore-missing"))
            .unwrap();
        let mut shell = std::process::Command::new("/bin/sh");
        shell.current_dir(dir).args(["-ec", &block.text]);
        shell.output().unwrap().status.success()
    }

    #[test]
    fn one_file_is_verified_with_openssl_as_the_page_says() {
        let dir = tempfile::tempdir().unwrap();
        let pem = include_str!("../../../../signing/tests/fixtures/p256.pem");
        let key = SecretKey::from_pem(pem).unwrap();
        let mut release = Tree::default();
        release.add_program("bin/amd64/multus-distro", b"program".to_vec());
        release.add("release.json", "{}");
        let files = assets::assets(&release, "1.2.3", "", Some(&key)).unwrap();
        let mut download = Tree::default();
        for name in ["SHA256SUMS", "SHA256SUMS.sig", "multus-distro-amd64"] {
            download.add(name, files.get(name).unwrap());
        }
        download.add("release.pub", key.public().to_pem());
        let accepted = |changes: &[(&str, &str)]| {
            let mut changed = download.clone();
            for (path, bytes) in changes {
                changed.add(*path, *bytes);
            }
            changed.update(dir.path(), &[]).unwrap();
            openssl_accepts(dir.path())
        };
        assert!(accepted(&[("other", "a file of the reader")]));
        let program = ("multus-distro-amd64", "another program");
        assert!(!accepted(&[program]));
        let pem = include_str!("../../../../signing/tests/fixtures/ed25519.pem");
        let other = SecretKey::from_pem(pem).unwrap();
        assert!(!accepted(&[("release.pub", &other.public().to_pem())]));
        // Whoever changes a file and its line has no signature over the list.
        let sums = archive::lists::sums([(program.0, sha256(program.1.as_bytes()))]);
        assert!(!accepted(&[program, ("SHA256SUMS", &sums)]));
    }

    #[test]
    fn tags_move_by_what_the_repository_has() {
        let tags = ["v5.0.0", "v5.1.0", "v5.1", "latest", "other"].map(str::to_owned);
        let moving = |version: &str| moving_tags(&version.parse().unwrap(), &tags.clone().into());
        assert_eq!(moving("5.0.1"), ["v5.0"]);
        assert_eq!(moving("5.1.1"), ["v5.1", "latest"]);
    }
}
