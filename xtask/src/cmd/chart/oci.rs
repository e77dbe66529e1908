//! `chart oci`: writes charts as OCI artifacts into an image layout, for tools that copy layouts to registries.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use archive::{layout::Layout, oci::REF_NAME};

use crate::{charts, project::Project, tree::Tree, ui};

/// Write charts as OCI artifacts, as Helm pushes them, into an image layout
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart oci --out target/charts.oci\n  skopeo copy oci:target/charts.oci:rke2-multus:X.Y.Z docker://registry.example/charts/rke2-multus:X.Y.Z"
)]
pub(super) struct Args {
    /// Archives of charts; this project's unless set
    #[arg(value_name = "TGZ")]
    charts: Vec<PathBuf>,
    /// New directory for the layout
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn run(project: &Project, args: &Args) -> anyhow::Result<()> {
    let is_free = match fs::read_dir(&args.out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !args.out.exists(),
    };
    ensure!(
        is_free,
        "{} exists already: name a new directory",
        args.out.display()
    );
    let sources: Vec<(String, Vec<u8>)> = if args.charts.is_empty() {
        let packed = charts::pack(project.settings())?.into_iter();
        packed.map(|chart| (chart.path, chart.bytes)).collect()
    } else {
        let read = |path: &PathBuf| Ok((path.display().to_string(), super::read(path)?));
        args.charts
            .iter()
            .map(read)
            .collect::<anyhow::Result<_>>()?
    };
    let mut layout = Layout::default();
    for (name, bytes) in &sources {
        let artifact = chart::oci::artifact(bytes, None).with_context(|| name.clone())?;
        let reference = format!("{}:{}", artifact.name, artifact.tag);
        let mut descriptor = artifact.descriptor;
        descriptor
            .annotations
            .insert(REF_NAME.to_owned(), reference.clone());
        layout.blobs.insert(descriptor.digest, artifact.manifest);
        let blobs = artifact.blobs.into_iter();
        layout
            .blobs
            .extend(blobs.map(|(descriptor, bytes)| (descriptor.digest, bytes)));
        ui::data(&format!("{reference} {}\n", descriptor.digest))?;
        layout.images.push(descriptor);
    }
    let tree: Tree = layout.files().into_iter().collect();
    tree.update(&args.out, &[])
}
