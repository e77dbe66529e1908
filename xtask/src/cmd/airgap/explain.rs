//! `airgap explain`: which feature brings which images, in which archives, of how many bytes; with a path, what it holds, as that of
//! `multus-airgap`.

use std::{collections::BTreeMap, path::PathBuf};

use airgap::{bundle, commands::explain, lists, sets::Locked};
use archive::{
    layout::Layout,
    oci::{self, Manifest},
};
use serde_json::json;

use crate::{arch::Arch, project::Project, sets::SetPaths, ui};

/// Print which feature brings which images, in which archives, of how many bytes, or what a path holds
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap explain\n  cargo xtask airgap explain --out /tmp/dist --json\n  cargo xtask airgap explain dist/airgap/multus-airgap-images-arm64.tar"
)]
pub(super) struct Args {
    /// A release, its airgap directory, or a file in one of them; the image sets unless set
    #[arg(conflicts_with_all = ["images", "lock", "store", "out"])]
    path: Option<PathBuf>,
    #[command(flatten)]
    sets: SetPaths,
    /// Release whose bytes are counted
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// The bytes of an image in an architecture's archive.
type Sizes = BTreeMap<(String, &'static str), u64>;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(path) = &args.path {
        return explain::path(path, args.json);
    }
    let project = Project::open()?;
    let mut locked = args.sets.locked(&project)?;
    locked.sort_by_key(|image| image.feature.clone());
    let dir = args.out.join("oci");
    let sizes = if dir.is_dir() {
        sizes(&Layout::read(&dir)?)?
    } else {
        ui::note(&format!(
            "{} does not exist, so bytes are left out: make a release with `cargo xtask dist`",
            dir.display()
        ));
        Sizes::new()
    };
    if args.json {
        let rows: Vec<_> = locked.iter().map(|image| row(image, &sizes)).collect();
        return ui::json(&rows);
    }
    let mut feature = "";
    for image in &locked {
        if feature != image.feature {
            feature = &image.feature;
            ui::data(&format!("{feature}\n"))?;
        }
        let of = image
            .digest
            .map_or("built here".to_owned(), |digest| digest.to_string());
        ui::data(&format!("  {} ({of})\n", image.reference))?;
        for (arch, size) in of_image(image, &sizes) {
            let archive = lists::archive_name(arch);
            ui::data(&format!("    {archive}: {size} bytes\n"))?;
        }
    }
    Ok(())
}

fn row(image: &Locked, sizes: &Sizes) -> serde_json::Value {
    let archives: Vec<_> = of_image(image, sizes)
        .map(|(arch, size)| json!({"archive": lists::archive_name(arch), "arch": arch, "bytes": size}))
        .collect();
    json!({
        "feature": image.feature,
        "image": image.reference,
        "digest": image.digest,
        "archives": archives,
    })
}

fn of_image<'a>(
    image: &'a Locked,
    sizes: &'a Sizes,
) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    let own = sizes
        .iter()
        .filter(|((name, _), _)| *name == image.reference);
    own.map(|((_, arch), size)| (*arch, *size))
}

/// Counts the bytes of each image in each archive. Blobs that images share count for each of them.
fn sizes(layout: &Layout) -> anyhow::Result<Sizes> {
    let mut sizes = Sizes::new();
    for arch in Arch::ALL.map(Arch::name) {
        // A release for fewer architectures has no such slice.
        let Ok(part) = bundle::slice(layout, arch) else {
            continue;
        };
        for image in &part.images {
            let bytes = part.blobs.get(&image.digest).map_or(&[][..], Vec::as_slice);
            let manifest: Manifest = oci::from_bytes(bytes)?;
            let blobs = manifest.layers.iter().chain([&manifest.config]);
            let size = blobs.map(|blob| blob.size).sum::<u64>() + bytes.len() as u64;
            let name = image.annotations.get(oci::REF_NAME);
            sizes.insert((name.cloned().unwrap_or_default(), arch), size);
        }
    }
    Ok(sizes)
}
