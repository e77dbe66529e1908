//! `verify [DIR]`: checks a directory with a release's archives, or what of a release is on this node, byte by byte and without network.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use archive::lists;
use cmdline::{BadUsage, absolute};
use node::root::Root;

use super::{note, print};
use crate::{
    detect::{self, Installation},
    images::{self, IMAGES_DIR},
    plan::{self, Server},
    stage::{self, FileState, recorded_checks},
    trusted_key::{self, TrustedKey},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro verify /media/airgap\n  multus-distro verify /media/airgap --key /etc/multus/release.pub\n  multus-distro verify\n  multus-distro verify --data-dir /data/k3s --distro k3s"
)]
pub(crate) struct Args {
    /// A directory with archives and their checksums; what is staged and installed on this node unless set
    dir: Option<PathBuf>,
    /// Also check that the owner of this public key signed the checksums; PEM. It takes the place of a built-in key
    #[arg(long, value_name = "FILE", requires = "dir")]
    key: Option<PathBuf>,
    /// The distro, where this node has both
    #[arg(long, value_enum, conflicts_with = "dir")]
    distro: Option<plan::Distro>,
    /// The distro's data directory, where it is not the default one
    #[arg(long, value_parser = absolute, conflicts_with = "dir")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(dir) = &args.dir {
        let trusted = trusted_key::find(args.key.as_deref())?;
        return verify_archives(dir, trusted.as_ref());
    }
    let root = Root::open("/")?;
    let installation = detect::find(&root, args.distro, args.data_dir.as_deref())
        .map_err(|error| BadUsage(format!("{error:#}")))?
        .context(
            "neither K3s nor RKE2 has data on this node: name it with --data-dir and --distro",
        )?;
    let staged = verify_staged(&root, &installation)?;
    let installed = verify_installed(&installation.data_dir)?;
    ensure!(
        staged + installed > 0,
        "nothing of multus-distro is below {}: stage on servers, install images where there is no registry",
        installation.data_dir.display()
    );
    Ok(())
}

/// Checks a directory, and prints each file and image that is as it should be.
fn verify_archives(dir: &Path, trusted: Option<&TrustedKey>) -> anyhow::Result<()> {
    let checked = images::check(dir, trusted)?;
    if let Some(trusted) = trusted {
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

/// Checks that what is staged is what this program carries, whatever server it was staged for; returns the number of files.
fn verify_staged(root: &Root, installation: &Installation) -> anyhow::Result<usize> {
    let record = stage::read_record(root, &installation.data_dir)?;
    let mut count = 0;
    let server = Server {
        registry: "",
        runs_agent: true,
    };
    for file in plan::files(installation.distro, server)? {
        let path = installation.data_dir.join(&file.path);
        let Ok(bytes) = std::fs::read(&path) else {
            let is_recorded = record.iter().any(|staged| staged.path == file.path);
            ensure!(
                !is_recorded,
                "{} was deleted: stage again, or check whether the distro is configured to disable it",
                path.display()
            );
            continue;
        };
        let recorded = recorded_checks(&record, &file.path);
        match stage::classify(&file.path, Some(&bytes), Some(&file.bytes), &recorded) {
            FileState::Current => {}
            FileState::Former if file.path.starts_with(plan::MANIFESTS) => {
                let text = String::from_utf8_lossy(&bytes);
                let names_this_release =
                    text.contains(concat!("-", env!("CARGO_PKG_VERSION"), ".tgz"));
                ensure!(
                    names_this_release,
                    "{} is of another release: stage again",
                    path.display()
                );
            }
            FileState::Removal => continue,
            _ => bail!("{} is not what was staged: stage again", path.display()),
        }
        print(&format!("ok  {}\n", path.display()))?;
        count += 1;
    }
    Ok(count)
}

/// Checks every archive of a release where the distro imports from; returns their number.
fn verify_installed(data_dir: &Path) -> anyhow::Result<usize> {
    let dir = data_dir.join(IMAGES_DIR);
    let Ok(entries) = std::fs::read_dir(&dir) else {
        return Ok(0);
    };
    let mut count = 0;
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot read {}", dir.display()))?
            .path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.and_then(lists::architecture_of_archive).is_some() {
            for name in images::images_for_this_node(&path)? {
                print(&format!("ok  {name}  {}\n", path.display()))?;
            }
            count += 1;
        }
    }
    Ok(count)
}
