//! `chart index`: the index of the packed charts, or what is wrong with a repository.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, bail};
use chart::index::{
    check::{self, Finding},
    read::Index,
};

use super::repository;
use crate::{charts, project::Project, talk};

/// Print the index of the packed charts, or check a charts repository
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart index\n  cargo xtask chart index --check\n  cargo xtask chart index --check ../rke2-charts --against published-index.yaml"
)]
pub(super) struct Args {
    /// Find orphans, missing files, changed digests and versions that stand twice in the repository in this folder
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "dist/charts")]
    check: Option<PathBuf>,
    /// Index as it was published before: each of its entries must be there as it was
    #[arg(long, value_name = "FILE", requires = "check")]
    against: Option<PathBuf>,
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
    let elsewhere = check::elsewhere(&repository.index);
    if elsewhere > 0 {
        talk::say(&format!(
            "{elsewhere} addresses lie elsewhere, their archives were not looked at"
        ));
    }
    let lines: Vec<_> = findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect();
    talk::data(&lines.concat())?;
    if !findings.is_empty() {
        bail!("{}: {} findings", dir.display(), findings.len());
    }
    talk::say(&format!(
        "{}: {} entries, {} archives, {} unpacked charts",
        dir.display(),
        repository.index.entries().count(),
        repository.assets.len(),
        repository.folders.len()
    ));
    Ok(())
}
