//! `chart export`: writes charts as the `packages/` tree of a distro's charts repository.

use std::path::PathBuf;

use ::chart::{Distro, package::Package};
use anyhow::Context as _;
use clap::ValueEnum;

use super::merge;
use crate::{
    packages::{self, Base},
    project::{ImageNames, Project},
    ui,
};

/// Write charts as the packages tree that rke2-charts and k3s-charts build theirs from
///
/// A chart is written whole, or with --base as its differences to an archive that is published elsewhere.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask chart export --layout rke2-charts --image-prefix rancher/ --out ../rke2-charts\n  cargo xtask chart export --layout rke2-charts --out /tmp/tree rke2-multus-v4.3.017.tgz rke2-multus-crd-4.3.017.tgz\n  cargo xtask chart export --layout rke2-charts --out /tmp/tree --base rke2-multus-v4.3.017.tgz --url https://rke2-charts.rancher.io/assets/rke2-multus/rke2-multus-v4.3.017.tgz"
)]
pub(super) struct Args {
    /// Archives of a main chart and its CRD chart; those of this checkout for the distro unless set
    #[arg(value_name = "TGZ")]
    charts: Vec<PathBuf>,
    /// Repository whose layout the tree has
    #[arg(long, value_enum)]
    layout: Style,
    /// Number of the package, which the repository's scripts put into the version; that of the archive, or the first one, unless set
    #[arg(long, value_name = "NUMBER")]
    package_version: Option<u64>,
    /// Published archive that the package changes
    #[arg(long, value_name = "TGZ", requires = "url")]
    base: Option<PathBuf>,
    /// Address of the published archive
    #[arg(long, requires = "base")]
    url: Option<String>,
    /// Directory to write packages/ into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    names: ImageNames,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Style {
    #[value(name = "rke2-charts")]
    Rke2,
    #[value(name = "k3s-charts")]
    K3s,
}

pub(super) fn run(project: Project, args: &Args) -> anyhow::Result<()> {
    let project = project.with_images(&args.names);
    let (style, distro) = match args.layout {
        Style::Rke2 => (packages::Style::Rke2, Distro::Rke2),
        Style::K3s => (packages::Style::K3s, Distro::K3s),
    };
    let archives = if args.charts.is_empty() {
        merge::own(&project, distro)?
    } else {
        let read = |path: &PathBuf| Ok((path.display().to_string(), super::read(path)?));
        let all = args.charts.iter().map(read);
        all.collect::<anyhow::Result<_>>()?
    };
    let base = match (&args.base, &args.url) {
        (Some(path), Some(url)) => Some(Base {
            url: url.clone(),
            package: Package::read(&super::read(path)?)
                .with_context(|| path.display().to_string())?,
        }),
        _ => None,
    };
    let charts = packages::charts(&archives)?;
    let name = charts.main.metadata.name.clone();
    let mut tree = packages::tree(style, charts, base.as_ref(), args.package_version)
        .with_context(|| format!("cannot export {name}"))?;
    // The package of a subchart has a number of its own there.
    let owned = format!("packages/{name}/");
    let is_kept = |path: &str| {
        let is_of_subchart = path.ends_with("/package.yaml") && !path.starts_with(&owned);
        is_of_subchart && args.out.join(path).exists()
    };
    tree.0.retain(|path, _| !is_kept(path));
    tree.update(&args.out, &[&owned])?;
    for path in tree.0.keys() {
        ui::data(&format!("{path}\n"))?;
    }
    ui::note(&format!(
        "{}: next, in the repository: PACKAGE={name} make prepare, make patch, make charts",
        args.out.display()
    ));
    Ok(())
}
