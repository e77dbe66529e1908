//! The statement about how a release was made (SLSA provenance 1): from which commit, with which settings, of which parts, by whom.
//!
//! No clock is read, so that the same builder says the same of the same release.

use anyhow::{Context as _, ensure};
use archive::{
    digest::{Digest, sha256},
    lists,
};
use chart::ImagePrefix;
use serde_json::{Map, Value, json};

use super::statement::Statement;
use crate::{
    description::{self, Release},
    tree::Tree,
};

/// The type of the predicate.
pub const PREDICATE: &str = "https://slsa.dev/provenance/v1";
/// The kind of build, which docs/contributing/signing.md describes.
const BUILD_TYPE: &str =
    "https://github.com/multus-rs/multus-rs/blob/main/docs/contributing/signing.md#build-type-1";
/// The repository of the sources.
const SOURCE: &str = "https://github.com/multus-rs/multus-rs";

/// The facts of a build that its release does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The URI of whoever made it.
    pub builder: String,
    /// The files of the commit that determine what the release consists of.
    pub sources: Vec<Dependency>,
}

/// A file of the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    pub path: String,
    pub digest: Digest,
}

/// Returns the statement about a release.
pub(super) fn statement(
    files: &Tree,
    release: &Release,
    build: &Build,
) -> anyhow::Result<Statement> {
    let predicate = json!({
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": parameters(release),
            "internalParameters": {},
            "resolvedDependencies": dependencies(release, build),
        },
        "runDetails": {"builder": {"id": build.builder}},
    });
    // Images first: clients of registries print the first subject.
    let (images, files): (Vec<_>, _) = subjects(files, release)?
        .into_iter()
        .partition(|(name, _)| release.images.iter().any(|image| image.reference == *name));
    let subjects = images.into_iter().chain(files);
    Ok(Statement::new(subjects, PREDICATE, predicate))
}

/// Checks that a statement is about this release, and returns its builder.
pub(super) fn check(statement: &[u8], files: &Tree, release: &Release) -> anyhow::Result<String> {
    let statement = Statement::parse(statement, PREDICATE)?;
    statement.check_subjects(&subjects(files, release)?)?;
    let build = &statement.predicate["buildDefinition"];
    ensure!(
        build["buildType"] == BUILD_TYPE,
        "the statement is about a build of the type {}, and this program reads {BUILD_TYPE}",
        build["buildType"]
    );
    let found = &build["externalParameters"];
    let expected = parameters(release);
    let names = expected
        .keys()
        .chain(found.as_object().into_iter().flat_map(Map::keys));
    for name in names {
        let (said, is) = (&found[name], expected.get(name).unwrap_or(&Value::Null));
        ensure!(
            said == is,
            "the statement is about a build with the {name} {said}, and {} says {is}",
            description::FILE
        );
    }
    let builder = statement.predicate["runDetails"]["builder"]["id"].as_str();
    Ok(builder
        .context("the statement names no builder")?
        .to_owned())
}

/// Returns what a statement is about: every file, the checksums of all, and every image by the digest that its tag has.
///
/// The checksums come last, so that a difference is named by the file that has it.
fn subjects(files: &Tree, release: &Release) -> anyhow::Result<Vec<(String, Digest)>> {
    let sums = files.get(description::SUMS).unwrap_or_default();
    let text = String::from_utf8_lossy(sums);
    let named = lists::parse_sums(&text);
    let named = named.with_context(|| format!("{} is damaged", description::SUMS))?;
    let images = release.images.iter();
    let images = images.map(|image| (image.reference.clone(), image.digest));
    let sums = (description::SUMS.to_owned(), sha256(sums));
    Ok(named.into_iter().chain(images).chain([sums]).collect())
}

/// Returns what whoever started the build chose.
fn parameters(release: &Release) -> Map<String, Value> {
    let mut parameters = Map::new();
    let mut add = |name: &str, value: Value| parameters.insert(name.to_owned(), value);
    add("source", json!(SOURCE));
    add("commit", json!(release.commit));
    add("version", json!(release.version));
    add("architectures", json!(release.architectures));
    add("sourceDateEpoch", json!(release.epoch));
    if release.image_prefix != ImagePrefix::DEFAULT {
        add("imagePrefix", json!(release.image_prefix.to_string()));
    }
    if let Some(key) = &release.trusted_key {
        add("trustedKey", json!(key));
    }
    parameters
}

/// Returns the parts: the commit and its locks, the toolchain, and the C compiler by the digest of the files that pin it.
fn dependencies(release: &Release, build: &Build) -> Vec<Value> {
    let commit = release.commit.trim_end_matches(description::DIRTY);
    let source = format!("git+{SOURCE}@{commit}");
    let mut parts = vec![json!({"uri": source, "digest": {"gitCommit": commit}})];
    for file in &build.sources {
        parts.push(json!({
            "name": file.path,
            "uri": format!("{source}#{}", file.path),
            "digest": {"sha256": file.digest.hex()},
        }));
    }
    parts.push(json!({
        "name": "rust",
        "uri": format!("pkg:generic/rust@{}", release.toolchain),
    }));
    if let Some(tools) = &release.build {
        parts.push(json!({
            "name": "C compiler",
            "digest": {"sha256": tools.c_compiler_lock.hex()},
            "annotations": {"version": tools.c_compiler},
        }));
    }
    parts
}
