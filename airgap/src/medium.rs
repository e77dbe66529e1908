//! The files of `airgap/` for one architecture: archives, lists, the program for operators, and the checksum file that names every other one.
//!
//! A release and an applied delta write the same files, so that each medium passes the same checks.

use std::collections::BTreeMap;

use anyhow::ensure;
use archive::{
    delta::{SignedSums, with_signature},
    digest::sha256,
    layout::Layout,
    tar::Entry,
};

use crate::{
    bundle,
    delta::{self, Archive, Program, Programs},
    lists, pack,
    tree::Tree,
    ui, zstd,
};

/// The programs for operators by architecture.
pub type ProgramsByArch = BTreeMap<String, Vec<u8>>;
/// The signed checksum files of a release by architecture.
pub type SignedByArch = BTreeMap<String, SignedSums>;

/// Returns the files for all these architectures, by their path on the medium.
pub fn tree(
    layout: &Layout,
    architectures: &[&str],
    programs: &ProgramsByArch,
) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let all_digests = lists::digests(&layout.images);
    for architecture in architectures {
        let part = bundle::slice(layout, architecture)?;
        let archive = delta::archive(&part)?;
        let program = programs.get(*architecture);
        let program = program.map(|bytes| Program::of(bytes));
        let files = files(architecture, &part, archive, &all_digests, program);
        add(&mut tree, architecture, files);
    }
    Ok(tree)
}

/// Adds the files for an architecture, of which the program may be executed.
pub fn add(tree: &mut Tree, architecture: &str, files: BTreeMap<String, Vec<u8>>) {
    let program = lists::program_name(architecture);
    for (name, bytes) in files {
        if name == program {
            tree.add_program(name, bytes);
        } else {
            tree.add(name, bytes);
        }
    }
}

/// Returns the deltas from one layout to another and their checksums, which the command `apply` reads.
///
/// Each side is a layout with the programs for operators. Deltas that make just what the owner of the new release signed carry that
/// signature.
pub fn deltas(
    (base, former): (&Layout, &ProgramsByArch),
    (new, programs): (&Layout, &ProgramsByArch),
    signed: &SignedByArch,
    architectures: &[&str],
) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    // The digests of indexes, which no slice has, for the lists that are made of the delta.
    let all_digests = Entry::file(lists::ALL_DIGESTS, 0o644, lists::digests(&new.images));
    for architecture in architectures {
        let slice = |layout: &Layout| bundle::slice(layout, architecture);
        let (old, new) = (slice(base)?, slice(new)?);
        ensure!(
            old != new,
            "nothing is new for {architecture}: --base is this release"
        );
        let of = |programs: &'_ ProgramsByArch| programs.get(*architecture).cloned();
        let (former, program) = (of(former), of(programs));
        let programs = Programs {
            former: former.as_deref(),
            new: program.as_deref(),
        };
        let mut entries = delta::make(&old, &new, programs)?;
        entries.push(all_digests.clone());
        let name = lists::delta_name(architecture);
        if let Some(signed) = signed.get(*architecture) {
            match with_signature(&entries, signed) {
                Ok(complete) => entries = complete,
                Err(error) => ui::note(&format!(
                    "{name} is not signed, since it makes other files than {} of the new release, which is: {error}",
                    lists::sums_name(architecture)
                )),
            }
        }
        let (bytes, packed) = pack::bytes(&entries, zstd::ARCHIVE)?;
        ui::note(&format!("{name}: {} bytes", bytes.len()));
        let sums = lists::sums([(name.as_str(), packed.digest)]);
        tree.add(lists::sums_name(architecture), sums);
        tree.add(name, bytes);
    }
    Ok(tree)
}

/// Returns the files by their path on the medium, made from an architecture's slice, its archive and the text of [`lists::ALL_DIGESTS`].
///
/// Lists that do not depend on the architecture are the same for each, and each checksum file names them.
pub fn files(
    architecture: &str,
    part: &Layout,
    archive: Archive,
    all_digests: &str,
    program: Option<Program>,
) -> BTreeMap<String, Vec<u8>> {
    let texts = lists::texts(architecture, &part.images, all_digests);
    let texts = texts.into_iter();
    let mut files: BTreeMap<_, _> = texts
        .map(|(name, text)| (name, text.into_bytes()))
        .collect();
    let mut sums: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.clone(), sha256(bytes)))
        .collect();
    let [zst, gz] = lists::archives(architecture);
    sums.push((zst.clone(), archive.full.zst));
    sums.push((gz.clone(), archive.full.gz));
    files.insert(zst, archive.zst);
    files.insert(gz, archive.gz);
    if let Some(program) = program {
        let name = lists::program_name(architecture);
        sums.push((name.clone(), program.digest));
        files.extend(program.bytes.map(|bytes| (name, bytes)));
    }
    let sums = lists::sums(sums.iter().map(|(name, digest)| (name.as_str(), *digest)));
    files.insert(lists::sums_name(architecture), sums.into_bytes());
    files
}
