//! A power cut at every step of a verb. What was not synced may be lost, in each directory independently. After the next start, or the
//! next DEL, nothing is left, no lease on disk included. Other tests count how often a verb waits for the disk.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use cni::types::CniError;
use node::root::Disk;
use serde_json::json;

use super::fixture::{Fixture, PluginCall};
use crate::engine::NetnsState;
use crate::state::faults::{self, Fault};

/// The directories that a power cut affects.
const DIRS: [&str; 3] = [
    "var/lib/cni/multus",
    "var/lib/cni/multus/.multus-rs",
    "var/lib/cni/multus/results",
];

/// A disk that records what was synced, without syncing anything.
#[derive(Debug)]
struct Recorder {
    synced: Mutex<Synced>,
    /// Whether the sync of a new file commits its name.
    syncs_names: bool,
    verb: ThreadId,
    /// Whether other threads' syncs fail.
    is_full: AtomicBool,
}

#[derive(Debug, Default)]
struct Synced {
    /// The number of syncs.
    waits: u32,
    /// Files by inode, with the content that was synced. They are kept open so that no other file gets the number.
    files: HashMap<u64, (File, Option<Vec<u8>>)>,
    /// Names that were synced, by directory.
    names: HashMap<PathBuf, BTreeMap<String, u64>>,
    /// Files that another thread syncs, with their content.
    late: Vec<(PathBuf, Vec<u8>)>,
    /// Whether the default network's plugin runs. Until it ends, these files are not on disk.
    is_late: bool,
}

/// Says what a power cut leaves of a directory.
#[derive(Debug, Clone, Copy)]
struct Fate {
    /// Whether new names and removals survive that were not synced.
    names: bool,
    /// Whether content survives that was not synced.
    content: bool,
}

const FATES: [Fate; 4] = [
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
fn files(dir: &Path) -> Vec<(String, File)> {
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
        let bytes = content(&File::open(path).unwrap());
        self.file_with(path, bytes);
    }

    fn file_with(&mut self, path: &Path, bytes: Vec<u8>) {
        let file = File::open(path).unwrap();
        let ino = file.metadata().unwrap().ino();
        self.files.insert(ino, (file, Some(bytes)));
    }

    fn name(&mut self, path: &Path) {
        let ino = fs::metadata(path).unwrap().ino();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let names = self
            .names
            .entry(path.parent().unwrap().to_owned())
            .or_default();
        names.insert(name, ino);
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
    fn settle(&self, fixture: &Fixture) {
        let mut synced = self.synced.lock().unwrap();
        *synced = Synced::default();
        for dir in DIRS {
            let dir = fixture.dir.path().join(dir);
            for (name, _) in files(&dir) {
                synced.file(&dir.join(name));
            }
            synced.dir(&dir);
        }
    }

    fn cut(&self, fixture: &Fixture, fates: [Fate; 3]) {
        let mut synced = self.synced.lock().unwrap();
        for (path, bytes) in std::mem::take(&mut synced.late) {
            if !synced.is_late && path.exists() {
                synced.file_with(&path, bytes);
                synced.name(&path);
            }
        }
        for (dir, mut fate) in DIRS.iter().zip(fates) {
            // Names are committed in their order: if the lease has its name, the earlier files have theirs.
            fate.names |= synced.is_late;
            synced.cut(&fixture.dir.path().join(dir), fate);
        }
    }

    fn waits(&self) -> u32 {
        std::mem::take(&mut self.synced.lock().unwrap().waits)
    }
}

impl Disk for Recorder {
    fn sync_data(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        faults::step()?;
        let mut synced = self.synced.lock().unwrap();
        synced.waits += 1;
        let path = path_of(file.as_fd());
        if !self.syncs_names {
            synced.file(&path);
        } else if thread::current().id() == self.verb {
            synced.file(&path);
            synced.name(&path);
        } else if self.is_full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        } else {
            let bytes = content(&File::open(&path).unwrap());
            synced.late.push((path, bytes));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        faults::step()?;
        let mut synced = self.synced.lock().unwrap();
        synced.waits += 1;
        synced.dir(&path_of(dir.as_fd()));
        Ok(())
    }

    fn syncs_name_of_new_file(&self, _: BorrowedFd<'_>) -> bool {
        self.syncs_names
    }
}

type Verb<'a> = &'a dyn Fn(&mut Fixture) -> Result<(), CniError>;

/// Returns the leases that plugins keep on disk, as host-local does.
fn leases(fixture: &Fixture) -> Vec<String> {
    let names = files(&fixture.dir.path().join("leases"));
    names.into_iter().map(|(name, _)| name).collect()
}

/// Returns a node whose plugins keep leases and fail at the planned step.
fn node(syncs_names: bool) -> (Arc<Recorder>, Fixture) {
    let disk = Arc::new(Recorder {
        synced: Mutex::default(),
        syncs_names,
        verb: thread::current().id(),
        is_full: AtomicBool::default(),
    });
    let fixture = Fixture::on_disk(Arc::clone(&disk) as _);
    fixture.nad("fails", r#"{"cniVersion":"1.0.0","type":"failing"}"#);
    let dir = fixture.dir.path().join("leases");
    fs::create_dir(&dir).unwrap();
    let recorder = Arc::clone(&disk);
    fixture.on_call(move |call: &PluginCall| {
        let text = call.text();
        let step = || faults::step().map_err(|error| CniError::new(5, format!("{text}: {error}")));
        let is_late = |is_late| recorder.synced.lock().unwrap().is_late = is_late;
        is_late(call.env["CNI_COMMAND"] == "ADD" && call.env["CNI_IFNAME"] == "eth0");
        step()?;
        let lease = dir.join(format!("{} {}", call.env["CNI_IFNAME"], call.plugin));
        match call.env["CNI_COMMAND"].as_str() {
            "ADD" => fs::write(lease, call.env["CNI_CONTAINERID"].as_str()).unwrap(),
            "DEL" => drop(fs::remove_file(lease)),
            _ => {}
        }
        step()?;
        is_late(false);
        match text.as_str() {
            "ADD failing net2" => Err(CniError::new(7, "no")),
            _ => Ok(()),
        }
    });
    (disk, fixture)
}

/// Cuts the power at every step of `verb`, after `before`, with several fates of the directories, and checks that `after` leaves nothing.
/// `after` gets whether the verb was answered. Returns the number of steps where the sync of a new file does not commit its name.
fn at_every_step(
    before: Verb<'_>,
    verb: Verb<'_>,
    after: &dyn Fn(&mut Fixture, bool) -> Result<(), CniError>,
) -> u32 {
    // Six of the sixty-four combinations: all lost, all kept, and each directory kept while another one is lost.
    let fates = [
        [0, 0, 0],
        [0, 3, 1],
        [1, 2, 2],
        [2, 1, 3],
        [3, 0, 0],
        [3, 3, 3],
    ];
    // The kinds of disk differ by what is lost while the default network is attached.
    let journal_fates = [[0, 0, 0], [0, 3, 1], [3, 0, 3], [3, 3, 3]];
    at_every_step_on(true, &journal_fates, before, verb, after);
    at_every_step_on(false, &fates, before, verb, after)
}

fn at_every_step_on(
    syncs_names: bool,
    fates: &[[usize; 3]],
    before: Verb<'_>,
    verb: Verb<'_>,
    after: &dyn Fn(&mut Fixture, bool) -> Result<(), CniError>,
) -> u32 {
    let mut most = 0;
    for &[base, own, results] in fates {
        let fates = [FATES[base], FATES[own], FATES[results]];
        for step in 0.. {
            let (disk, mut fixture) = node(syncs_names);
            // On any node that is not new, the directories exist already.
            fixture.add("c0", "").unwrap();
            fixture.del("c0").unwrap();
            before(&mut fixture).unwrap();
            disk.settle(&fixture);
            faults::plan(step, Fault::End);
            let outcome = catch_unwind(AssertUnwindSafe(|| verb(&mut fixture)));
            let happened = faults::happened();
            if !happened {
                outcome.unwrap().unwrap();
            }
            disk.cut(&fixture, fates);
            fixture.reboot();
            let case = format!("{fates:?} at {step}, names with content: {syncs_names}");
            after(&mut fixture, !happened).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(leases(&fixture), Vec::<String>::new(), "{case}");
            let files = fixture.files();
            assert!(files.is_empty(), "{case}: {files:?}");
            if !happened {
                most = most.max(step);
                break;
            }
        }
    }
    most
}

fn add(fixture: &mut Fixture) -> Result<(), CniError> {
    fixture.add("c1", "a,b").map(drop)
}

fn del(fixture: &mut Fixture) -> Result<(), CniError> {
    fixture.del("c1")
}

/// Starts the daemon on a node whose runtime does not know the container.
fn start(fixture: &mut Fixture) -> Result<(), CniError> {
    let path = ["/opt/cni/bin".into()];
    let stale = |_: &_, namespace: NetnsState<'_>| match namespace {
        NetnsState::Unknown => false,
        NetnsState::Lost => true,
        NetnsState::At(path) => !fixture.dir.path().join(&path[1..]).exists(),
    };
    let errors = fixture
        .engine
        .detach_stale(&path, &fixture.netconf(), &stale);
    errors.into_iter().next().map_or(Ok(()), Err)
}

/// Removes entries of the result cache that lost their content, as the next start does: they name no container.
fn without_empty_results(fixture: &Fixture) {
    let dir = fixture.dir.path().join(DIRS[2]);
    for (name, file) in files(&dir) {
        if file.metadata().unwrap().len() == 0 {
            fs::remove_file(dir.join(name)).unwrap();
        }
    }
}

#[test]
fn power_cut_in_add_is_undone_by_the_next_start() {
    let steps = at_every_step(&|_| Ok(()), &add, &|fixture, _| start(fixture));
    // Before and after four plugins, two files, two waits, a word for each further network.
    assert_eq!(steps, 14);
}

#[test]
fn power_cut_in_add_is_undone_by_del() {
    at_every_step(&|_| Ok(()), &add, &|fixture, _| {
        del(fixture)?;
        without_empty_results(fixture);
        start(fixture)
    });
}

#[test]
fn power_cut_in_add_is_undone_by_gc() {
    at_every_step(&|_| Ok(()), &add, &|fixture, _| {
        fixture.gc(json!([]))?;
        without_empty_results(fixture);
        Ok(())
    });
}

#[test]
fn power_cut_in_a_failing_add_is_undone_by_the_next_start() {
    let failing = |fixture: &mut Fixture| {
        fixture.add("c1", "a,fails").unwrap_err();
        Ok(())
    };
    at_every_step(&|_| Ok(()), &failing, &|fixture, _| start(fixture));
}

#[test]
fn power_cut_in_del_is_finished_by_start_or_del() {
    let steps = at_every_step(&add, &del, &|fixture, answered| {
        start(fixture)?;
        // The runtime repeats a DEL that was not answered.
        if answered { Ok(()) } else { del(fixture) }
    });
    assert_eq!(steps, 11);
}

#[test]
fn power_cut_after_add_and_del_leaves_nothing() {
    let verb = |fixture: &mut Fixture| {
        add(fixture)?;
        del(fixture)
    };
    at_every_step(&|_| Ok(()), &verb, &|fixture, answered| {
        start(fixture)?;
        if answered { Ok(()) } else { del(fixture) }
    });
}

#[test]
fn power_cut_in_start_is_finished_by_the_next_start() {
    let before = |fixture: &mut Fixture| {
        add(fixture)?;
        fixture.reboot();
        Ok(())
    };
    at_every_step(&before, &start, &|fixture, _| start(fixture));
}

#[test]
fn power_cut_in_hot_plug_is_undone_by_the_next_start() {
    let before = |fixture: &mut Fixture| fixture.add("c1", "a,b@old").map(drop);
    let wanted =
        r#"[{"name": "a", "mac": "02:00:00:00:00:07"}, {"name": "b", "interface": "new"}]"#;
    let reconcile = |fixture: &mut Fixture| fixture.reconcile("c1", wanted).map(drop);
    at_every_step(&before, &reconcile, &|fixture, _| start(fixture));
}

/// An attached network stays known until it is detached, even if the power cut took the record of its progress.
#[test]
fn networks_of_a_cut_add_are_retried_until_detached() {
    let worst = Fate {
        names: false,
        content: false,
    };
    for first in [&start as Verb<'_>, &del] {
        let (disk, mut fixture) = node(false);
        add(&mut fixture).unwrap();
        disk.cut(&fixture, [worst; 3]);
        fixture.reboot();
        fixture.fail(&["DEL macvlan"]);
        first(&mut fixture).unwrap_err();
        fixture.on_call(|_| Ok(()));
        fixture.calls();
        start(&mut fixture).unwrap();
        fixture.check_calls(&["DEL macvlan net1"]);
        assert!(fixture.files().is_empty(), "{:?}", fixture.files());
    }
}

#[test]
fn add_whose_record_does_not_reach_the_disk_is_undone() {
    let (disk, fixture) = node(true);
    disk.is_full.store(true, Ordering::SeqCst);
    let error = fixture.add("c1", "a").unwrap_err();
    assert_eq!(error.code, CniError::IO_FAILURE, "{error}");
    fixture.check_calls(&[
        "ADD flannel eth0",
        "ADD portmap eth0",
        "DEL portmap eth0",
        "DEL flannel eth0",
    ]);
    assert_eq!(leases(&fixture), Vec::<String>::new());
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn number_of_syncs_does_not_depend_on_the_number_of_networks() {
    for (syncs_names, expected) in [(false, 2), (true, 1)] {
        let (disk, fixture) = node(syncs_names);
        fixture.add("c0", "").unwrap();
        fixture.del("c0").unwrap();
        disk.waits();
        for networks in ["", "a", "a,b", "a,b,a,b"] {
            fixture.add("c1", networks).unwrap();
            // The content and the name of the first record.
            assert_eq!(disk.waits(), expected, "{networks}");
            fixture.del("c1").unwrap();
            assert_eq!(disk.waits(), 1, "{networks}");
            fixture.del("c1").unwrap();
            assert_eq!(disk.waits(), 0, "{networks}");
        }
    }
}

/// Without a boot id a reboot cannot be recognised, so progress has to be on disk.
#[test]
fn missing_boot_id_syncs_every_network() {
    let (disk, fixture) = node(false);
    fs::remove_file(fixture.dir.path().join("proc/sys/kernel/random/boot_id")).unwrap();
    fixture.add("c0", "").unwrap();
    disk.waits();
    fixture.add("c1", "a,b").unwrap();
    // Both files, and a word for each further network.
    assert_eq!(disk.waits(), 6);
}
