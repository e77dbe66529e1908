//! The files of `airgap/` for one architecture: the archive, lists, the program for operators, and the checksum file that names every other one.
//!
//! A release and every bundle of it write the same files, so that each medium passes the same checks.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use archive::{
    digest::sha256,
    image_archive,
    layout::Layout,
    lists,
    medium::{Medium, Sound},
};

use crate::{
    arch::Arch,
    bundle, elf,
    tree::{Tree, check_mode},
};

/// The programs for operators by architecture.
pub type ProgramsByArch = BTreeMap<String, Vec<u8>>;

/// Returns the files for all these architectures, by their path on the medium.
pub fn tree(layout: &Layout, arches: &[Arch], programs: &ProgramsByArch) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let all_digests = lists::digests(&layout.images);
    for architecture in arches.iter().map(|arch| arch.name()) {
        let part = bundle::slice(layout, architecture)?;
        let program = programs.get(architecture).map(Vec::as_slice);
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
    files.insert(
        lists::archive_name(architecture),
        image_archive::write(part)?,
    );
    let program = program.map(|bytes| (lists::program_name(architecture), bytes.to_owned()));
    files.extend(program);
    let sums = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), sha256(bytes)));
    let sums = lists::sums(sums);
    files.insert(lists::sums_name(architecture), sums.into_bytes());
    Ok(files)
}

/// Checks a directory of archives, the modes of its files, and that the programs for operators in it are static and for their architectures.
pub fn check(medium: &Medium) -> anyhow::Result<Sound> {
    for name in medium.names() {
        let path = medium.path(name);
        let metadata = fs::metadata(&path);
        let metadata = metadata.with_context(|| format!("cannot read {}", path.display()))?;
        check_mode(&path, &metadata)?;
    }
    let sound = medium.check(None)?;
    for name in sound.files.keys() {
        let Some(arch) = program_arch(name) else {
            continue;
        };
        let path = medium.path(name);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        elf::check_static(&bytes, arch).with_context(|| name.clone())?;
    }
    Ok(sound)
}

/// Opens and checks the directory of archives at which a medium may be mounted.
pub fn read(dir: &Path) -> anyhow::Result<Sound> {
    let unsound = || format!("{} is not sound", dir.display());
    let medium = Medium::open(dir, None).with_context(unsound)?;
    check(&medium).with_context(unsound)
}

/// Returns the architecture of a program for operators by its name.
fn program_arch(name: &str) -> Option<Arch> {
    let of = |arch: &Arch| lists::program_name(arch.name()) == name;
    Arch::ALL.into_iter().find(of)
}
