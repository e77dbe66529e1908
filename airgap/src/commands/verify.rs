//! `verify DIR`: checks a release, or a directory with archives or deltas on its way to nodes, from its files alone.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use cmdline::counted;
use serde_json::json;

use crate::{
    check,
    release::Release,
    source, ui,
    verify::{self, Standard},
};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// The directory of a release, or one with archives or deltas and their checksums
    dir: PathBuf,
    /// Accept a release of a checkout with uncommitted changes, for trials
    #[arg(long)]
    allow_dirty: bool,
    /// Print its content as JSON
    #[arg(long)]
    json: bool,
}

/// Checks the directory. A release is judged by its own `release.json`, whatever version made it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let dir = &args.dir;
    ensure!(
        dir.is_dir(),
        "there is no directory {}: name the one of a release, or the one with its airgap files",
        dir.display()
    );
    if !source::is_release(dir) {
        return check_medium(dir, args.json);
    }
    let release = ui::step("verify", || verify::dir(dir, |_| Standard::OwnWords))?;
    if !args.allow_dirty {
        release.check_clean()?;
    }
    print_release(dir, &release, args.json)
}

/// Prints that a release is sound, or its description.
pub fn print_release(dir: &Path, release: &Release, json: bool) -> anyhow::Result<()> {
    if json {
        return ui::data(&String::from_utf8(release.to_bytes()?)?);
    }
    ui::data(&format!(
        "{}: release {} of {} for {} is sound\n",
        dir.display(),
        release.version,
        counted(release.files.len() + 2, "file"),
        release.architectures.join(", ")
    ))
}

fn check_medium(dir: &Path, json: bool) -> anyhow::Result<()> {
    let files = source::medium_files(dir)?;
    let sound = ui::step("verify", || Ok(check::dir(&files)?))
        .with_context(|| format!("{} is not sound", dir.display()))?;
    if json {
        let items: Vec<_> = sound
            .iter()
            .map(|one| {
                let images: Vec<_> = one
                    .images
                    .iter()
                    .map(|image| json!({"reference": image.reference, "digest": image.digest}))
                    .collect();
                json!({"arch": one.architecture, "archives": one.archives, "images": images})
            })
            .collect();
        return ui::json(&items);
    }
    for one in &sound {
        let images = counted(one.images.len(), "image");
        let next = if one.is_delta {
            "; `multus-airgap apply` makes the archives of it"
        } else {
            ""
        };
        for archive in &one.archives {
            ui::data(&format!(
                "{archive}: {images} for {}, sound{next}\n",
                one.architecture
            ))?;
        }
        if let Some(program) = &one.program {
            let arch = &one.architecture;
            ui::data(&format!("{program}: static program for {arch}, sound\n"))?;
        }
    }
    Ok(())
}
