//! The options that name trusted keys, and the lines about what they vouch for.

use std::path::PathBuf;

use anyhow::Context as _;
use archive::medium::Medium;
use cmdline::{BadUsage, counted};
use release::{
    signatures::{self, Report, Trust},
    source::{self, Source},
    verify::{self, Standard},
};
use signing::PublicKey;

use crate::ui;

#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Also check that the owner of this public key signed it, all of it; PEM, ECDSA P-256 or Ed25519
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Also check that the owner of this public key states to have made these very bytes; once for each builder
    #[arg(long, value_name = "FILE")]
    pub attested_by: Vec<PathBuf>,
}

impl Options {
    /// Reads the keys.
    pub fn trust(&self) -> anyhow::Result<Trust> {
        let attested_by = self
            .attested_by
            .iter()
            .map(|path| PublicKey::from_file(path));
        Ok(Trust {
            key: self.key.as_deref().map(PublicKey::from_file).transpose()?,
            attested_by: attested_by.collect::<Result<_, _>>()?,
        })
    }
}

/// Checks a release, a medium or an archive, and what keys vouch for, before anything of it is used.
pub fn check(trust: &Trust, from: &Source) -> anyhow::Result<Report> {
    let report = match from {
        // In a checkout a release grows file by file, and has no checksums before it is whole.
        Source::Release(dist) if trust.is_empty() && !source::is_release(dist) => {
            return Ok(Report::default());
        }
        Source::Release(dist) => {
            let verify = || verify::dir(dist, trust, |_| Standard::Description);
            ui::step("verify", verify)?.report
        }
        // Its archives are compared with their checksums when they are read.
        _ if trust.is_empty() => return Ok(Report::default()),
        Source::Medium(dir) if trust.attested_by.is_empty() => {
            let files = Medium::open(dir, None).and_then(|medium| medium.signed_files());
            let files = files.with_context(|| format!("{} is not sound", dir.display()))?;
            let signed = trust
                .key
                .iter()
                .map(|key| signatures::check_medium(&files, key));
            let signed = signed.collect::<anyhow::Result<Vec<_>>>();
            let signed =
                signed.with_context(|| format!("{} is not to be trusted", dir.display()))?;
            return Ok(Report {
                signed: signed.concat(),
                ..Report::default()
            });
        }
        Source::Medium(_) | Source::Archive(_) => {
            let usage = "a release has signatures and statements, its directory airgap/ has signatures, and an archive has neither: name the directory that has what you want to have checked";
            return Err(BadUsage(usage.to_owned()).into());
        }
    };
    note_unchecked(&report);
    Ok(report)
}

/// Returns a line for whatever the keys vouch for.
pub fn lines(report: &Report) -> String {
    let signed = (!report.signed.is_empty()).then(|| {
        let count = counted(report.signed.len(), "signature");
        format!("signed: {count} of --key, over the checksums, charts and images\n")
    });
    let statements = report.statements.iter().map(|statement| {
        format!(
            "attested: {} states that it made these bytes (key {})\n",
            statement.builder, statement.key
        )
    });
    let unchecked = report.unchecked_statements.iter();
    let unchecked = unchecked.map(|path| {
        format!(
            "unchecked: {path}, a statement by a key that no --key and no --attested-by names\n"
        )
    });
    signed
        .into_iter()
        .chain(statements)
        .chain(unchecked)
        .collect()
}

/// Says where nothing was checked about who made it.
pub(super) fn note_unchecked(report: &Report) {
    if report.has_unchecked {
        ui::note(
            "it has signatures, which are not checked: name the public key of whoever made it with --key",
        );
    } else if report.signed.is_empty() && report.statements.is_empty() {
        ui::note(
            "it has no signatures, so nothing says who made it: checksums only say that it arrived whole",
        );
    }
}
