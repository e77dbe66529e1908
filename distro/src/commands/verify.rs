//! `verify`: checks what of a release is on this node, byte by byte and without network.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use archive::lists;
use cmdline::{BadUsage, absolute};
use node::root::Root;

use super::print;
use crate::{
    detect::{self, Installation},
    images::{self, IMAGES_DIR},
    plan::{self, Server},
    stage::{self, FileState, recorded_checks},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro verify\n  multus-distro verify --data-dir /data/k3s --distro k3s"
)]
pub(crate) struct Args {
    /// The distro, where this node has both
    #[arg(long, value_enum)]
    distro: Option<plan::Distro>,
    /// The distro's data directory, where it is not the default one
    #[arg(long, value_parser = absolute)]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
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
        "multus-distro has put nothing below {}: stage on servers, install images on nodes without a registry",
        installation.data_dir.display()
    );
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
