//! `bundle FROM`: archives, lists and checksums that have further images besides those of a release.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use archive::{
    digest::{Digest, sha256},
    layout::Layout,
    oci::{self, Index, Platform},
};
use cmdline::counted;
use serde_json::{Value, json};

use super::trust;
use crate::{
    arch::Arch,
    check, lists, medium, names,
    pull::{
        self, Store,
        sources::{self, with_login_hint},
    },
    signatures,
    source::Source,
    tree::Tree,
    ui,
};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// A release, its airgap directory, or an archive
    from: PathBuf,
    /// Directory to write, which is empty or does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Image to add, which is pulled: HOST/REPOSITORY:TAG, with @DIGEST when it must have this one
    #[arg(long = "image", value_name = "NAME")]
    images: Vec<String>,
    /// List of images to add, one per line
    #[arg(long = "list", value_name = "FILE")]
    lists: Vec<PathBuf>,
    /// Architectures, comma separated; those of FROM unless set
    #[arg(long = "arch", value_enum, value_delimiter = ',', value_name = "ARCH")]
    arches: Vec<Arch>,
    /// Directory that keeps pulled images, so that the next run pulls only what is new; deleted at the end unless set
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    #[command(flatten)]
    registries: sources::Options,
    #[command(flatten)]
    trust: trust::Options,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure_empty(&args.out)?;
    let added = added(args)?;
    let source = Source::of(&args.from)?;
    trust::check(&args.trust.trust()?, &source)?;
    let mut layout = ui::step("read", || source.layout())?;
    let programs = source.programs();
    let platforms =
        platforms(&layout, &args.arches).with_context(|| args.from.display().to_string())?;
    add(&mut layout, &added, &platforms, args)?;
    let names: Vec<_> = platforms
        .iter()
        .map(|platform| platform.architecture.as_str())
        .collect();
    let tree = ui::step("bundle", || medium::tree(&layout, &names, &programs))?;
    // The files pass the check of every later command before they are written.
    let files = tree.0.iter();
    let files = files.map(|(name, file)| (name.clone(), file.bytes.clone()));
    check::dir(&files.collect())?;
    let tree = with_signatures(tree, &source)?;
    tree.update(&args.out, &[])?;
    if args.json {
        return print_written(&tree, &args.out);
    }
    for (name, file) in &tree.0 {
        ui::data(&format!("{}  {name}\n", sha256(&file.bytes).hex()))?;
    }
    ui::note(&format!(
        "{} has {} for {}",
        args.out.display(),
        counted(layout.images.len(), "image"),
        names.join(", ")
    ));
    Ok(())
}

/// Adds the signatures of FROM over the checksums that are the same here, and says which are not.
fn with_signatures(mut tree: Tree, from: &Source) -> anyhow::Result<Tree> {
    let Some(medium) = from.medium() else {
        return Ok(tree);
    };
    // A delta has the signature inside.
    if tree.get(lists::ALL_DIGESTS).is_none() {
        return Ok(tree);
    }
    for arch in Arch::ALL {
        let name = lists::sums_name(arch.name());
        let path = signatures::sums_signature(&name);
        let signature = medium.join(&path);
        let Some(sums) = tree.get(&name).filter(|_| signature.is_file()) else {
            continue;
        };
        let signed = medium.join(&name);
        let signed =
            fs::read(&signed).with_context(|| format!("cannot read {}", signed.display()))?;
        if signed == sums {
            tree.add(path, signatures::read(&signature)?);
        } else {
            ui::note(&format!(
                "{name} is not signed, since it names other files than that of {}, which is: check it for damage alone, or sign it with a key of your own",
                medium.display()
            ));
        }
    }
    Ok(tree)
}

/// Prints path, size and digest of each file below `dir` as JSON.
pub fn print_written(tree: &Tree, dir: &Path) -> anyhow::Result<()> {
    let files = tree.0.iter().map(|(path, file)| {
        json!({"path": dir.join(path), "size": file.bytes.len(), "sha256": sha256(&file.bytes).hex()})
    });
    ui::json(&files.collect::<Value>())
}

/// Fails unless the directory can be made or is empty, since a file of a former run would be taken for one of this.
fn ensure_empty(out: &Path) -> anyhow::Result<()> {
    let Ok(mut entries) = fs::read_dir(out) else {
        ensure!(
            !out.exists(),
            "{} is not a directory: give --out a new one",
            out.display()
        );
        return Ok(());
    };
    ensure!(
        entries.next().is_none(),
        "{} is not empty: give --out a new directory",
        out.display()
    );
    Ok(())
}

/// An image to add.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Added {
    /// The full name, with a tag.
    reference: String,
    digest: Option<Digest>,
}

/// Returns the images of options and lists, each once.
fn added(args: &Args) -> anyhow::Result<Vec<Added>> {
    let mut found: Vec<Added> = Vec::new();
    let mut push = |name: &str, place: &dyn Fn() -> String| -> anyhow::Result<()> {
        let one = parse(name).with_context(place)?;
        match found.iter().find(|known| known.reference == one.reference) {
            Some(known) if *known != one => bail!(
                "{}: {} is named twice, with different digests",
                place(),
                one.reference
            ),
            Some(_) => {}
            None => found.push(one),
        }
        Ok(())
    };
    for name in &args.images {
        push(name, &|| "--image".to_owned())?;
    }
    for path in &args.lists {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = text.lines().enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            push(line.trim(), &|| format!("{}:{}", path.display(), at + 1))?;
        }
    }
    Ok(found)
}

fn parse(name: &str) -> anyhow::Result<Added> {
    let reference = names::reference(name);
    let reference = reference.with_context(|| format!("`{name}` is not the name of an image"))?;
    let tag = reference.tag().with_context(|| {
        format!("{name} has no tag, by which the nodes know it: write NAME:TAG@DIGEST")
    })?;
    let digest = reference.digest().map(str::parse).transpose();
    let digest = digest.with_context(|| format!("the digest in {name} is not sha256"))?;
    Ok(Added {
        reference: format!("{}/{}:{tag}", reference.registry(), reference.repository()),
        digest,
    })
}

/// Returns the platforms of the images that are there, or those of the architectures.
fn platforms(layout: &Layout, arches: &[Arch]) -> anyhow::Result<Vec<Platform>> {
    let image = layout.images.first().context("it has no image")?;
    let bytes = layout.blobs.get(&image.digest);
    let index: Index = oci::from_bytes(bytes.context("its index is missing")?)?;
    let there = index.manifests.into_iter();
    let there: Vec<Platform> = there.filter_map(|manifest| manifest.platform).collect();
    if arches.is_empty() {
        return Ok(there);
    }
    let wanted: BTreeSet<_> = arches.iter().collect();
    let platforms = wanted.into_iter().map(|arch| {
        let found = there.iter().find(|one| one.architecture == arch.name());
        found
            .cloned()
            .with_context(|| format!("it has no images for {}", arch.name()))
    });
    platforms.collect()
}

/// Pulls the images and adds them.
fn add(
    layout: &mut Layout,
    added: &[Added],
    platforms: &[Platform],
    args: &Args,
) -> anyhow::Result<()> {
    for one in added {
        let is_there =
            |image: &oci::Descriptor| image.annotations.get(oci::REF_NAME) == Some(&one.reference);
        ensure!(
            !layout.images.iter().any(is_there),
            "{} has {} already",
            args.from.display(),
            one.reference
        );
    }
    let names = added.iter().map(|one| one.reference.as_str());
    let sources = args.registries.sources(names)?;
    let temporary = tempfile::tempdir().context("cannot make a temporary directory for images")?;
    let store = args.store.as_deref().unwrap_or(temporary.path());
    let store = Store::new(store);
    for Added { reference, digest } in added {
        let registries = sources.registries(reference)?;
        let digest = match digest {
            Some(digest) => *digest,
            None => pull::resolve(&registries, reference).map_err(with_login_hint)?,
        };
        let progress = ui::Progress::new(&format!("pull {reference}"), 0);
        let image = (reference.as_str(), digest);
        let count = |len| progress.add(len);
        pull::fetch(&registries, image, platforms, &store, &count)
            .map_err(with_login_hint)
            .with_context(|| format!("cannot pull {reference}"))?;
        progress.finish();
        pull::add_to(layout, image, platforms, &store)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Result<(&str, bool), &str>) {
        match (parse(name), expected) {
            (Ok(found), Ok((reference, has_digest))) => {
                assert_eq!(found.reference, reference);
                assert_eq!(found.digest.is_some(), has_digest);
            }
            (Err(error), Err(expected)) => {
                assert!(format!("{error:#}").contains(expected), "{error:#}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn names_become_full_and_keep_their_digest() {
        let digest = sha256(b"x");
        check("busybox", Ok(("docker.io/library/busybox:latest", false)));
        check("r.example/a/b:1", Ok(("r.example/a/b:1", false)));
        check(
            &format!("r.example/a/b:1@{digest}"),
            Ok(("r.example/a/b:1", true)),
        );
        check(&format!("r.example/a/b@{digest}"), Err("has no tag"));
        check("r.example/A:1", Err("is not the name of an image"));
    }

    #[test]
    fn directory_with_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        ensure_empty(dir.path()).unwrap();
        ensure_empty(&dir.path().join("new")).unwrap();
        fs::write(dir.path().join("x"), "").unwrap();
        let error = ensure_empty(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        let error = ensure_empty(&dir.path().join("x")).unwrap_err().to_string();
        assert!(error.contains("is not a directory"), "{error}");
    }
}
