//! `release rehearse`: makes a release of this checkout's version around the programs of another release, in seconds and without compiling,
//! to try a publication with it.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, ensure};
use release::{signatures::Trust, workstation::Plugins};

use crate::{
    arch::Arch,
    charts,
    cmd::{dist, images, verify},
    description::{self, Origin},
    programs::Binaries,
    project::{ImageNames, Project},
    ui,
};

/// The program that carries the charts.
const CARRIER: &str = "multus-distro";

/// Make a release of this version with the programs of another one, to try a publication
///
/// Its charts, image, archives, lists and manifests are those of this version. Its programs are old ones, so `verify` and `release publish`
/// refuse it without --allow-dirty.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  cargo xtask release rehearse --programs dist --out /tmp/rehearsal\n  cargo xtask release publish --dist /tmp/rehearsal --allow-dirty --registry 127.0.0.1:5000 --plain-http"
)]
pub(super) struct Args {
    /// Release to take the programs from
    #[arg(long, value_name = "DIR")]
    programs: PathBuf,
    /// New directory for the release
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    names: ImageNames,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?.with_images(&args.names);
    let out = std::path::absolute(&args.out)?;
    ensure!(
        !out.exists(),
        "{} exists already: name a new directory with --out",
        out.display()
    );
    let former = verify::verified(&args.programs, &Trust::default())?.release;
    let arches = former.architectures.iter().map(|name| {
        Arch::parse(name).with_context(|| format!("the architecture {name} is unknown"))
    });
    let arches: Vec<_> = arches.collect::<anyhow::Result<_>>()?;
    let settings = project.settings();
    let packed = charts::pack(&settings)?;
    let generated = charts::generated(&settings, &packed)?;
    let manifests = generated.below("manifests/").map(|(_, file)| &file.bytes);
    let carried: Vec<_> = packed
        .iter()
        .map(|chart| &chart.bytes)
        .chain(manifests)
        .collect();
    let mut programs = images::built(&args.programs, &arches)?;
    carry(&mut programs, &carried, &settings.image());
    let inventory = ui::step("crates and licences", || images::inventory(&project))?;
    let layout = images::layout(&project, &programs, &inventory)?;
    let commit = project.commit.trim_end_matches(description::DIRTY);
    let origin = Origin {
        version: project.version.clone(),
        commit: format!("{commit}{}", description::DIRTY),
        epoch: project.epoch,
        toolchain: project.toolchain.clone(),
        architectures: arches,
        image_prefix: project.images.clone(),
        trusted_key: former.trusted_key,
        // The programs are those of the other release.
        build: former.build.clone(),
    };
    let tree = ui::step("generate and airgap", || {
        dist::compose(
            origin,
            &packed,
            (&programs, &Plugins::new()),
            &layout,
            &inventory,
        )
    })?;
    tree.write_new(&out)?;
    ui::note(&format!(
        "{} is a rehearsal of {} with the programs of {}",
        out.display(),
        project.version,
        former.version
    ));
    Ok(())
}

/// Appends charts, manifests and the image's name to the programs that carry those of another version.
fn carry(programs: &mut BTreeMap<Arch, Binaries>, carried: &[&Vec<u8>], image: &str) {
    for program in programs
        .values_mut()
        .filter_map(|programs| programs.get_mut(CARRIER))
    {
        for bytes in carried {
            program.extend_from_slice(bytes);
        }
        program.extend_from_slice(image.as_bytes());
    }
}
