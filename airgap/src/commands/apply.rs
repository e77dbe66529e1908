//! `apply`: rebuilds the `airgap/` of a release from that of a former one and its deltas, bit by bit the same, with its signatures.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use archive::{
    delta::{Content, SignedSums},
    digest::sha256,
    tar::Entry,
};
use signing::PublicKey;

use super::trust;
use crate::{delta, lists, medium, signatures, source, tree::Tree, ui};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Delta to the former release, or the directory with those of all architectures
    delta: PathBuf,
    /// Directory with the archives of the former release, or one archive in either form
    #[arg(long, value_name = "PATH")]
    base: PathBuf,
    /// Directory to write, with the files of the release's airgap/
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Also check that the owner of this public key signed what each delta makes, before it is applied; PEM, ECDSA P-256 or Ed25519
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// Prints the checksum of each file that it writes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let key = args.key.as_deref().map(trust::public_key).transpose()?;
    let tree = to_dir(&args.base, &args.delta, &args.out, key.as_ref())?;
    let is_signed = tree
        .0
        .keys()
        .any(|name| signatures::is_medium_signature(name));
    match (&args.key, is_signed) {
        (Some(path), _) => ui::note(&format!("signed by the owner of {}", path.display())),
        (None, true) => ui::note(
            "it has signatures, which were not checked: name the public key of whoever made the release with --key",
        ),
        (None, false) => {}
    }
    for (name, file) in &tree.0 {
        ui::data(&format!("{}  {name}\n", sha256(&file.bytes).hex()))?;
    }
    ui::note(&format!(
        "next, on a node: multus-distro images install {}",
        args.out.display()
    ));
    Ok(())
}

/// Writes the files of the release into a directory, or none when one cannot be made; returns them.
///
/// With a key, nothing is applied that its owner did not sign.
pub fn to_dir(
    base: &Path,
    delta: &Path,
    out: &Path,
    key: Option<&PublicKey>,
) -> anyhow::Result<Tree> {
    let name = out.to_string_lossy();
    if name.ends_with(".tar.zst") || name.ends_with(".tar.gz") {
        bail!(
            "--out is {name}: name a directory, which gets the release's archives, lists and checksums"
        );
    }
    let mut patches = Vec::new();
    for path in deltas(delta)? {
        let name = path.display().to_string();
        let patch = source::entries(&path)?;
        let content = archive::delta::check(&patch).with_context(|| name.clone())?;
        if let Some(key) = key {
            signatures::check_delta(&name, &content, key)
                .with_context(|| format!("{} is not to be trusted", delta.display()))?;
        }
        patches.push((name, patch, content));
    }
    let mut tree = Tree::default();
    for (name, patch, content) in patches {
        let files = ui::step("apply", || rebuilt(base, &patch, &content));
        tree.extend(files.context(name)?);
    }
    tree.update(out, &[])?;
    Ok(tree)
}

/// Returns the deltas in a directory, whose checksums are right, or the one delta.
fn deltas(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = Tree::read_medium(path, signatures::MEDIUM_LIMIT)?;
    let mut found = Vec::new();
    for (name, sums) in &files.0 {
        if !name.starts_with("sha256sum-") || signatures::is_medium_signature(name) {
            continue;
        }
        let sums = std::str::from_utf8(&sums.bytes).ok();
        let sums = sums.and_then(lists::parse_sums);
        let sums = sums.with_context(|| format!("{} is damaged", path.join(name).display()))?;
        for (delta, digest) in sums {
            let bytes = files.get(&delta);
            let file = path.join(&delta);
            let bytes = bytes.with_context(|| format!("{} is missing", file.display()))?;
            ensure!(
                sha256(bytes) == digest,
                "{} is not the file that {name} names: copy it again",
                file.display()
            );
            found.push(file);
        }
    }
    ensure!(
        !found.is_empty(),
        "{} holds no sha256sum-<architecture>.txt: copy all files of the deltas",
        path.display()
    );
    Ok(found)
}

/// Returns the files of the release for the delta's architecture.
fn rebuilt(base: &Path, patch: &[Entry], content: &Content) -> anyhow::Result<Tree> {
    let architecture = &content.architecture;
    let former = source::program_of(base, architecture);
    let program = delta::program(patch, former.as_deref())?;
    let name = lists::program_name(architecture);
    if program.as_ref().is_some_and(|one| one.bytes.is_none()) {
        ui::note(&format!(
            "{name} is left out: it is made of the former one, which is not next to the former archive"
        ));
    }
    let base = source::archive_of(base, architecture)?;
    let layout = source::of_archive(&base)?;
    let (part, archive) = delta::apply(&layout, patch)?;
    let files = medium::files(architecture, &part, archive, &content.list, program);
    let mut tree = Tree::default();
    medium::add(&mut tree, architecture, files);
    if let Some(signed) = &content.signed {
        add_signature(&mut tree, architecture, signed)?;
    }
    Ok(tree)
}

/// Adds the signature of the checksum file, which must be the one that was signed.
fn add_signature(tree: &mut Tree, architecture: &str, signed: &SignedSums) -> anyhow::Result<()> {
    let name = lists::sums_name(architecture);
    ensure!(
        tree.get(&name) == Some(signed.sums.as_bytes()),
        "{name} becomes another one than was signed: apply the delta with the multus-airgap of its release"
    );
    tree.add(signatures::sums_signature(&name), signed.signature.clone());
    Ok(())
}

#[cfg(test)]
mod tests;
