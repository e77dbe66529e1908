//! `verify DIR`: verifies a release from its files alone, by following every digest.

#[cfg(test)]
mod forgeries;
#[cfg(test)]
mod sample;

use std::path::{Path, PathBuf};

use airgap::commands::{
    trust,
    verify::{check_medium, is_medium, print_release},
};
use anyhow::{Context as _, bail, ensure};
use cmdline::BadUsage;
use release::{
    build::Build,
    signatures::{self, Trust},
    source,
    verify::{self, Checkout, Standard, Verified},
};

use super::{checkout, images};
use crate::{
    arch::Arch,
    description::{self, Release},
    difference,
    project::Project,
    sbom, toolchain,
    tree::Tree,
    ui,
};

/// Check a release or a directory with archives offline, down to the content of every layer, or print where two releases differ
///
/// A release of this checkout's commit is compared with what the checkout derives; any other is judged by its own release.json.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask verify dist\n  cargo xtask verify dist --tag vX.Y.Z\n  cargo xtask verify dist --key release.pub --attested-by a.pub --attested-by b.pub\n  cargo xtask verify dist --json\n  cargo xtask verify dist/airgap\n  cargo xtask verify --explain dist /tmp/other-dist"
)]
pub(crate) struct Args {
    /// Directory of the release, or one with archives and their checksums
    #[arg(required_unless_present = "explain")]
    dir: Option<PathBuf>,
    /// Name the first byte in which two releases differ, and its file
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "dir")]
    explain: Vec<PathBuf>,
    #[command(flatten)]
    trust: trust::Options,
    /// Fail unless the release has this tag's version and commit
    #[arg(long)]
    tag: Option<String>,
    /// Accept a release of a checkout with uncommitted changes, for trials
    #[arg(long, conflicts_with = "tag")]
    allow_dirty: bool,
    /// Print the release's description as JSON when it is sound
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let [one, other] = &args.explain[..] {
        return explain(one, other);
    }
    let dir = args
        .dir
        .as_ref()
        .context("name the directory of a release")?;
    let trust = args.trust.trust()?;
    if !source::is_release(dir) && is_medium(dir) {
        ensure!(
            args.tag.is_none(),
            BadUsage(
                "--tag is for a release: a directory with archives names no commit".to_owned()
            )
        );
        return check_medium(dir, &trust, args.json);
    }
    let verified = verified(dir, &trust)?;
    let release = &verified.release;
    if let Some(tag) = &args.tag {
        check_tag(release, tag, &Project::open()?.commit_of_tag(tag)?)?;
    }
    if !args.allow_dirty {
        release.check_clean()?;
    }
    print_release(dir, &verified, args.json)
}

/// Verifies a release by the standard that fits its commit, its lists of what is inside, and its signatures by these keys.
pub(crate) fn verified(dir: &Path, trust: &Trust) -> anyhow::Result<Verified> {
    let checkout = checkout();
    // Without git nothing is known of the checkout, which is then no measure of a release.
    let commit = Project::open().ok().map(|project| project.commit);
    let verified = verify::dir(dir, trust, |release| {
        standard(release, commit.as_deref(), &checkout)
    })?;
    compare_with_crates(&verified.release)?;
    compare_with_tools(&verified.release)?;
    Ok(verified)
}

/// Compares the lists of what is inside with the crates that cargo resolves, if the release is of this checkout.
fn compare_with_crates(release: &Release) -> anyhow::Result<()> {
    let Ok(project) = Project::open() else {
        return Ok(());
    };
    if release.commit != project.commit {
        return Ok(());
    }
    let project = Project {
        images: release.image_prefix.clone(),
        ..project
    };
    match images::inventory(&project) {
        Ok(inventory) => sbom::check_graph(&inventory, release),
        Err(error) => {
            ui::note(&format!(
                "the lists in sbom/ are not compared with the crates, which are not here: run `cargo fetch --locked` ({error:#})"
            ));
            Ok(())
        }
    }
}

/// Compares what the programs were built with to the tools of this machine, if the release is of this checkout and its commit.
///
/// Uncommitted changes say nothing of that: a rehearsal of a release has programs of an earlier one.
fn compare_with_tools(release: &Release) -> anyhow::Result<()> {
    let Ok(project) = Project::open() else {
        return Ok(());
    };
    if release.commit != project.commit || project.is_dirty() {
        return Ok(());
    }
    let arches: Option<Vec<_>> = release
        .architectures
        .iter()
        .map(|name| Arch::parse(name))
        .collect();
    let arches = arches.context("the release has unknown architectures")?;
    if let Some(here) = toolchain::record(&project, &arches)? {
        return check_build(release, &here);
    }
    ui::note(
        "the record of what the programs were built with is not compared, since the tools are not all here: \
         `cargo xtask build` names them",
    );
    Ok(())
}

/// Fails unless the release was built with the tools and flags of this machine.
fn check_build(release: &Release, here: &Build) -> anyhow::Result<()> {
    let build = release.build.as_ref();
    let build = build.with_context(|| {
        format!(
            "{} does not say what the programs were built with: make the release again",
            description::FILE
        )
    })?;
    let differences = build.differences(here);
    ensure!(
        differences.is_empty(),
        "{}: the programs were built with other tools or flags than this checkout's, there and here: {}",
        description::FILE,
        differences.join("; ")
    );
    Ok(())
}

/// Fails unless the release is the one of a tag, which is at `commit`.
fn check_tag(release: &Release, tag: &str, commit: &str) -> anyhow::Result<()> {
    ensure!(
        tag.strip_prefix('v') == Some(&release.version),
        "the tag is {tag}, the release is {}, whose tag is v{}: \
         set the version in Cargo.toml before the tag, and make the release again",
        release.version,
        release.version
    );
    ensure!(
        release.commit == commit,
        "the tag {tag} is at commit {commit}, the release is of {}: check out the tag and make it again",
        release.commit
    );
    Ok(())
}

/// Returns what a release is held to: the files of the checkout when its commit made the release, else the release's own description.
pub(super) fn standard<'a>(
    release: &Release,
    commit: Option<&str>,
    checkout: &'a Checkout,
) -> Standard<'a> {
    match commit {
        Some(commit) if commit == release.commit => return Standard::Checkout(checkout),
        Some(commit) => ui::note(&format!(
            "the release is of commit {}, this checkout of {commit}: it is judged by its own {}",
            release.commit,
            description::FILE
        )),
        None => {}
    }
    Standard::Description
}

/// Fails with the first difference of two releases, if there is one. Signatures, which differ with the key, are not compared.
fn explain(one: &Path, other: &Path) -> anyhow::Result<()> {
    let read = |dir: &Path| {
        let mut files = Tree::read(dir)?;
        signatures::take(&mut files);
        anyhow::Ok(files)
    };
    match difference::first(&read(one)?, &read(other)?) {
        Some(difference) => bail!(
            "{} and {} differ first in {difference}",
            one.display(),
            other.display()
        ),
        None => ui::data("the same, byte by byte\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(version: &str, commit: &str) -> Release {
        Release {
            schema: 2,
            version: version.to_owned(),
            commit: commit.to_owned(),
            epoch: 0,
            toolchain: String::new(),
            trusted_key: None,
            build: None,
            architectures: Vec::new(),
            image_prefix: chart::ImagePrefix::DEFAULT,
            images: Vec::new(),
            charts: Vec::new(),
            budgets: Vec::new(),
            files: Vec::new(),
        }
    }

    #[test]
    fn checkout_is_the_standard_for_releases_of_its_commit_alone() {
        let measures = checkout();
        let is_checkout = |commit: &str, checkout| {
            let standard = standard(&release("5.0.0", commit), checkout, &measures);
            matches!(standard, Standard::Checkout(_))
        };
        assert!(is_checkout("abc", Some("abc")));
        for (commit, checkout) in [
            ("abc", Some("abd")),
            ("abc", Some("abc-dirty")),
            ("abc-dirty", Some("abc")),
            ("abc", None),
        ] {
            assert!(!is_checkout(commit, checkout), "{commit} {checkout:?}");
        }
    }

    fn build(linker: &str) -> Build {
        Build {
            rustc: "1.95.0".to_owned(),
            rustc_commit: "c0ffee".to_owned(),
            llvm: String::new(),
            cargo: String::new(),
            linker: linker.to_owned(),
            tool_files: std::collections::BTreeMap::new(),
            c_compiler: String::new(),
            c_compiler_lock: archive::digest::sha256(b""),
            crates: archive::digest::sha256(b""),
            targets: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn release_of_other_tools_is_refused() {
        let mut release = release("5.0.0", "abc");
        let error = check_build(&release, &build("LLD 22")).unwrap_err();
        assert!(error.to_string().contains("does not say"), "{error}");
        release.build = Some(build("LLD 22"));
        check_build(&release, &build("LLD 22")).unwrap();
        let error = check_build(&release, &build("LLD 23")).unwrap_err();
        let expected = "linker is `LLD 22` and `LLD 23`";
        assert!(error.to_string().contains(expected), "{error}");
        // The same words do not make the same tool.
        let mut other = build("LLD 22");
        let digest = archive::digest::sha256(b"another linker");
        other.tool_files.insert("rust-lld".to_owned(), digest);
        let error = check_build(&release, &other).unwrap_err();
        let expected = "toolFiles.rust-lld is `absent` and `sha256:";
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn tag_has_the_version_and_commit_of_the_release() {
        let check = |tag: &str, expected: &str| {
            let outcome = check_tag(&release("5.0.0", "abc"), tag, "abc");
            let error = outcome
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(error.starts_with(expected), "{error}");
            assert_eq!(error.is_empty(), expected.is_empty(), "{error}");
        };
        check("v5.0.0", "");
        check("v5.0.1", "the tag is v5.0.1, the release is 5.0.0");
        check(
            "5.0.0",
            "the tag is 5.0.0, the release is 5.0.0, whose tag is v5.0.0",
        );
        for commit in ["abd", "abc-dirty", "unknown"] {
            let error = check_tag(&release("5.0.0", commit), "v5.0.0", "abc").unwrap_err();
            let expected = "the tag v5.0.0 is at commit abc, the release is of ";
            assert!(error.to_string().starts_with(expected), "{error}");
        }
    }
}
