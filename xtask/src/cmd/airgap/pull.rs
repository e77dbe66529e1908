//! `airgap pull`: the images of others that the lock names, by digest, into a store that `dist` takes them from.

use airgap::{pull, registry};
use anyhow::Context as _;
use serde_json::json;

use crate::{
    arch::Arches,
    login,
    project::Project,
    sets::{Places, platforms},
    talk,
};

/// Fetch the images of others that airgap/images.lock names; what is there already is left alone
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap pull\n  cargo xtask airgap pull --mirror docker.io=mirror.example:5000 --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    arches: Arches,
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    from: From,
    /// Print what was fetched as JSON
    #[arg(long)]
    json: bool,
}

/// Where images of others come from.
#[derive(Debug, clap::Args)]
pub(super) struct From {
    #[command(flatten)]
    login: login::Options,
    /// Ask this registry first, for images of REGISTRY or, with `*`, of any
    #[arg(long = "mirror", value_name = "REGISTRY=HOST", value_parser = mirror)]
    mirrors: Vec<(String, String)>,
}

fn mirror(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let pair = pair.filter(|(from, to)| !from.is_empty() && !to.is_empty());
    let (from, to) = pair.ok_or("write REGISTRY=HOST, as docker.io=mirror.example:5000")?;
    Ok((from.to_owned(), to.to_owned()))
}

impl From {
    /// The registries that are asked for an image, in their order.
    pub(super) fn registries(&self, reference: &str) -> anyhow::Result<Vec<registry::Registry>> {
        let hosts = pull::hosts(reference, &self.mirrors)?;
        hosts.iter().map(|host| self.login.open(host)).collect()
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let platforms = platforms(&args.arches.list());
    let store = args.places.store(&project);
    let mut told = Vec::new();
    for image in args.places.locked(&project)? {
        let Some(digest) = image.digest else {
            continue;
        };
        let registries = args.from.registries(&image.reference)?;
        let progress = talk::Progress::new(&format!("pull {}", image.reference), 0);
        let wanted = (image.reference.as_str(), digest);
        let count = |len| progress.moved(len);
        let moved = pull::fetch(&registries, wanted, &platforms, &store, &count)
            .map_err(cure)
            .with_context(|| format!("cannot pull {}", image.reference))?;
        progress.done();
        told.push((image.reference, moved));
    }
    if args.json {
        let items: Vec<_> = told
            .iter()
            .map(|(name, moved)| {
                json!({"name": name, "fetched": moved.fetched, "present": moved.present})
            })
            .collect();
        return talk::json(&json!({"items": items}));
    }
    for (name, moved) in &told {
        talk::data(&format!(
            "{name}: {} bytes fetched, {} were there\n",
            moved.fetched, moved.present
        ))?;
    }
    if told.is_empty() {
        talk::say("every image of the lock is built here: nothing to pull");
    }
    Ok(())
}

/// What helps where nobody was let in.
pub(super) fn cure(error: pull::Error) -> anyhow::Error {
    match error {
        pull::Error::Registry {
            source: registry::Error::Login { .. },
            ..
        } => anyhow::Error::new(error).context(login::CURE),
        error => error.into(),
    }
}
