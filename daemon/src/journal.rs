//! Replaying the DELs that the shim wrote down while nobody answered. Until all were tried, no ADD is answered.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use api::journal;
use cni::types::CniError;
use node::root::{Root, RootError};
use tracing::{info, warn};

use crate::dirwatch::DirectoryWatch;

/// How often entries that failed are tried again.
pub const PERIOD: Duration = Duration::from_mins(1);
/// How many entries are tried at once.
const AT_ONCE: usize = 8;
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const MAX_ENTRY: u64 = api::MAX_MESSAGE as u64;

/// What became of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Entries that are done and gone.
    pub done: usize,
    /// Entries that failed and stay, with the reason.
    pub failed: Vec<String>,
}

/// Watches the journals in these directories of state, made if need be.
pub(crate) fn watch(root: &Root, cni_dirs: &[PathBuf]) -> io::Result<DirectoryWatch> {
    let dirs: Vec<_> = cni_dirs.iter().map(|dir| journal::dir(dir)).collect();
    for dir in &dirs {
        root.make_dirs(dir, DIR_MODE)
            .map_err(|error| error.source)?;
    }
    DirectoryWatch::new(root, &dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

/// Writes a DEL down as the shim does: CNI's variables alone, for others may be secrets.
pub fn put(
    root: &Root,
    cni_dir: &Path,
    name: &str,
    request: &api::Request,
) -> Result<(), RootError> {
    let mut request = request.clone();
    request.env.retain(|key, _| key.starts_with("CNI_"));
    let dir = journal::dir(cni_dir);
    root.make_dirs(&dir, DIR_MODE)?;
    root.write_atomic(dir.join(name), &request.to_json(), FILE_MODE)
}

/// Gives every entry of these directories of state to `del`, several at a time; one that succeeds is removed, one that is no
/// request is set aside as `<name>.broken`. No entry holds up another.
pub fn replay(
    root: &Root,
    cni_dirs: &[PathBuf],
    del: impl Fn(api::Request) -> Result<(), CniError> + Sync,
) -> Result<Replayed, RootError> {
    let mut entries = Vec::new();
    for dir in cni_dirs.iter().map(|dir| journal::dir(dir)) {
        match root.list(&dir) {
            Ok(names) => {
                let names = names.into_iter().filter(|name| journal::is_entry(name));
                entries.extend(names.map(|name| dir.join(name)));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    let threads = AT_ONCE.min(entries.len());
    let left = Mutex::new(entries.into_iter());
    let replayed = Mutex::new(Replayed::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(entry) = next() {
                    let outcome = one(root, &entry, &del);
                    let name = entry.file_name().unwrap_or_default().to_string_lossy();
                    let mut replayed = replayed.lock().unwrap_or_else(PoisonError::into_inner);
                    match outcome {
                        Ok(()) => {
                            info!(entry = %name, "replayed a DEL from the journal");
                            replayed.done += 1;
                        }
                        Err(reason) => {
                            warn!(
                                entry = %name,
                                reason, "a DEL from the journal failed, it will be tried again"
                            );
                            replayed.failed.push(format!("{name}: {reason}"));
                        }
                    }
                }
            });
        }
    });
    let mut replayed = replayed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    replayed.failed.sort();
    Ok(replayed)
}

fn one(
    root: &Root,
    path: &Path,
    del: impl Fn(api::Request) -> Result<(), CniError>,
) -> Result<(), String> {
    let text = |error: RootError| error.to_string();
    let bytes = match root.read(path, MAX_ENTRY) {
        // Another daemon of this node was faster.
        Err(error) if error.is_not_found() => return Ok(()),
        other => other.map_err(text)?,
    };
    match api::Request::from_json(&bytes) {
        Ok(request) => del(request).map_err(|error| error.to_string())?,
        Err(error) => {
            warn!(entry = %path.display(), %error, "an entry of the journal is no request, it is set aside");
            return set_aside(root, path).map_err(text);
        }
    }
    root.remove(path).map(drop).map_err(text)
}

/// Takes a name that is no entry's. Needs no space, so that a full disk does not have it tried for ever.
fn set_aside(root: &Root, path: &Path) -> Result<(), RootError> {
    let (dir, name) = root.parent(path)?;
    let mut aside = name.to_owned();
    aside.push(".broken");
    rustix::fs::renameat(&dir, name, &dir, aside).map_err(|error| RootError {
        action: "set aside",
        path: path.to_owned(),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn done_entries_go_failed_ones_stay_broken_ones_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let cni_dir = Path::new("/state");
        let dirs = [cni_dir.to_owned(), PathBuf::from("/none")];
        assert_eq!(
            replay(&root, &dirs, |_| panic!("nothing to do")).unwrap(),
            Replayed::default()
        );
        let pending = journal::dir(cni_dir);
        root.make_dirs(&pending, 0o700).unwrap();
        let mut request = api::Request::default();
        for (name, id) in [("a.json", "good"), ("b.json", "bad")] {
            request.env.insert("CNI_CONTAINERID".into(), id.into());
            root.write_atomic(pending.join(name), &request.to_json(), 0o600)
                .unwrap();
        }
        root.write_atomic(pending.join("c.json"), b"{", 0o600)
            .unwrap();
        root.make_dirs(pending.join("d.json"), 0o700).unwrap();
        let del = |request: api::Request| match request.env["CNI_CONTAINERID"].as_str() {
            "good" => Ok(()),
            _ => Err(CniError::new(999, "no")),
        };
        let replayed = replay(&root, &dirs, del).unwrap();
        assert_eq!((replayed.done, replayed.failed.len()), (2, 2));
        assert_eq!(replayed.failed[0], "b.json: no");
        assert!(replayed.failed[1].starts_with("d.json: cannot read"));
        assert_eq!(
            root.list(&pending).unwrap(),
            ["b.json", "c.json.broken", "d.json"]
        );
    }

    #[test]
    fn what_is_put_is_replayed_without_foreign_variables() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let cni_dir = Path::new("/state");
        let mut request = api::Request::default();
        for (key, value) in [("CNI_CONTAINERID", "c1"), ("TOKEN", "secret")] {
            request.env.insert(key.into(), value.into());
        }
        put(&root, cni_dir, "c1.json", &request).unwrap();
        let seen = Mutex::new(Vec::new());
        let del = |request: api::Request| {
            seen.lock().unwrap().push(request.env);
            Ok(())
        };
        assert_eq!(replay(&root, &[cni_dir.to_owned()], del).unwrap().done, 1);
        request.env.remove("TOKEN");
        assert_eq!(seen.into_inner().unwrap(), [request.env]);
    }
}
