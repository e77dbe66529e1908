//! `airgap verify DIR`: a folder with archives on its way to nodes, whether or not the rest of the release is there.

use std::{collections::BTreeMap, path::PathBuf};

use airgap::check;
use anyhow::Context as _;
use serde_json::json;

use crate::{talk, tree::Tree};

/// Check a folder of archives offline, down to the content of every layer
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap verify dist/airgap\n  cargo xtask airgap verify /media/usb --json"
)]
pub(super) struct Args {
    /// The folder
    dir: PathBuf,
    /// Print what it holds as JSON
    #[arg(long)]
    json: bool,
}

/// The distros' own lists, which nodes have no use for.
const LISTS: [&str; 2] = ["k3s/", "rke2/"];

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let files = Tree::read(&args.dir)?.0.into_iter();
    let files: BTreeMap<_, _> = files
        .filter(|(path, _)| !LISTS.iter().any(|list| path.starts_with(list)))
        .map(|(path, file)| (path, file.bytes))
        .collect();
    let sound = talk::step("verify", || Ok(check::folder(&files)?))
        .with_context(|| format!("{} is not sound", args.dir.display()))?;
    if args.json {
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
        return talk::json(&items);
    }
    for one in &sound {
        let images = match one.images.len() {
            1 => "1 image".to_owned(),
            more => format!("{more} images"),
        };
        for archive in &one.archives {
            talk::data(&format!(
                "{archive}: {images} for {}, sound\n",
                one.architecture
            ))?;
        }
    }
    Ok(())
}
