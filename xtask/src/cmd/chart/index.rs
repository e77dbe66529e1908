//! `chart index`: prints the index of the packed charts, or checks a repository.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context as _, bail};
use chart::index::{
    check::{self, Finding},
    read::Index,
};
use cmdline::counted;
use serde_json::json;

use super::repository;
use crate::{charts, project::Project, ui};

/// Print the index of the packed charts, or check a charts repository
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart index\n  cargo xtask chart index --check\n  cargo xtask chart index --check ../rke2-charts --against published-index.yaml\n  cargo xtask chart index --check --json"
)]
pub(super) struct Args {
    /// Check the repository in this directory for orphans, missing files, changed digests and duplicate versions
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "dist/charts")]
    check: Option<PathBuf>,
    /// Index that was published before: each of its entries must still be there, unchanged
    #[arg(long, value_name = "FILE", requires = "check")]
    against: Option<PathBuf>,
    /// Print counts and findings as JSON
    #[arg(long, requires = "check")]
    json: bool,
}

pub(super) fn run(project: &Project, args: &Args) -> anyhow::Result<()> {
    let Some(dir) = &args.check else {
        let packed = charts::pack(project.settings())?;
        return ui::data(&charts::index(&packed, project.epoch)?);
    };
    let repository = repository::read(dir)?;
    let mut findings: BTreeSet<Finding> = check::check(&repository);
    if let Some(path) = &args.against {
        let text = String::from_utf8(super::read(path)?);
        let text = text.with_context(|| format!("{} is not UTF-8", path.display()))?;
        let published = Index::read(&text).with_context(|| path.display().to_string())?;
        findings.extend(check::compare(&published, &repository.index));
    }
    let elsewhere = check::external_urls(&repository.index);
    if elsewhere > 0 {
        ui::note(&format!(
            "outside of the repository, and not checked: the archives of {}",
            counted(elsewhere, "address")
        ));
    }
    let (entries, archives, unpacked) = (
        repository.index.entries().count(),
        repository.assets.len(),
        repository.directories.len(),
    );
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    if args.json {
        ui::json(&json!({
            "entries": entries, "archives": archives, "unpacked": unpacked, "elsewhere": elsewhere, "findings": lines,
        }))?;
    } else {
        for line in lines {
            ui::data(&format!("{line}\n"))?;
        }
    }
    if !findings.is_empty() {
        bail!("{}: {}", dir.display(), counted(findings.len(), "finding"));
    }
    ui::note(&format!(
        "{}: {}, {}, {}",
        dir.display(),
        counted(entries, "entry"),
        counted(archives, "archive"),
        counted(unpacked, "unpacked chart")
    ));
    Ok(())
}
