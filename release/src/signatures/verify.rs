//! Checks the signatures of a release with the keys that a user trusts. No key of the release itself counts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail, ensure};
use signing::{PublicKey, bundle, openpgp};

use super::{
    BUNDLE, CHART, KEYRING, MAX_SIZE, PROVENANCE, chart,
    image::{self, Signed},
    is_medium_signature, provenance, provenance_path, signed,
    statement::Statement as InToto,
    sums_bundle, sums_signature,
};
use archive::lists;

use crate::{
    description::{Release, SUMS},
    tree::Tree,
};

/// The advice when a signature does not count.
const CURE: &str = "it was changed after it was signed, or somebody else signed it: get it again from where the owner of the key publishes it";

/// The keys that a user trusts.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// The key of whoever publishes the release.
    pub key: Option<PublicKey>,
    /// The keys of builders, each of whom must have stated that they made these very bytes.
    pub attested_by: Vec<PublicKey>,
}

/// The outcome of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The files, images and charts whose signatures count.
    pub signed: Vec<String>,
    /// The statements that count.
    pub statements: Vec<Statement>,
    /// The files with statements by keys that were not given: they are about this release, and anybody may have signed them.
    pub unchecked_statements: Vec<String>,
    /// Signatures are there that no key was given for.
    pub has_unchecked: bool,
}

/// A builder's statement about the files of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The name that the builder has in it.
    pub builder: String,
    pub key: String,
}

impl Trust {
    /// Returns whether there is no key, so that nothing is known of who made a release.
    pub fn is_empty(&self) -> bool {
        self.key.is_none() && self.attested_by.is_empty()
    }

    /// Returns every key once, the owner's first.
    fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        let owner = self.key.iter();
        let owner = owner.filter(|key| !self.attested_by.contains(key));
        owner.chain(&self.attested_by)
    }

    /// Returns whether the file is the statement by one of the keys.
    pub fn names_statement(&self, path: &str) -> bool {
        let mut paths = self.keys().map(|key| provenance_path(&key.id()));
        paths.any(|named| named == path)
    }

    /// Fails when one key stands for two builders, who then are one.
    fn check(&self) -> anyhow::Result<()> {
        let mut ids = BTreeSet::new();
        for key in &self.attested_by {
            ensure!(
                ids.insert(key.id()),
                "the key {} is given twice: name the keys of different builders",
                key.id().hex()
            );
        }
        Ok(())
    }
}

/// Checks the signature over the checksums, before anything that they cover is believed.
pub(crate) fn check_sums(files: &Tree, signatures: &Tree, trust: &Trust) -> anyhow::Result<()> {
    trust.check()?;
    if let Some(key) = &trust.key {
        check_text(files, signatures, SUMS, key)?;
    }
    Ok(())
}

/// Checks all signatures of a sound release.
pub fn check(
    files: &Tree,
    signatures: &Tree,
    release: &Release,
    trust: &Trust,
) -> anyhow::Result<Report> {
    check_sums(files, signatures, trust)?;
    let images = signed(files, release, signatures)?;
    let mut report = Report {
        has_unchecked: trust.key.is_none() && has_signatures(signatures, trust),
        ..Report::default()
    };
    if let Some(key) = &trust.key {
        check_owner(files, signatures, release, key, &images, &mut report)?;
    }
    check_names(release, &images, signatures)?;
    for key in trust.keys() {
        let statement = check_statement(files, signatures, release, key)?;
        let mut others = report.statements.iter();
        ensure!(
            others.all(|other| other.builder != statement.builder),
            "the statements of two keys name one builder, {}: name the keys of two builders",
            statement.builder
        );
        report.statements.push(statement);
    }
    for (path, file) in &signatures.0 {
        if path.starts_with(PROVENANCE) && !trust.names_statement(path) {
            check_unsigned_statement(&file.bytes, files, release).with_context(|| {
                format!("{path} is not a statement about this release: remove it, or copy the release again")
            })?;
            report.unchecked_statements.push(path.clone());
        }
    }
    Ok(report)
}

/// Checks that a statement is about this release, whoever signed it.
fn check_unsigned_statement(bundle: &[u8], files: &Tree, release: &Release) -> anyhow::Result<()> {
    let statement = bundle::statement_of_anyone(bundle)?;
    provenance::check(&statement, files, release).map(drop)
}

/// Returns whether there are signatures besides the statements of builders whose keys were given.
fn has_signatures(signatures: &Tree, trust: &Trust) -> bool {
    let mut paths = signatures.0.keys();
    paths.any(|path| trust.attested_by.is_empty() || !path.starts_with(PROVENANCE))
}

/// Checks the signatures of a directory with archives, and returns the names of what is signed.
pub fn check_medium(
    files: &BTreeMap<String, Vec<u8>>,
    key: &PublicKey,
) -> anyhow::Result<Vec<String>> {
    let sums = files
        .iter()
        .filter(|(name, _)| name.starts_with("sha256sum-") && !is_medium_signature(name));
    let mut signed = Vec::new();
    for (name, bytes) in sums {
        let path = sums_signature(name);
        let text = files.get(&path).with_context(|| missing(&path))?;
        verify_text(&path, bytes, text, key)?;
        signed.push(name.clone());
    }
    Ok(signed)
}

/// Checks that every signature belongs to something of this release.
fn check_names(release: &Release, images: &[Signed], signatures: &Tree) -> anyhow::Result<()> {
    let mut known = BTreeSet::from([sums_signature(SUMS), sums_bundle(), KEYRING.to_owned()]);
    let sums = release.architectures.iter();
    known.extend(sums.map(|arch| sums_signature(&format!("airgap/{}", lists::sums_name(arch)))));
    known.extend(
        release
            .charts
            .iter()
            .map(|chart| format!("{}{CHART}", chart.path)),
    );
    for image in images {
        let endings = [BUNDLE, image::PAYLOAD, image::PAYLOAD_SIGNATURE];
        known.extend(endings.map(|ending| image.path(ending)));
    }
    for (path, file) in &signatures.0 {
        ensure!(
            known.contains(path) || path.starts_with(PROVENANCE),
            "{path} is the signature of nothing in this release: copy the release again, or remove it"
        );
        ensure!(
            file.bytes.len() as u64 <= MAX_SIZE,
            "{path} has {} bytes, and a signature has at most {MAX_SIZE}",
            file.bytes.len()
        );
    }
    // Whoever signed them: a push sends them on.
    for image in images {
        let path = image.path(BUNDLE);
        if let Some(bundle) = signatures.get(&path) {
            let statement = bundle::statement_of_anyone(bundle);
            check_image(&counted(&path, statement)?, image).context(path)?;
        }
    }
    Ok(())
}

/// Checks that a statement says that this image or chart is signed, and nothing else.
fn check_image(statement: &[u8], image: &Signed) -> anyhow::Result<()> {
    let statement = InToto::parse(statement, image::PREDICATE)?;
    statement.check_subjects(&[(image.name.clone(), image.digest)])?;
    ensure!(
        statement == image.statement(),
        "the statement says more than that the image is signed: {CURE}"
    );
    Ok(())
}

/// Checks everything that the owner of a release signs besides the statement.
fn check_owner(
    files: &Tree,
    signatures: &Tree,
    release: &Release,
    key: &PublicKey,
    images: &[Signed],
    report: &mut Report,
) -> anyhow::Result<()> {
    let path = sums_bundle();
    let sums = files.get(SUMS).unwrap_or_default();
    counted(
        &path,
        bundle::verify_blob(file(signatures, &path)?, sums, key),
    )?;
    report.signed.push(SUMS.to_owned());
    for arch in &release.architectures {
        let path = format!("airgap/{}", lists::sums_name(arch));
        check_text(files, signatures, &path, key)?;
        report.signed.push(path);
    }
    for chart in &release.charts {
        let path = format!("{}{CHART}", chart.path);
        let text = chart::text(&chart.path, files.get(&chart.path).unwrap_or_default())?;
        let found = String::from_utf8_lossy(file(signatures, &path)?);
        counted(&path, openpgp::verify_text(&found, &text, key))?;
        report.signed.push(chart.path.clone());
    }
    let ring = file(signatures, KEYRING)?;
    counted(KEYRING, openpgp::verify_keyring(ring, key, chart::KEY_NAME))?;
    for image in images {
        let path = image.path(image::PAYLOAD);
        let payload = image.payload();
        ensure!(
            file(signatures, &path)? == payload,
            "{path} is not the text about {}@{}: {CURE}",
            image.name,
            image.digest
        );
        let path = image.path(image::PAYLOAD_SIGNATURE);
        verify_text(&path, &payload, file(signatures, &path)?, key)?;
        let path = image.path(BUNDLE);
        let statement = bundle::open_statement(file(signatures, &path)?, key);
        check_image(&counted(&path, statement)?, image).context(path)?;
        report
            .signed
            .push(format!("{}@{}", image.name, image.digest));
    }
    Ok(())
}

fn check_statement(
    files: &Tree,
    signatures: &Tree,
    release: &Release,
    key: &PublicKey,
) -> anyhow::Result<Statement> {
    let path = provenance_path(&key.id());
    let Some(bytes) = signatures.get(&path) else {
        bail!(
            "{path} is missing: the owner of this key did not state that they made this release; copy the file from their release"
        );
    };
    let statement = counted(&path, bundle::open_statement(bytes, key))?;
    let builder = provenance::check(&statement, files, release).context(path)?;
    Ok(Statement {
        builder,
        key: key.id().hex(),
    })
}

/// Checks the `.sig` of a file.
fn check_text(files: &Tree, signatures: &Tree, path: &str, key: &PublicKey) -> anyhow::Result<()> {
    let signature = sums_signature(path);
    let bytes = files
        .get(path)
        .with_context(|| format!("{path} is missing"))?;
    verify_text(&signature, bytes, file(signatures, &signature)?, key)
}

fn verify_text(path: &str, bytes: &[u8], text: &[u8], key: &PublicKey) -> anyhow::Result<()> {
    ensure!(
        text.len() as u64 <= MAX_SIZE,
        "{path} has {} bytes, and a signature has at most {MAX_SIZE}",
        text.len()
    );
    counted(path, key.verify_text(bytes, text))
}

fn file<'a>(signatures: &'a Tree, path: &str) -> anyhow::Result<&'a [u8]> {
    signatures.get(path).with_context(|| missing(path))
}

fn missing(path: &str) -> String {
    format!(
        "{path} is missing: it was not signed, or a copy left the signature out; copy everything, or leave --key out to check only for damage"
    )
}

/// Names the file whose signature does not count.
fn counted<T, E: std::fmt::Display>(path: &str, outcome: Result<T, E>) -> anyhow::Result<T> {
    outcome.map_err(|error| anyhow::anyhow!("{path}: {error}: {CURE}"))
}
