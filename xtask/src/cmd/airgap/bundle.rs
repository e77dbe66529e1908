//! `airgap bundle`: archives, lists and checksums made from the OCI layout; with `--base`, deltas to a former release.

use std::path::{Path, PathBuf};

use airgap::{bundle, delta, lists, medium, pack, zstd};
use anyhow::{Context as _, ensure};
use archive::{digest::sha256, layout::Layout, tar::Entry};
use serde_json::{Value, json};

use crate::{
    arch::{Arch, Arches},
    tree::Tree,
    ui,
};

/// Write one archive per architecture, image lists and checksums, or deltas to a former release
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask airgap bundle\n  cargo xtask airgap bundle --arch arm64 --out /tmp/dist\n  cargo xtask airgap bundle --base dist-former --delta /tmp/delta --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    arches: Arches,
    /// Directory with oci/ to read and airgap/ to write
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Former release: write only deltas to it, and leave airgap/ alone
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Directory for the deltas
    #[arg(long, value_name = "DIR", default_value = "delta", requires = "base")]
    delta: PathBuf,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let arches = args.arches.list();
    let layout = read(&args.out, &arches)?;
    let (tree, dir) = if let Some(base) = &args.base {
        let base = read(base, &arches)?;
        let tree = ui::step("delta", || deltas(&base, &layout, &arches))?;
        tree.update(&args.delta, &[])?;
        (tree, &args.delta)
    } else {
        let tree = ui::step("airgap", || tree(&layout, &arches))?;
        tree.update(&args.out, &["airgap/"])?;
        (tree, &args.out)
    };
    if args.json {
        let files = tree.0.iter().map(|(path, file)| {
            json!({"path": dir.join(path), "size": file.bytes.len(), "sha256": sha256(&file.bytes).hex()})
        });
        ui::json(&files.collect::<Value>())?;
    }
    Ok(())
}

fn read(out: &Path, arches: &[Arch]) -> anyhow::Result<Layout> {
    let names: Vec<_> = arches.iter().map(|arch| arch.name()).collect();
    let dir = out.join("oci");
    Layout::read(&dir).with_context(|| {
        format!(
            "cannot read images from {}, make them with `cargo xtask images --arch {} --out {}`",
            dir.display(),
            names.join(","),
            out.display()
        )
    })
}

/// Returns everything below `airgap/`.
pub(crate) fn tree(layout: &Layout, arches: &[Arch]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let all_digests = lists::digests(layout);
    for arch in arches.iter().map(|arch| arch.name()) {
        let part = bundle::slice(layout, arch)?;
        let archive = delta::archive(&part)?;
        for (name, bytes) in medium::files(arch, &part, archive, &all_digests) {
            tree.add(format!("airgap/{name}"), bytes);
        }
    }
    Ok(tree)
}

/// Returns the deltas and their checksums, which `airgap apply` reads.
fn deltas(base: &Layout, new: &Layout, arches: &[Arch]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    // The digests of indexes, which no slice has, for the lists that `airgap apply` writes.
    let all_digests = Entry::file(lists::ALL_DIGESTS, 0o644, lists::digests(new));
    for arch in arches.iter().map(|arch| arch.name()) {
        let slice = |layout: &Layout| bundle::slice(layout, arch);
        let (old, new) = (slice(base)?, slice(new)?);
        ensure!(
            old != new,
            "nothing is new for {arch}: --base is this release"
        );
        let mut entries = delta::make(&old, &new)?;
        entries.push(all_digests.clone());
        let (bytes, packed) = pack::bytes(&entries, zstd::ARCHIVE)?;
        let name = lists::delta_name(arch);
        ui::note(&format!("{name}: {} bytes", bytes.len()));
        let sums = lists::sums([(name.as_str(), packed.digest)]);
        tree.add(format!("sha256sum-{arch}.txt"), sums);
        tree.add(name, bytes);
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use archive::oci::{
        self, Descriptor, ImageConfig, Index, Manifest, Platform, RootFs, RunConfig,
    };

    use super::*;
    use crate::cmd::airgap::apply;

    /// Returns a layout with one image for two architectures.
    fn release(content: &str) -> Layout {
        let mut layout = Layout::default();
        let mut manifests = Vec::new();
        for arch in ["amd64", "arm64"] {
            let layer = archive::tar::write(&[Entry::file("program", 0o755, content)]).unwrap();
            let platform = Platform {
                architecture: arch.to_owned(),
                os: "linux".to_owned(),
                variant: None,
            };
            let config = ImageConfig {
                created: String::new(),
                platform: platform.clone(),
                config: RunConfig::default(),
                rootfs: RootFs {
                    kind: "layers".to_owned(),
                    diff_ids: vec![sha256(&layer)],
                },
                history: Vec::new(),
            };
            let config = layout.add(oci::CONFIG, oci::to_bytes(&config));
            let layer = zstd::compress(&layer, zstd::LAYER).unwrap();
            let layer = layout.add(oci::LAYER_ZSTD, layer);
            let manifest = oci::to_bytes(&Manifest::of(config, vec![layer]));
            let mut manifest: Descriptor = layout.add(oci::MANIFEST, manifest);
            manifest.platform = Some(platform);
            manifests.push(manifest);
        }
        let index = layout.add(oci::INDEX, oci::to_bytes(&Index::of(manifests)));
        layout.images.push(index.named("docker.io/own/x:v1"));
        layout
    }

    #[test]
    fn applied_deltas_are_the_releases_airgap_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let arches = [Arch::Amd64, Arch::Arm64];
        let (old, new) = (release("old"), release("new"));
        let former = tree(&old, &arches).unwrap();
        former.update(&path("former"), &[]).unwrap();
        let patches = deltas(&old, &new, &arches).unwrap();
        patches.update(&path("delta"), &[]).unwrap();
        let found = Tree::read_medium(&path("delta")).unwrap().0.into_iter();
        let found = airgap::check::dir(&found.map(|(path, file)| (path, file.bytes)).collect());
        assert!(found.unwrap().iter().all(|one| one.is_delta));
        for base in ["former", "former/airgap"] {
            apply::to_dir(&path(base), &path("delta"), &path("airgap")).unwrap();
            let mut expected = Tree::default();
            for (name, file) in tree(&new, &arches).unwrap().below("airgap/") {
                expected.add(name, file.bytes.clone());
            }
            let made = Tree::read(&path("airgap")).unwrap();
            assert_eq!(made, expected);
            let files = made.0.into_iter().map(|(path, file)| (path, file.bytes));
            airgap::check::dir(&files.collect()).unwrap();
        }
        // What a medium's file system adds is passed over, and a file of that name is not.
        let made = Tree::read_medium(&path("airgap")).unwrap();
        std::fs::create_dir(path("airgap/lost+found")).unwrap();
        std::fs::write(path("airgap/lost+found/x"), "").unwrap();
        assert_eq!(Tree::read_medium(&path("airgap")).unwrap(), made);
        std::fs::write(path("airgap/System Volume Information"), "").unwrap();
        assert_ne!(Tree::read_medium(&path("airgap")).unwrap(), made);
        // The delta of one architecture makes the files for that one.
        let one = path("delta/multus-airgap-delta-arm64.tar.zst");
        apply::to_dir(&path("former"), &one, &path("one")).unwrap();
        let made = Tree::read(&path("one")).unwrap();
        assert!(
            made.get("sha256sum-arm64.txt").is_some() && made.get("sha256sum-amd64.txt").is_none()
        );
        // A damaged delta is refused before anything is written.
        std::fs::write(&one, "x").unwrap();
        let error = apply::to_dir(&path("former"), &path("delta"), &path("never"));
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("is not the file that sha256sum-arm64.txt names"),
            "{error}"
        );
        let error = apply::to_dir(&path("former"), &one, &path("x.tar.zst"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("name a directory"), "{error}");
        assert!(!path("never").exists());
    }
}
