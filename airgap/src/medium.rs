//! The files of `airgap/` for one architecture: archives, lists, the program for operators, and the checksum file that names every other one.
//!
//! A release and every bundle of it write the same files, so that each medium passes the same checks.

use std::collections::BTreeMap;

use archive::{digest::sha256, gzip, layout::Layout};

use crate::{bundle, lists, tree::Tree, zstd};

/// The programs for operators by architecture.
pub type ProgramsByArch = BTreeMap<String, Vec<u8>>;

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
        let program = programs.get(*architecture).map(Vec::as_slice);
        let files = files(architecture, &part, &all_digests, program)?;
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

/// Returns the files by their path on the medium, made from an architecture's slice, the text of [`lists::ALL_DIGESTS`], and the program
/// for operators.
///
/// Lists that do not depend on the architecture are the same for each, and each checksum file names them.
pub fn files(
    architecture: &str,
    part: &Layout,
    all_digests: &str,
    program: Option<&[u8]>,
) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let texts = lists::texts(architecture, &part.images, all_digests);
    let texts = texts.into_iter();
    let mut files: BTreeMap<_, _> = texts
        .map(|(name, text)| (name, text.into_bytes()))
        .collect();
    let tar = bundle::archive(part)?;
    let [zst, gz] = lists::archives(architecture);
    files.insert(zst, zstd::compress(&tar, zstd::ARCHIVE)?);
    files.insert(gz, gzip::compress(&tar));
    let program = program.map(|bytes| (lists::program_name(architecture), bytes.to_owned()));
    files.extend(program);
    let sums = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), sha256(bytes)));
    let sums = lists::sums(sums);
    files.insert(lists::sums_name(architecture), sums.into_bytes());
    Ok(files)
}
