//! `chart index`: the index of the packed charts, or what is wrong with a repository.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, bail};
use chart::index::{
    check::{self, Finding},
    read::Index,
};
use serde_json::json;

use super::repository;
use crate::{charts, project::Project, talk};

/// Print the index of the packed charts, or check a charts repository
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart index\n  cargo xtask chart index --check\n  cargo xtask chart index --check ../rke2-charts --against published-index.yaml\n  cargo xtask chart index --check --json"
)]
pub(super) struct Args {
    /// Find orphans, missing files, changed digests and versions that stand twice in the repository in this folder
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "dist/charts")]
    check: Option<PathBuf>,
    /// Index as it was published before: each of its entries must be there as it was
    #[arg(long, value_name = "FILE", requires = "check")]
    against: Option<PathBuf>,
    /// Print what was looked at and found as JSON
    #[arg(long, requires = "check")]
    json: bool,
}

pub(super) fn run(project: &Project, args: &Args) -> anyhow::Result<()> {
    let Some(dir) = &args.check else {
        let packed = charts::pack(project.version)?;
        return talk::data(&charts::index(&packed, project.epoch)?);
    };
    let repository = repository::read(dir)?;
    let mut findings: BTreeSet<Finding> = check::check(&repository);
    if let Some(path) = &args.against {
        let text = String::from_utf8(super::read(path)?);
        let text = text.with_context(|| format!("{} is no text", path.display()))?;
        let published = Index::read(&text).with_context(|| path.display().to_string())?;
        findings.extend(check::compare(&published, &repository.index));
    }
    let elsewhere = check::external_urls(&repository.index);
    if elsewhere > 0 {
        talk::say(&format!(
            "{elsewhere} addresses lie elsewhere, their archives were not looked at"
        ));
    }
    let (entries, archives, folders) = (
        repository.index.entries().count(),
        repository.assets.len(),
        repository.directories.len(),
    );
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    if args.json {
        talk::json(&json!({
            "entries": entries, "archives": archives, "unpacked": folders, "elsewhere": elsewhere, "findings": lines,
        }))?;
    } else {
        for line in lines {
            talk::data(&format!("{line}\n"))?;
        }
    }
    if !findings.is_empty() {
        bail!("{}: {} findings", dir.display(), findings.len());
    }
    talk::say(&format!(
        "{}: {entries} entries, {archives} archives, {folders} unpacked charts",
        dir.display()
    ));
    Ok(())
}
