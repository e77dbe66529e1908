//! The registries that images are pulled from: options, mirrors, and the order in which they are tried.

use std::collections::BTreeSet;

use anyhow::ensure;

use super::Error;
use crate::{
    names,
    registries::{self, Registries},
    registry::{self, Registry},
};

/// Options for the registries that images are pulled from.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    login: registries::Options,
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
pub struct Sources<'a> {
    options: &'a Options,
    registries: Registries<'a>,
}

impl Options {
    /// Returns the registries of these images.
    pub fn sources<'a>(
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
        let mut hosts = super::hosts(reference, &self.mirrors)?;
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
    pub fn registries(&self, reference: &str) -> anyhow::Result<Vec<Registry>> {
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

/// Adds a hint to an error about a missing login.
pub fn with_login_hint(error: Error) -> anyhow::Error {
    match error {
        Error::Registry {
            source: registry::Error::Login { .. },
            ..
        } => anyhow::Error::new(error).context(registries::HINT),
        error => error.into(),
    }
}
