//! `airgap pull`: fetches the third-party images of the lock, by digest, into a store that `dist` takes them from.

use std::collections::BTreeSet;

use airgap::{names, pull, registry};
use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::{
    arch::Arches,
    login,
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
    from: PullOptions,
    /// Print what was fetched as JSON
    #[arg(long)]
    json: bool,
}

/// Options for the registries of third-party images.
#[derive(Debug, clap::Args)]
pub(super) struct PullOptions {
    #[command(flatten)]
    login: login::Options,
    /// Try this registry first for images of REGISTRY or, with `*`, of any registry
    #[arg(long = "mirror", value_name = "REGISTRY=HOST", value_parser = mirror)]
    mirrors: Vec<(String, String)>,
    /// Never connect to the registry that an image is named after
    #[arg(long, requires = "mirrors")]
    mirror_only: bool,
}

fn mirror(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let pair =
        pair.filter(|(from, to)| (*from == "*" || names::is_host(from)) && names::is_host(to));
    let (from, to) = pair.ok_or("write REGISTRY=HOST, as docker.io=mirror.example:5000")?;
    Ok((from.to_owned(), to.to_owned()))
}

/// The registries of a run, whose logins are decided before the first request.
pub(super) struct Sources<'a> {
    options: &'a PullOptions,
    registries: login::Registries<'a>,
}

impl PullOptions {
    /// Returns the registries of these images.
    pub(super) fn sources<'a>(
        &self,
        references: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<Sources<'_>> {
        let mut hosts = BTreeSet::new();
        for reference in references {
            hosts.extend(self.hosts(reference)?);
        }
        Ok(Sources {
            options: self,
            registries: self.login.registries(&hosts)?,
        })
    }

    /// Returns the hosts to try for an image, in order.
    fn hosts(&self, reference: &str) -> anyhow::Result<Vec<String>> {
        let mut hosts = pull::hosts(reference, &self.mirrors)?;
        if self.mirror_only {
            let origin = hosts.pop().unwrap_or_default();
            ensure!(
                !hosts.is_empty(),
                "--mirror-only, but no --mirror is for {origin}, the registry of {reference}"
            );
        }
        Ok(hosts)
    }
}

impl Sources<'_> {
    /// Returns the registries to try for an image, in order.
    pub(super) fn registries(&self, reference: &str) -> anyhow::Result<Vec<registry::Registry>> {
        let options = self.options;
        let is_mirror = |host: &String| options.mirrors.iter().any(|(_, mirror)| mirror == host);
        let hosts = options.hosts(reference)?;
        let open = |host: &String| {
            let is_default = options.mirrors.is_empty() || is_mirror(host);
            self.registries.open(host, is_default)
        };
        hosts.iter().map(open).collect()
    }
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

/// Adds a hint to an error about a missing login.
pub(super) fn with_login_hint(error: pull::Error) -> anyhow::Error {
    match error {
        pull::Error::Registry {
            source: registry::Error::Login { .. },
            ..
        } => anyhow::Error::new(error).context(login::HINT),
        error => error.into(),
    }
}
