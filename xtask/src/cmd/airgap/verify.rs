//! `airgap verify DIR`: checks a directory of archives on its way to nodes, without the rest of the release.

use std::{collections::BTreeMap, path::PathBuf};

use airgap::check::{self, SoundArchives};
use anyhow::{Context as _, ensure};
use cmdline::counted;
use serde_json::json;

use crate::{tree::Tree, ui};

/// Check a directory of archives offline, down to the content of every layer
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap verify dist/airgap\n  cargo xtask airgap verify /media/usb --json"
)]
pub(super) struct Args {
    /// The directory
    dir: PathBuf,
    /// Print its content as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        args.dir.is_dir(),
        "there is no directory {}: name the one with the release's airgap files",
        args.dir.display()
    );
    let files = Tree::read_medium(&args.dir)?.0.into_iter();
    let files: BTreeMap<_, _> = files.map(|(path, file)| (path, file.bytes)).collect();
    let sound = ui::step("verify", || Ok(check::dir(&files)?))
        .with_context(|| format!("{} is not sound", args.dir.display()))?;
    if args.json {
        let items: Vec<_> = sound
            .iter()
            .map(|one| {
                let images: Vec<_> = one
                    .images
                    .iter()
                    .map(|image| json!({"reference": image.reference, "digest": image.digest}))
                    .collect();
                json!({"arch": one.architecture, "archives": one.archives, "images": images})
            })
            .collect();
        return ui::json(&items);
    }
    ui::data(&sound.iter().map(lines).collect::<String>())
}

/// Returns a line for each archive of an architecture.
fn lines(one: &SoundArchives) -> String {
    let images = counted(one.images.len(), "image");
    let next = if one.is_delta {
        "; `airgap apply` makes the archives of it"
    } else {
        ""
    };
    let line = |archive| {
        format!(
            "{archive}: {images} for {}, sound{next}\n",
            one.architecture
        )
    };
    one.archives.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use archive::{delta::Image, digest::sha256};

    use super::*;

    #[test]
    fn images_of_each_archive_are_counted() {
        let image = Image {
            reference: "docker.io/x/y:1".to_owned(),
            digest: sha256(b"x"),
        };
        let lines_of = |images: usize, is_delta| {
            lines(&SoundArchives {
                architecture: "arm".to_owned(),
                archives: ["a.tar.zst", "a.tar.gz"].map(str::to_owned).to_vec(),
                is_delta,
                images: vec![image.clone(); images],
            })
        };
        assert_eq!(
            lines_of(1, false),
            "a.tar.zst: 1 image for arm, sound\na.tar.gz: 1 image for arm, sound\n"
        );
        assert!(lines_of(2, false).starts_with("a.tar.zst: 2 images for arm"));
        let delta = lines_of(1, true);
        assert!(delta.contains("sound; `airgap apply` makes"), "{delta}");
    }
}
