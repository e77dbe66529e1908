//! `images list|install`: the images that the charts name, and their archives put where the distro imports from.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cmdline::absolute;
use node::root::Root;

use super::print;
use crate::{
    assets::IMAGES,
    images::{self, Folder, IMAGES_DIR},
    place,
    plan::Distro,
    say,
    usage::BadUsage,
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the images, one full reference a line
    #[command(
        after_help = "Examples:\n  multus-distro images list\n  multus-distro images list --system-default-registry reg.example:5000"
    )]
    List {
        /// As nodes with this registry name them
        #[arg(long, default_value = "")]
        system_default_registry: String,
    },
    /// Check a folder with a release's archives, and put this architecture's where the distro imports them
    #[command(
        after_help = "Examples:\n  multus-distro images install /media/airgap\n  multus-distro images install /media/airgap --data-dir /data/k3s"
    )]
    Install(Install),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Install {
    /// The folder: archives, lists and sha256sum-<arch>.txt, and nothing else
    dir: PathBuf,
    /// The distro, where this node has both or neither
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// The distro's data directory, where it is not the usual one
    #[arg(long, value_parser = absolute)]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List {
            system_default_registry,
        } => list(system_default_registry),
        Command::Install(args) => install(args),
    }
}

fn list(registry: &str) -> anyhow::Result<()> {
    let names = IMAGES.iter().map(|image| named(image, registry) + "\n");
    print(&names.collect::<String>())
}

/// An image as the chart names it: the registry goes before the repository, in place of the public one.
pub(crate) fn named(image: &str, registry: &str) -> String {
    let registry = registry.trim_end_matches('/');
    match image.split_once('/') {
        Some((_, repository)) if !registry.is_empty() => format!("{registry}/{repository}"),
        _ => image.to_owned(),
    }
}

fn install(args: &Install) -> anyhow::Result<()> {
    let place = place::find(&Root::open("/")?, args.distro, args.data_dir.as_deref())
        .map_err(|error| BadUsage(error.to_string()))?
        .context(BadUsage(
            "neither K3s nor RKE2 has data on this node: say which will, with --distro".to_owned(),
        ))?;
    let folder = Folder::read(&args.dir, images::arch())?;
    let checked = folder.check()?;
    let archives = folder.archives(images::arch())?;
    images::sound(&folder, &archives)?;
    say(&format!(
        "{} files match the release; copying {} for {}",
        checked.len(),
        count(archives.len()),
        images::arch(),
    ));
    let dir = place.data_dir.join(IMAGES_DIR);
    let installed = images::install(&folder, &archives, &dir)?;
    installed.notes.iter().for_each(|note| say(note));
    if !installed.written.is_empty() {
        say(&not_imported(archives.len(), &dir));
    }
    installed
        .written
        .iter()
        .try_for_each(|path| print(&format!("{}\n", path.display())))
}

/// What is still to come after an archive was copied.
fn not_imported(archives: usize, dir: &Path) -> String {
    let dir = dir.display();
    let (lies, image, it) = match archives {
        1 => ("the archive lies", "image", "it"),
        _ => ("the archives lie", "images", "them"),
    };
    format!(
        "{lies} in {dir}; the runtime does not have the {image} yet: the distro imports {it} at its next start, or soon if it is running"
    )
}

fn count(archives: usize) -> String {
    match archives {
        1 => "1 archive".to_owned(),
        more => format!("{more} archives"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_takes_the_place_of_the_public_one() {
        let image = "docker.io/multusrs/multus:v5.0.0";
        assert_eq!(named(image, ""), image);
        let own = "reg.example:5000/multusrs/multus:v5.0.0";
        assert_eq!(named(image, "reg.example:5000/"), own);
    }
}
