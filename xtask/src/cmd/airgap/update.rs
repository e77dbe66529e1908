//! `airgap update`: locks the images that the rendered charts run, by digest. The only command that changes the lock.

use std::{fs, path::PathBuf};

use airgap::{
    pull::{
        self,
        sources::{self, with_login_hint},
    },
    sets::{self, Locked, Sets},
};
use anyhow::{Context as _, bail};
use cmdline::counted;

use super::render;
use crate::{project::Project, sets::SetPaths, tree::Tree, ui};

/// Render the charts with Helm and lock the images that they run by digest
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap update\n  cargo xtask airgap update --check --helm target/e2e-work/tools/bin/helm"
)]
pub(super) struct Args {
    #[command(flatten)]
    sets: SetPaths,
    #[command(flatten)]
    from: sources::Options,
    /// The Helm program
    #[arg(long, value_name = "FILE", default_value = "helm")]
    helm: PathBuf,
    /// Change nothing and contact no registry; fail when charts and lock name different images
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let sets = args.sets.sets(&project)?;
    let path = args.sets.lock_path(&project);
    let found = ui::step("render", || found(&project, &sets, args))?;
    if args.check {
        let locked = args.sets.locked(&project)?;
        return compare(&found, &locked).with_context(|| {
            format!(
                "{} does not name the images that the charts run: `cargo xtask airgap update` writes it",
                path.display()
            )
        });
    }
    let third_party = found.iter().map(|(reference, _)| reference.as_str());
    let third_party = third_party.filter(|reference| !sets.is_own(reference));
    let sources = args.from.sources(third_party)?;
    let mut locked = Vec::new();
    for (reference, feature) in found {
        let digest = if sets.is_own(&reference) {
            None
        } else {
            let registries = sources.registries(&reference)?;
            Some(pull::resolve(&registries, &reference).map_err(with_login_hint)?)
        };
        locked.push(Locked {
            feature,
            reference,
            digest,
        });
    }
    let text = sets::write_lock(&locked, &project.version);
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        ui::note(&format!("{} is up to date", path.display()));
        return Ok(());
    }
    let mut tree = Tree::default();
    let name = path.file_name().context("the lock has no name")?;
    tree.add(name.to_string_lossy(), text);
    tree.update(path.parent().unwrap_or(&project.root), &[])?;
    let images = counted(locked.len(), "image");
    ui::note(&format!("{} names {images}", path.display()));
    Ok(())
}

/// Returns the images and the features that bring them: those of the charts, then those of `images.toml`.
fn found(project: &Project, sets: &Sets, args: &Args) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = render::images(project, sets, &args.helm)?;
    for image in &sets.images {
        let name = sets::normalised(&image.reference)?;
        found.entry(name).or_insert_with(|| image.feature.clone());
    }
    Ok(found.into_iter().collect())
}

fn compare(found: &[(String, String)], locked: &[Locked]) -> anyhow::Result<()> {
    for (reference, feature) in found {
        match locked.iter().find(|image| image.reference == *reference) {
            None => bail!("{reference} is not in it"),
            Some(image) if image.feature != *feature => {
                bail!("{reference} is for {feature}, not {}", image.feature)
            }
            Some(_) => {}
        }
    }
    let names = |image: &&Locked| found.iter().any(|(name, _)| *name == image.reference);
    match locked.iter().find(|image| !names(image)) {
        Some(image) => bail!("{} is in it, but no chart runs it", image.reference),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_and_lock_must_name_the_same_images_and_features() {
        let locked = |feature: &str, reference: &str| Locked {
            feature: feature.into(),
            reference: reference.into(),
            digest: None,
        };
        let found = [("a:1".to_owned(), "core".to_owned())];
        compare(&found, &[locked("core", "a:1")]).unwrap();
        for (locked, expected) in [
            (vec![], "a:1 is not in it"),
            (vec![locked("dhcp", "a:1")], "a:1 is for core, not dhcp"),
            (
                vec![locked("core", "a:1"), locked("core", "a:10")],
                "a:10 is in it, but no chart runs it",
            ),
        ] {
            let error = compare(&found, &locked).unwrap_err().to_string();
            assert_eq!(error, expected);
        }
    }
}
