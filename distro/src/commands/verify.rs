//! `verify [DIR]`: a folder with a release's archives, or what of a release is on this node, byte by byte and without network.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use cmdline::absolute;
use node::root::Root;

use super::print;
use crate::{
    images::{self, Folder, IMAGES_DIR, STEM, stem},
    place::{self, Place},
    plan,
    stage::{self, Found, known},
    usage::BadUsage,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  multus-distro verify /media/airgap\n  multus-distro verify\n  multus-distro verify --data-dir /data/k3s --distro k3s"
)]
pub(crate) struct Args {
    /// A folder with archives and their sums; without it, what is staged and installed on this node
    dir: Option<PathBuf>,
    /// The distro, where this node has both
    #[arg(long, value_enum, conflicts_with = "dir")]
    distro: Option<plan::Distro>,
    /// The distro's data directory, where it is not the usual one
    #[arg(long, value_parser = absolute, conflicts_with = "dir")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(dir) = &args.dir {
        return folder(dir);
    }
    let place = place::find(&Root::open("/")?, args.distro, args.data_dir.as_deref())
        .map_err(|error| BadUsage(error.to_string()))?
        .context(
            "neither K3s nor RKE2 has data on this node: name it with --data-dir and --distro",
        )?;
    let staged = staged(&place)?;
    let installed = installed(&place.data_dir)?;
    ensure!(
        staged + installed > 0,
        "nothing of ours is below {}: stage on servers, install images where there is no registry",
        place.data_dir.display()
    );
    Ok(())
}

/// Sums first, then every digest inside this architecture's archives, then whether what the charts name is there.
fn folder(dir: &Path) -> anyhow::Result<()> {
    let arch = images::arch();
    let folder = Folder::read(dir, arch)?;
    for file in folder.check()? {
        print(&format!("ok  {}  {}\n", file.sha256, file.name))?;
    }
    for (name, path) in images::sound(&folder, &folder.archives(arch)?)? {
        print(&format!("ok  {name}  {}\n", path.display()))?;
    }
    Ok(())
}

/// What is staged is what this program carries, whatever registry it was staged with.
fn staged(place: &Place) -> anyhow::Result<usize> {
    let record = stage::read_record(&place.data_dir)?;
    let mut count = 0;
    for file in plan::files(place.distro, "")? {
        let path = place.data_dir.join(&file.path);
        let Ok(bytes) = std::fs::read(&path) else {
            let is_recorded = record.iter().any(|staged| staged.path == file.path);
            ensure!(
                !is_recorded,
                "{} is gone: stage again, or look whether the distro is told to disable it",
                path.display()
            );
            continue;
        };
        let known = known(&record, &file.path);
        match stage::judge(&file.path, Some(&bytes), Some(&file.bytes), &known) {
            Found::Wanted => {}
            Found::Former if file.path.starts_with(plan::MANIFESTS) => {
                let text = String::from_utf8_lossy(&bytes);
                let names_ours = text.contains(concat!("-", env!("CARGO_PKG_VERSION"), ".tgz"));
                ensure!(
                    names_ours,
                    "{} is of another release: stage again",
                    path.display()
                );
            }
            Found::Removal => continue,
            _ => bail!("{} is not what was staged: stage again", path.display()),
        }
        print(&format!("ok  {}\n", path.display()))?;
        count += 1;
    }
    Ok(count)
}

/// Every archive of ours where the distro imports from.
fn installed(data_dir: &Path) -> anyhow::Result<usize> {
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
        if name.is_some_and(|name| name.starts_with(STEM) && stem(name).is_some()) {
            for name in images::of_node(&path)? {
                print(&format!("ok  {name}  {}\n", path.display()))?;
            }
            count += 1;
        }
    }
    Ok(count)
}
