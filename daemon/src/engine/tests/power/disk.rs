//! A disk that records what was synced, and simulates what a power cut leaves of it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use node::root::Disk;

use crate::engine::tests::world::World;
use crate::state::faults;

/// The directories that a power cut affects.
pub(super) const DIRS: [&str; 3] = [
    "var/lib/cni/multus",
    "var/lib/cni/multus/.multus-rs",
    "var/lib/cni/multus/results",
];

/// A disk that records what was synced, without syncing anything.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    synced: Mutex<Synced>,
}

#[derive(Debug, Default)]
struct Synced {
    /// The number of syncs.
    waits: u32,
    /// Files by inode, with the content that was synced. They are kept open so that no other file gets the number.
    files: HashMap<u64, (File, Option<Vec<u8>>)>,
    /// Names that were synced, by directory.
    names: HashMap<PathBuf, BTreeMap<String, u64>>,
}

/// Says what a power cut leaves of a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    /// Whether new names and removals survive that were not synced.
    pub(super) names: bool,
    /// Whether content survives that was not synced.
    pub(super) content: bool,
}

pub(super) const FATES: [Fate; 4] = [
    Fate {
        names: false,
        content: false,
    },
    Fate {
        names: false,
        content: true,
    },
    Fate {
        names: true,
        content: false,
    },
    Fate {
        names: true,
        content: true,
    },
];

fn path_of(fd: BorrowedFd<'_>) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// The regular files of a directory.
pub(super) fn files(dir: &Path) -> Vec<(String, File)> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let entries = entries.map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, File::open(entry.path()).unwrap())
        })
        .collect()
}

impl Synced {
    fn file(&mut self, path: &Path) {
        let file = File::open(path).unwrap();
        let bytes = content(&file);
        let ino = file.metadata().unwrap().ino();
        self.files.insert(ino, (file, Some(bytes)));
    }

    fn dir(&mut self, dir: &Path) {
        let mut names = BTreeMap::new();
        for (name, file) in files(dir) {
            let ino = file.metadata().unwrap().ino();
            self.files.entry(ino).or_insert((file, None));
            names.insert(name, ino);
        }
        self.names.insert(dir.to_owned(), names);
    }

    /// Reduces a directory to what survives a power cut.
    fn cut(&self, dir: &Path, fate: Fate) {
        let now: BTreeMap<_, _> = files(dir).into_iter().collect();
        let mut then = BTreeMap::new();
        if fate.names {
            for (name, file) in &now {
                let synced = self.files.get(&file.metadata().unwrap().ino());
                let synced = synced.and_then(|(_, synced)| synced.clone());
                let bytes = if fate.content {
                    content(file)
                } else {
                    synced.unwrap_or_default()
                };
                then.insert(name, bytes);
            }
        } else {
            for (name, ino) in self.names.get(dir).into_iter().flatten() {
                let (file, synced) = &self.files[ino];
                let bytes = if fate.content {
                    content(file)
                } else {
                    synced.clone().unwrap_or_default()
                };
                then.insert(name, bytes);
            }
        }
        for name in now.keys() {
            fs::remove_file(dir.join(name)).unwrap();
        }
        for (name, bytes) in then {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
}

impl Recorder {
    /// Takes everything as synced.
    pub(super) fn settle(&self, world: &World) {
        let mut synced = self.synced.lock().unwrap();
        *synced = Synced::default();
        for dir in DIRS {
            let dir = world.dir.path().join(dir);
            for (name, _) in files(&dir) {
                synced.file(&dir.join(name));
            }
            synced.dir(&dir);
        }
    }

    pub(super) fn cut(&self, world: &World, fates: [Fate; 3]) {
        let synced = self.synced.lock().unwrap();
        for (dir, fate) in DIRS.iter().zip(fates) {
            synced.cut(&world.dir.path().join(dir), fate);
        }
    }

    pub(super) fn waits(&self) -> u32 {
        std::mem::take(&mut self.synced.lock().unwrap().waits)
    }
}

impl Disk for Recorder {
    fn sync_data(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        faults::step()?;
        let mut synced = self.synced.lock().unwrap();
        synced.waits += 1;
        synced.file(&path_of(file.as_fd()));
        Ok(())
    }

    fn sync_dir(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        faults::step()?;
        let mut synced = self.synced.lock().unwrap();
        synced.waits += 1;
        synced.dir(&path_of(dir.as_fd()));
        Ok(())
    }
}
