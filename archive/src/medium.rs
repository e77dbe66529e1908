//! A directory of archives on its way to nodes, checked file by file; the first fault is named with its file.
//!
//! Names come before bytes: nothing is read that no checksum file names. Checksums come before content, and are not trusted: an archive must
//! be sound in itself, of the architecture in its name, and hold the images of its lists. Who made the checksums is for the caller to check,
//! between [`Medium::open`] and [`Medium::check`].

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File, FileType},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::{
    digest::{self, Digest, sha256},
    image_archive::{self, Image},
    layout::Layout,
    lists,
};

/// Directories of a release that hold lists for the distros' own trees, and nothing else.
const LIST_DIRS: [&str; 2] = ["k3s", "rke2"];
/// Directories that file systems add to a medium.
const FILE_SYSTEM_DIRS: [&str; 2] = ["lost+found", "System Volume Information"];
/// More than any checksum file, signature or list has.
const MAX_TEXT: u64 = 1 << 20;

/// A directory whose names and checksum files are in order. The other files were not read yet.
#[derive(Debug)]
pub struct Medium {
    dir: PathBuf,
    /// The paths of all files below the directory.
    files: BTreeSet<String>,
    /// By architecture.
    sums: BTreeMap<String, Sums>,
}

/// A checksum file.
#[derive(Debug)]
struct Sums {
    name: String,
    text: String,
    files: Vec<(String, Digest)>,
}

/// The archive of one architecture, which is sound.
#[derive(Debug)]
pub struct SoundArchive {
    /// The Go name.
    pub architecture: String,
    /// The name of the file.
    pub name: String,
    /// The images, by their names and manifests.
    pub images: Vec<Image>,
    /// The content of the archive.
    pub layout: Layout,
}

/// A directory that is sound.
#[derive(Debug)]
pub struct Sound {
    /// Every file that a checksum file names, with its digest.
    pub files: BTreeMap<String, Digest>,
    /// The archives that were read.
    pub archives: Vec<SoundArchive>,
}

/// The first fault, with the file that has it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// There is no checksum file, or none for this architecture.
    #[error("there is no sha256sum-{0}.txt: copy it from the release, next to the archives")]
    NoSums(String),
    /// Neither a regular file nor a directory of lists.
    #[error("{0} is not a regular file: keep nothing but the release's airgap files there")]
    Kind(String),
    #[error(
        "{0} does not belong there: no checksum file names it; remove it, or copy the release's directory again"
    )]
    Foreign(String),
    /// A checksum file is in another form, or names other files than a release has.
    #[error("{0} is damaged: copy it from the release again")]
    Damaged(String),
    /// A checksum file is that of another architecture.
    #[error("{name} has the checksums of {found}: copy the one of {expected} from the release")]
    OtherSums {
        /// The checksum file.
        name: String,
        /// The architecture of the archive in it.
        found: String,
        /// The architecture in its name.
        expected: String,
    },
    /// A file is missing that a checksum file names.
    #[error("{0} is missing: copy the release's directory again")]
    Missing(String),
    /// A file is larger than any of its kind.
    #[error("{name} has more than {max} bytes, so it is not a file of a release: copy it again")]
    TooLarge {
        /// The file.
        name: String,
        /// The limit.
        max: u64,
    },
    /// A file has other bytes than its checksum says.
    #[error("{name} is not the file that {sums} names: copy it again")]
    Sum {
        /// The file.
        name: String,
        /// The checksum file.
        sums: String,
    },
    /// The content of an archive is damaged.
    #[error("copy this archive from the release again: {name}")]
    Archive {
        /// The archive.
        name: String,
        /// The fault in it.
        #[source]
        source: Box<image_archive::Error>,
    },
    /// A list names other images than the archive holds.
    #[error("{list} does not list the images of {archive}: copy both from one release")]
    List { list: String, archive: String },
}

impl Medium {
    /// Reads names and checksum files. A directory for nodes of `architecture` must have its archive; the archives of others may be left
    /// out. Without one, every checksum file needs its archive.
    pub fn open(dir: &Path, architecture: Option<&str>) -> Result<Self, Error> {
        let mut medium = Self {
            dir: dir.to_owned(),
            files: names(dir)?,
            sums: BTreeMap::new(),
        };
        for name in &medium.files {
            let Some(of) = lists::architecture_of_sums(name) else {
                continue;
            };
            let text = medium.text(name)?;
            let sums = Sums::parse(name, of, text)?;
            medium.sums.insert(of.to_owned(), sums);
        }
        let has_needed = architecture.map_or(!medium.sums.is_empty(), |needed| {
            medium.sums.contains_key(needed)
        });
        if !has_needed {
            let needed = architecture.unwrap_or("<architecture>");
            return Err(Error::NoSums(needed.to_owned()));
        }
        let mut named = BTreeSet::new();
        let mut missing = None;
        for (of, sums) in &medium.sums {
            // A signature, if there is one: who made it is another question.
            named.insert(format!("{}{}", sums.name, lists::SIGNATURE));
            named.insert(sums.name.clone());
            let is_other = architecture.is_some_and(|needed| needed != of);
            for (name, _) in &sums.files {
                let is_optional = *name == lists::program_name(of)
                    || (is_other && *name == lists::archive_name(of));
                if !is_optional && !medium.files.contains(name) {
                    missing.get_or_insert_with(|| name.clone());
                }
                named.insert(name.clone());
            }
        }
        // A file under another name is reported by the name that it has.
        if let Some(name) = medium.files.iter().find(|name| !named.contains(*name)) {
            return Err(Error::Foreign(name.clone()));
        }
        match missing {
            Some(name) => Err(Error::Missing(name)),
            None => Ok(medium),
        }
    }

    /// Returns the checksum files and their signatures, by name.
    pub fn signed_files(&self) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let mut found = BTreeMap::new();
        for sums in self.sums.values() {
            found.insert(sums.name.clone(), sums.text.clone().into_bytes());
            let signature = format!("{}{}", sums.name, lists::SIGNATURE);
            if self.files.contains(&signature) {
                let bytes = self.bytes(&signature, MAX_TEXT)?;
                found.insert(signature, bytes);
            }
        }
        Ok(found)
    }

    /// Compares every file with its checksum, and follows every digest in the archive of one architecture, or in all.
    pub fn check(&self, architecture: Option<&str>) -> Result<Sound, Error> {
        let mut sound = Sound {
            files: BTreeMap::new(),
            archives: Vec::new(),
        };
        for (of, sums) in &self.sums {
            let mut content = BTreeMap::new();
            for (name, digest) in &sums.files {
                if !self.files.contains(name) {
                    continue;
                }
                let is_archive = *name == lists::archive_name(of);
                let is_read = if is_archive {
                    architecture.is_none_or(|needed| needed == of)
                } else {
                    *name != lists::program_name(of)
                };
                let found = if is_read {
                    let max = if is_archive {
                        image_archive::MAX_SIZE
                    } else {
                        MAX_TEXT
                    };
                    let bytes = self.bytes(name, max)?;
                    let found = sha256(&bytes);
                    content.insert(name.as_str(), bytes);
                    found
                } else {
                    self.hash(name)?
                };
                if found != *digest {
                    return Err(Error::Sum {
                        name: name.clone(),
                        sums: sums.name.clone(),
                    });
                }
                sound.files.insert(name.clone(), found);
            }
            let name = lists::archive_name(of);
            let Some(bytes) = content.get(name.as_str()) else {
                continue;
            };
            let (layout, images) = image_archive::read_for(bytes, of).map_err(|source| {
                let name = name.clone();
                let source = Box::new(source);
                Error::Archive { name, source }
            })?;
            check_lists(&content, of, &layout)?;
            sound.archives.push(SoundArchive {
                architecture: of.clone(),
                name,
                images,
                layout,
            });
        }
        Ok(sound)
    }

    /// Returns the names of all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Returns the path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn open_file(&self, name: &str) -> Result<File, Error> {
        File::open(self.path(name)).map_err(|source| self.io(name, source))
    }

    fn io(&self, name: &str, source: io::Error) -> Error {
        let path = self.path(name);
        Error::Io { path, source }
    }

    fn hash(&self, name: &str) -> Result<Digest, Error> {
        digest::hash(self.open_file(name)?).map_err(|source| self.io(name, source))
    }

    fn bytes(&self, name: &str, max: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.open_file(name)?
            .take(max + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| self.io(name, source))?;
        if bytes.len() as u64 > max {
            let name = name.to_owned();
            return Err(Error::TooLarge { name, max });
        }
        Ok(bytes)
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        let bytes = self.bytes(name, MAX_TEXT)?;
        String::from_utf8(bytes).map_err(|_| Error::Damaged(name.to_owned()))
    }
}

impl Sums {
    /// Parses a checksum file, which must name exactly the files that a release has for the architecture; the program may be absent.
    fn parse(name: &str, architecture: &str, text: String) -> Result<Self, Error> {
        let mut required = lists::names(architecture);
        required.push(lists::archive_name(architecture));
        let files = lists::parse_sums(&text).unwrap_or_default();
        let is_named = |file: &String| files.iter().any(|(name, _)| name == file);
        if !required.iter().all(is_named) {
            let name = name.to_owned();
            let mut archives = files
                .iter()
                .filter_map(|(file, _)| lists::architecture_of_archive(file));
            return Err(match archives.find(|found| *found != architecture) {
                Some(found) => Error::OtherSums {
                    name,
                    found: found.to_owned(),
                    expected: architecture.to_owned(),
                },
                None => Error::Damaged(name),
            });
        }
        let program = lists::program_name(architecture);
        let mut names = files.iter().map(|(name, _)| name);
        if let Some(other) = names.find(|name| !required.contains(name) && **name != program) {
            return Err(Error::Foreign(other.clone()));
        }
        Ok(Self {
            name: name.to_owned(),
            text,
            files,
        })
    }
}

/// Whether an entry at the root of a medium is there because of its file system.
pub fn is_of_file_system(name: &OsStr, kind: FileType) -> bool {
    kind.is_dir() && FILE_SYSTEM_DIRS.iter().any(|dir| name == *dir)
}

/// Returns the paths of all files, without what the medium's file system adds.
fn names(dir: &Path) -> Result<BTreeSet<String>, Error> {
    let mut files = BTreeSet::new();
    for (name, kind) in entries(dir)? {
        if is_of_file_system(name.as_ref(), kind) {
            continue;
        }
        if kind.is_file() {
            files.insert(name);
            continue;
        }
        if !kind.is_dir() || !LIST_DIRS.contains(&name.as_str()) {
            return Err(Error::Kind(name));
        }
        for (list, kind) in entries(&dir.join(&name))? {
            let list = format!("{name}/{list}");
            if !kind.is_file() {
                return Err(Error::Kind(list));
            }
            files.insert(list);
        }
    }
    Ok(files)
}

fn entries(dir: &Path) -> Result<Vec<(String, fs::FileType)>, Error> {
    let io = |source| Error::Io {
        path: dir.to_owned(),
        source,
    };
    let entries = fs::read_dir(dir).map_err(io)?.map(|entry| {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Ok((name, entry.file_type().map_err(io)?))
    });
    entries.collect()
}

/// Checks that every list has the images of the archive.
fn check_lists(
    content: &BTreeMap<&str, Vec<u8>>,
    architecture: &str,
    part: &Layout,
) -> Result<(), Error> {
    let tags = lists::references(&part.images);
    let text = |name: &str| String::from_utf8_lossy(content.get(name).map_or(&[], Vec::as_slice));
    let lists = lists::tag_lists(architecture).map(|list| (text(&list) == tags, list));
    let by_digest = lists::digest_list(architecture);
    let more = [
        (text(&by_digest) == lists::digests(&part.images), by_digest),
        (
            // The digests in it are those of indexes, which no archive holds.
            lists::without_digests(&text(lists::ALL_DIGESTS)) == tags,
            lists::ALL_DIGESTS.to_owned(),
        ),
    ];
    match lists.into_iter().chain(more).find(|(is_same, _)| !is_same) {
        Some((_, list)) => Err(Error::List {
            list,
            archive: lists::archive_name(architecture),
        }),
        None => Ok(()),
    }
}
