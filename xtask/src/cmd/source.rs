//! `source`: packs the sources of a commit with those of all crates, for distributions, which build with their own compilers and
//! without a network. What they build is theirs: its bytes are not those of a release.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use archive::{
    digest::sha256,
    gzip,
    tar::{self, Entry},
};
use xshell::cmd;

use crate::{project::Project, tree::Tree, ui};

/// Pack the sources of the commit with those of all crates, for builds with other compilers and without a network
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask source\n  cargo xtask source --out /tmp/multus-rs.tar.gz\n\nPrograms that other compilers build do not have the bytes of a release."
)]
pub(crate) struct Args {
    /// The archive; by default target/multus-rs-VERSION-vendored.tar.gz
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Cargo's settings in the archive.
const SETTINGS: &str = ".cargo/config.toml";
/// What they say besides those of the checkout: where crates are, so that no registry is looked for.
const VENDORED: &str = "\n[source.crates-io]\nreplace-with = \"vendored\"\n\n[source.vendored]\ndirectory = \"vendor\"\n";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    ensure!(
        !project.is_dirty(),
        "files differ from the commit that would be packed: commit them, or move them aside"
    );
    let name = format!("multus-rs-{}", project.version);
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| project.target.join(format!("{name}-vendored.tar.gz")));
    let (dir, file) = (out.parent(), out.file_name().and_then(|name| name.to_str()));
    let (Some(dir), Some(file)) = (dir, file) else {
        bail!("--out {}: name a file", out.display());
    };
    let bytes = pack(&name, collect(&project)?)?;
    ui::note(&format!(
        "{}: {} bytes, sha256 {}",
        out.display(),
        bytes.len(),
        sha256(&bytes)
    ));
    let mut tree = Tree::default();
    tree.add(file, bytes);
    tree.update(dir, &[])
}

/// Returns the files of the commit, and the sources of all crates below `vendor/`.
fn collect(project: &Project) -> anyhow::Result<Tree> {
    let shell = project.shell()?;
    let dir = tempfile::tempdir().context("cannot make a directory for the sources")?;
    let (prefix, vendor) = (dir.path().join(""), dir.path().join("vendor"));
    cmd!(
        shell,
        "git -c safe.directory=* checkout-index --all --prefix {prefix}"
    )
    .quiet()
    .run()
    .context("cannot copy the files of the commit")?;
    cmd!(
        shell,
        "cargo vendor --quiet --locked --versioned-dirs {vendor}"
    )
    .quiet()
    .ignore_stdout()
    .run()
    .context("cannot get the sources of the crates")?;
    Tree::read(dir.path())
}

/// Packs sources below one directory; the bytes follow from the sources alone.
fn pack(name: &str, mut sources: Tree) -> anyhow::Result<Vec<u8>> {
    let settings = sources.get(SETTINGS).unwrap_or_default();
    sources.add(SETTINGS, [settings, VENDORED.as_bytes()].concat());
    let entries = sources.0.into_iter().map(|(path, file)| {
        let mode = if file.is_program { 0o755 } else { 0o644 };
        Entry::file(format!("{name}/{path}"), mode, file.bytes)
    });
    Ok(gzip::compress(&tar::write_in_order(entries)?))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use archive::{
        read::{self, Limits},
        tar::Kind,
    };
    use xshell::Shell;

    use super::*;

    /// Makes a checkout of a crate that uses one of a registry, which builds of this workspace have fetched.
    fn checkout(root: &Path) -> Project {
        let shell = Shell::new().unwrap();
        shell.change_dir(root);
        for (path, text) in [
            (
                "Cargo.toml",
                "[workspace.package]\nversion = \"1.2.3\"\n[package]\nname = \"a\"\nedition = \"2024\"\n[dependencies]\nitoa = \"1\"\n",
            ),
            ("src/lib.rs", "pub use itoa::Buffer;\n"),
            ("run", "#!/bin/sh\n"),
            (
                "rust-toolchain.toml",
                include_str!("../../../rust-toolchain.toml"),
            ),
            (SETTINGS, "[alias]\nb = \"build\"\n"),
        ] {
            shell.write_file(path, text).unwrap();
        }
        fs::set_permissions(root.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
        cmd!(shell, "cargo generate-lockfile --quiet --offline")
            .quiet()
            .run()
            .unwrap();
        for args in ["init --quiet", "add .", "commit --quiet --message=first"] {
            let args = args.split(' ');
            cmd!(
                shell,
                "git -c user.name=a -c user.email=a@b -c commit.gpgSign=false {args...}"
            )
            .quiet()
            .run()
            .unwrap();
        }
        // No file of the commit: it is left out.
        shell.write_file("target/x", "").unwrap();
        Project::at(root.to_owned(), root.join("target")).unwrap()
    }

    #[test]
    fn archive_builds_without_a_registry_and_has_the_same_bytes_again() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [first, second, unpacked] = dirs.each_ref().map(tempfile::TempDir::path);
        let packed =
            [first, second].map(|dir| pack("a", collect(&checkout(dir)).unwrap()).unwrap());
        assert_eq!(sha256(&packed[0]), sha256(&packed[1]));
        let limits = Limits {
            entries: 1000,
            total: 64 << 20,
            links: false,
        };
        let tar = gzip::decompress(&packed[0], limits.total).unwrap();
        let shell = Shell::new().unwrap();
        shell.change_dir(unpacked);
        for entry in read::entries(&tar, &limits).unwrap() {
            let Kind::File(bytes) = &entry.kind else {
                panic!("{entry:?}");
            };
            assert_eq!(entry.mode & 0o111 != 0, entry.path == "a/run", "{entry:?}");
            assert!(!entry.path.starts_with("a/target"), "{entry:?}");
            shell.write_file(&entry.path, bytes).unwrap();
        }
        shell.change_dir("a");
        // This home has no crates.
        let home = unpacked.join("home");
        cmd!(
            shell,
            "cargo b --quiet --offline --locked --target-dir built"
        )
        .env("CARGO_HOME", home)
        .quiet()
        .run()
        .unwrap();
        assert!(shell.path_exists("built/debug/liba.rlib"));
    }
}
