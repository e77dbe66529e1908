//! A folder with archives: every file in it is named by a sums file, and has the bytes that the sums tell.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::{ENDINGS, stem};

/// The one file of a release that belongs to no architecture's sums; it is never installed.
const LIST: &str = "multus-images.txt";
/// Folders of a release with lists for the distros' own trees, and nothing else.
const LISTS: [&str; 2] = ["k3s", "rke2"];
/// No sums file is longer.
const MAX_SUMS: u64 = 1 << 20;

/// A file whose bytes are those of the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Its name.
    pub(crate) name: String,
    /// The digest, in hexadecimal digits.
    pub(crate) sha256: String,
}

/// A folder that was read, and what its sums say.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    /// File names, by the sums' architecture and digest.
    sums: BTreeMap<String, (String, String)>,
    present: Vec<String>,
}

/// This machine's architecture, as a release names it.
pub(crate) fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Folder {
    /// Reads names and sums; refuses what no sums file names.
    pub(crate) fn read(dir: &Path, arch: &str) -> anyhow::Result<Self> {
        let named = || dir.display().to_string();
        let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", named()))?;
        let mut present = Vec::new();
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", named()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if LISTS.contains(&name.as_str()) && has_lists_alone(&entry.path()) {
                continue;
            }
            ensure!(
                entry.file_type()?.is_file(),
                "{}/{name} is no plain file: keep nothing but the release's airgap files there",
                named()
            );
            present.push(name);
        }
        present.sort();
        let mut sums = BTreeMap::new();
        for name in &present {
            let Some(of) = sums_of(name) else { continue };
            for (file, digest) in read_sums(&dir.join(name))? {
                sums.insert(file, (of.to_owned(), digest));
            }
        }
        ensure!(
            present.iter().any(|name| sums_of(name) == Some(arch)),
            "there is no sha256sum-{arch}.txt in {}: copy it from the release, beside the archives",
            named()
        );
        let unknown = present
            .iter()
            .find(|name| sums_of(name).is_none() && *name != LIST && !sums.contains_key(*name));
        if let Some(name) = unknown {
            bail!(
                "{}/{name} is in no sha256sum file: remove it, or copy the release's folder again",
                named()
            );
        }
        Ok(Self {
            dir: dir.to_owned(),
            sums,
            present,
        })
    }

    /// Reads every file to its end; the first that is not the release's is an error.
    pub(crate) fn check(&self) -> anyhow::Result<Vec<Checked>> {
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
                "{} is not the release's: its sha256 is {found}, the sums say {digest}; copy it again",
                path.display()
            );
            checked.push(Checked {
                name: name.clone(),
                sha256: found,
            });
        }
        Ok(checked)
    }

    /// The archives of an architecture, one of each kind: where both endings are there, the better one.
    pub(crate) fn archives(&self, arch: &str) -> anyhow::Result<Vec<Checked>> {
        let of_arch = |name: &&String| {
            let known = self.sums.get(*name);
            known.is_some_and(|(of, _)| of == arch) && stem(name).is_some()
        };
        let mut best: BTreeMap<&str, &String> = BTreeMap::new();
        // The better ending comes last, and stays.
        for ending in ENDINGS.iter().rev() {
            let with = self.present.iter().filter(of_arch);
            for name in with.filter(|name| name.ends_with(ending)) {
                best.insert(stem(name).unwrap_or(name), name);
            }
        }
        ensure!(
            !best.is_empty(),
            "there is no archive for {arch} in {}: copy multus-airgap-images-{arch}.tar.zst from the release",
            self.dir.display()
        );
        let checked = best.values().map(|name| Checked {
            name: (*name).clone(),
            sha256: self.sums[*name].1.clone(),
        });
        Ok(checked.collect())
    }

    /// The path of one of its files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// The digest of what is read, while it is copied.
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

fn has_lists_alone(dir: &Path) -> bool {
    let is_list = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| {
            let is_text = entry.path().extension().is_some_and(|end| end == "txt");
            is_text && entry.file_type().is_ok_and(|kind| kind.is_file())
        })
    };
    fs::read_dir(dir).is_ok_and(|mut entries| entries.all(is_list))
}

/// The architecture of a sums file.
fn sums_of(name: &str) -> Option<&str> {
    name.strip_prefix("sha256sum-")?.strip_suffix(".txt")
}

fn read_sums(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let place = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(place)?;
    file.take(MAX_SUMS)
        .read_to_string(&mut text)
        .with_context(place)?;
    let line = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        (is_digest && is_plain).then(|| (name.to_owned(), digest.to_ascii_lowercase()))
    };
    text.lines()
        .map(line)
        .collect::<Option<Vec<_>>>()
        .filter(|lines| !lines.is_empty())
        .with_context(|| {
            format!(
                "{} is no sums file: copy it from the release again",
                path.display()
            )
        })
}
