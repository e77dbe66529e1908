//! A directory with archives: a checksum file names every file in it, and each file has the bytes that its checksum requires.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::{ENDINGS, is_program, stem};
use crate::trusted_key::TrustedKey;

/// Directories of a release that hold lists for the distros' own trees, and nothing else.
const LIST_DIRS: [&str; 2] = ["k3s", "rke2"];
/// Directories that file systems add to a medium.
const MEDIUM_DIRS: [&str; 2] = ["lost+found", "System Volume Information"];
/// More than any checksum file or signature.
const MAX_SUMS: u64 = 1 << 20;
/// The ending of the signature of a checksum file.
const SIGNATURE: &str = ".sig";

/// A file whose bytes are those of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckedFile {
    pub(crate) name: String,
    /// The digest in hexadecimal digits.
    pub(crate) sha256: String,
}

/// A directory whose names and checksum files were read.
#[derive(Debug)]
pub(crate) struct ArchiveDir {
    dir: PathBuf,
    /// By file name: the architecture of its checksum file, and the digest.
    sums: BTreeMap<String, (String, String)>,
    /// The checksum files as they were read, by name.
    sums_files: BTreeMap<String, String>,
    present: Vec<String>,
}

/// Returns this machine's architecture, as a release names it.
pub(crate) fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl ArchiveDir {
    /// Reads names and checksums; refuses a file that no checksum file names.
    pub(crate) fn read(dir: &Path, arch: &str) -> anyhow::Result<Self> {
        let named = || dir.display().to_string();
        ensure!(
            dir.is_dir(),
            "there is no directory {}: name the one with the release's airgap files",
            named()
        );
        let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", named()))?;
        let mut present = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", named()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && MEDIUM_DIRS.contains(&name.as_str()) {
                continue;
            }
            if LIST_DIRS.contains(&name.as_str())
                && let Some(lists) = lists_in(&entry.path())
            {
                present.extend(lists.into_iter().map(|list| format!("{name}/{list}")));
                continue;
            }
            ensure!(
                kind.is_file(),
                "{}/{name} is not a regular file: keep nothing but the release's airgap files there",
                named()
            );
            present.push(name);
        }
        present.sort();
        let mut sums = BTreeMap::<String, (String, String)>::new();
        let mut sums_files = BTreeMap::new();
        for name in &present {
            let Some(arch) = arch_of_sums(name) else {
                continue;
            };
            let path = dir.join(name);
            let text = read_small(&path)?;
            for (file, digest) in parse_sums(&text, &path)? {
                let sum = (arch.to_owned(), digest);
                let (other, former) = sums.entry(file.clone()).or_insert_with(|| sum.clone());
                ensure!(
                    *former == sum.1,
                    "{}: {name} and sha256sum-{other}.txt have different checksums for {file}: copy all files from one release",
                    named()
                );
            }
            sums_files.insert(name.clone(), text);
        }
        ensure!(
            present.iter().any(|name| arch_of_sums(name) == Some(arch)),
            "there is no sha256sum-{arch}.txt in {}: copy it from the release, next to the archives",
            named()
        );
        let unknown = present.iter().find(|name| {
            let signed = name.strip_suffix(SIGNATURE);
            !sums.contains_key(*name)
                && !sums_files.contains_key(*name)
                && !signed.is_some_and(|signed| sums_files.contains_key(signed))
        });
        if let Some(name) = unknown {
            bail!(
                "{}/{name} is in no sha256sum file: remove it, or copy the release's directory again",
                named()
            );
        }
        let may_be_absent = |name: &str| stem(name).is_some() || is_program(name);
        let is_missing = |name: &&String| !may_be_absent(name) && !present.contains(name);
        if let Some(name) = sums.keys().find(is_missing) {
            bail!(
                "{}/{name} is missing: copy the release's directory again",
                named()
            );
        }
        Ok(Self {
            dir: dir.to_owned(),
            sums,
            sums_files,
            present,
        })
    }

    /// Checks that the owner of a key signed every checksum file, so that no file of anybody else is taken; returns their names.
    pub(crate) fn check_signatures(&self, trusted: &TrustedKey) -> anyhow::Result<Vec<&String>> {
        let mut signed = Vec::new();
        for (name, text) in &self.sums_files {
            let signature = format!("{name}{SIGNATURE}");
            let path = self.dir.join(&signature);
            ensure!(
                self.present.contains(&signature),
                "{} is missing, and {} is trusted alone: copy it from the release, or take a release that its owner signed",
                path.display(),
                trusted.origin
            );
            let outcome = trusted
                .key
                .verify_text(text.as_bytes(), read_small(&path)?.as_bytes());
            if let Err(error) = outcome {
                bail!(
                    "{}: {error} ({}): {name} was changed after it was signed, or somebody else signed it; copy the release again from where the owner of the key publishes it",
                    path.display(),
                    trusted.origin
                );
            }
            signed.push(name);
        }
        Ok(signed)
    }

    /// Reads every file to its end; fails at the first whose digest differs from its checksum.
    pub(crate) fn check(&self) -> anyhow::Result<Vec<CheckedFile>> {
        let mut checked = Vec::new();
        for name in &self.present {
            let Some((_, digest)) = self.sums.get(name) else {
                continue;
            };
            let path = self.dir.join(name);
            let file =
                File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let found = hash(file, io::sink())
                .with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(
                found == *digest,
                "{} is not the release's: its sha256 is {found}, its checksum file has {digest}; copy it again",
                path.display()
            );
            checked.push(CheckedFile {
                name: name.clone(),
                sha256: found,
            });
        }
        Ok(checked)
    }

    /// Returns the archives of an architecture, one of each kind: where both forms are there, the smaller one.
    pub(crate) fn archives(&self, arch: &str) -> anyhow::Result<Vec<CheckedFile>> {
        let is_for_arch = |name: &&String| {
            let sum = self.sums.get(*name);
            sum.is_some_and(|(of, _)| of == arch) && stem(name).is_some()
        };
        let mut best: BTreeMap<&str, &String> = BTreeMap::new();
        // The smaller form comes last, and replaces the other.
        for ending in ENDINGS.iter().rev() {
            let archives = self.present.iter().filter(is_for_arch);
            for name in archives.filter(|name| name.ends_with(ending)) {
                best.insert(stem(name).unwrap_or(name), name);
            }
        }
        ensure!(
            !best.is_empty(),
            "there is no archive for {arch} in {}: copy multus-airgap-images-{arch}.tar.zst from the release",
            self.dir.display()
        );
        let checked = best.values().map(|name| CheckedFile {
            name: (*name).clone(),
            sha256: self.sums[*name].1.clone(),
        });
        Ok(checked.collect())
    }

    /// Returns the image lists for an architecture and for all, each with its text.
    pub(crate) fn lists(&self, arch: &str) -> anyhow::Result<Vec<(PathBuf, String)>> {
        let lists = self.sums.keys().filter(|name| {
            stem(name).is_none()
                && !is_program(name)
                && (!name.contains(".linux-") || name.ends_with(&format!(".linux-{arch}.txt")))
        });
        lists
            .map(|name| {
                let path = self.dir.join(name);
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                Ok((path, text))
            })
            .collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Copies everything, and returns the digest of what was read.
pub(crate) fn hash(mut from: impl Read, mut to: impl io::Write) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let count = match from.read(&mut block) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if count == 0 {
            break;
        }
        digest.update(&block[..count]);
        to.write_all(&block[..count])?;
    }
    let digits = digest.finalize();
    Ok(digits.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Returns the names in a directory of lists, or `None` when it holds anything else.
fn lists_in(dir: &Path) -> Option<Vec<String>> {
    let list = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let is_text = Path::new(&name).extension().is_some_and(|end| end == "txt");
        (is_file && is_text).then_some(name)
    };
    fs::read_dir(dir).ok()?.map(list).collect()
}

/// Returns the architecture in the name of a checksum file.
fn arch_of_sums(name: &str) -> Option<&str> {
    name.strip_prefix("sha256sum-")?.strip_suffix(".txt")
}

/// Reads a checksum file or a signature.
fn read_small(path: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(context)?;
    let length = file.take(MAX_SUMS + 1).read_to_end(&mut bytes);
    ensure!(
        length.with_context(context)? as u64 <= MAX_SUMS,
        "{} has more than {MAX_SUMS} bytes, so it is no file of a release: copy it again",
        path.display()
    );
    String::from_utf8(bytes).ok().with_context(|| {
        format!(
            "{} is no text: copy it from the release again",
            path.display()
        )
    })
}

fn parse_sums(text: &str, path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let line = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let plain = LIST_DIRS
            .iter()
            .find_map(|dir| name.strip_prefix(dir)?.strip_prefix('/'));
        let plain = plain.unwrap_or(name);
        let is_plain = !plain.is_empty() && !plain.contains('/') && !plain.starts_with('.');
        (is_digest && is_plain).then(|| (name.to_owned(), digest.to_ascii_lowercase()))
    };
    text.lines()
        .map(line)
        .collect::<Option<Vec<_>>>()
        .filter(|lines| !lines.is_empty())
        .with_context(|| {
            format!(
                "{} is not a checksum file: copy it from the release again",
                path.display()
            )
        })
}
