//! `airgap pull`: fetches the third-party images of the lock, by digest, into a store that `dist` takes them from.

use airgap::pull::{
    self,
    sources::{self, with_login_hint},
};
use anyhow::Context as _;
use serde_json::json;

use crate::{
    arch::Arches,
    project::Project,
    sets::{SetPaths, platforms},
    ui,
};

/// Fetch the third-party images that airgap/images.lock names, unless they are in the store already
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap pull\n  cargo xtask airgap pull --mirror docker.io=mirror.example:5000 --user mirror.example:5000=me --json\n  cargo xtask airgap pull --mirror '*=mirror.example:5000' --mirror-only --user me"
)]
pub(super) struct Args {
    #[command(flatten)]
    arches: Arches,
    #[command(flatten)]
    sets: SetPaths,
    #[command(flatten)]
    from: sources::Options,
    /// Print what was fetched as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let platforms = platforms(&args.arches.list());
    let store = args.sets.store(&project);
    let locked = args.sets.locked(&project)?;
    let third_party = locked.iter().filter(|image| image.digest.is_some());
    let sources = args
        .from
        .sources(third_party.map(|image| image.reference.as_str()))?;
    let mut pulled = Vec::new();
    for image in locked {
        let Some(digest) = image.digest else {
            continue;
        };
        let registries = sources.registries(&image.reference)?;
        let progress = ui::Progress::new(&format!("pull {}", image.reference), 0);
        let locked = (image.reference.as_str(), digest);
        let count = |len| progress.add(len);
        let stats = pull::fetch(&registries, locked, &platforms, &store, &count)
            .map_err(with_login_hint)
            .with_context(|| format!("cannot pull {}", image.reference))?;
        progress.finish();
        pulled.push((image.reference, stats));
    }
    if args.json {
        let items: Vec<_> = pulled
            .iter()
            .map(|(name, stats)| {
                json!({"name": name, "fetched": stats.fetched, "present": stats.present})
            })
            .collect();
        return ui::json(&json!({"items": items}));
    }
    for (name, stats) in &pulled {
        ui::data(&format!(
            "{name}: {} bytes fetched, {} were there already\n",
            stats.fetched, stats.present
        ))?;
    }
    if pulled.is_empty() {
        ui::note("every image of the lock is built by this project: nothing to pull");
    }
    Ok(())
}
