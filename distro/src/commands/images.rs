//! `images list|verify|install`: prints the images that the charts name, checks a directory with their archives, and copies the one of
//! this node to where the distro imports from.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use archive::lists;
use cmdline::{BadUsage, absolute, counted};
use node::root::Root;

use super::{note, print};
use crate::{
    assets::{IMAGES, with_registry},
    detect,
    images::{self, IMAGES_DIR},
    plan::{Distro, registry},
    trusted_key,
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the images, one full reference a line
    #[command(
        after_help = "Examples:\n  multus-distro images list\n  multus-distro images list --system-default-registry reg.example:5000"
    )]
    List {
        /// Registry that takes the place of the public one, as on nodes with this system-default-registry
        #[arg(long, default_value = "", value_parser = registry)]
        system_default_registry: String,
    },
    /// Check a directory with a release's archives, byte by byte
    #[command(
        after_help = "Examples:\n  multus-distro images verify /media/airgap\n  multus-distro images verify /media/airgap --key /etc/multus/release.pub\n\nOn other machines `multus-airgap verify` does the same check, also of whole releases."
    )]
    Verify(VerifyArgs),
    /// Check a directory with a release's archives, and copy the one for this architecture to where the distro imports it
    #[command(
        after_help = "Examples:\n  multus-distro images install /media/airgap\n  multus-distro images install /media/airgap --key /etc/multus/release.pub\n  multus-distro images install /media/airgap --data-dir /data/k3s\n  multus-distro images install /media/airgap --conditional-import"
    )]
    Install(InstallArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The directory: archives, lists and sha256sum-<arch>.txt, and nothing else
    dir: PathBuf,
    /// Also check that the owner of this public key signed the checksums; PEM. It takes the place of a built-in key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    /// The directory: archives, lists and sha256sum-<arch>.txt, and nothing else
    dir: PathBuf,
    /// Install nothing that the owner of this public key did not sign; PEM. It takes the place of a built-in key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The distro, where this node has both or neither
    #[arg(long, value_enum)]
    distro: Option<Distro>,
    /// The distro's data directory, where it is not the default one
    #[arg(long, value_parser = absolute)]
    data_dir: Option<PathBuf>,
    /// Also make .cache.json, with which the distro imports an archive only when it has changed: every archive in its directory, not
    /// only this release's
    #[arg(long)]
    conditional_import: bool,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List {
            system_default_registry,
        } => list(system_default_registry),
        Command::Verify(args) => verify(&args.dir, args.key.as_deref()),
        Command::Install(args) => install(args),
    }
}

fn list(registry: &str) -> anyhow::Result<()> {
    let names = IMAGES
        .iter()
        .map(|image| with_registry(image, registry) + "\n");
    print(&names.collect::<String>())
}

/// Checks a directory, and prints each file and image that is as it should be.
fn verify(dir: &Path, key: Option<&Path>) -> anyhow::Result<()> {
    let trusted = trusted_key::find(key)?;
    let checked = images::check(dir, trusted.as_ref())?;
    if let Some(trusted) = &trusted {
        let key = trusted.key.id().hex();
        for name in &checked.signed {
            print(&format!("ok  signed by {key}  {name}\n"))?;
        }
    }
    for (name, digest) in &checked.sound.files {
        print(&format!("ok  {}  {name}\n", digest.hex()))?;
    }
    for archive in &checked.sound.archives {
        let path = checked.medium.path(&archive.name);
        for image in &archive.images {
            print(&format!("ok  {}  {}\n", image.reference, path.display()))?;
        }
    }
    if trusted.is_none() {
        note(trusted_key::UNCHECKED);
    }
    Ok(())
}

fn install(args: &InstallArgs) -> anyhow::Result<()> {
    let installation = detect::find(&Root::open("/")?, args.distro, args.data_dir.as_deref())
        .map_err(|error| BadUsage(format!("{error:#}")))?
        .context(BadUsage(
            "neither K3s nor RKE2 has data on this node: name the distro with --distro".to_owned(),
        ))?;
    let trusted = trusted_key::find(args.key.as_deref())?;
    let checked = images::check(&args.dir, trusted.as_ref())?;
    let name = lists::archive_name(images::arch());
    let files = &checked.sound.files;
    note(&format!(
        "{} checked against their checksums; copying {}",
        counted(files.len(), "file"),
        name,
    ));
    if trusted.is_none() {
        note(trusted_key::UNCHECKED);
    }
    let dir = installation.data_dir.join(IMAGES_DIR);
    let written = images::install(
        &checked.medium.path(&name),
        files[&name],
        &dir,
        args.conditional_import,
        note,
    )?;
    if !written.is_empty() {
        note(&not_imported_yet(&dir));
    }
    written
        .iter()
        .try_for_each(|path| print(&format!("{}\n", path.display())))
}

/// Tells the user that a copied archive is not an imported image.
fn not_imported_yet(dir: &Path) -> String {
    format!(
        "the archive is in {}; the runtime does not have the image yet: the distro imports it at its next start, or soon if it is running",
        dir.display()
    )
}
