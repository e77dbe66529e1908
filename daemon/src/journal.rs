//! Replaying the DELs that the shim wrote down while nobody answered. Until all were tried, no ADD is answered.

use std::{io, path::Path, time::Duration};

use api::journal;
use cni::types::CniError;
use node::root::{Root, RootError};
use tracing::{info, warn};

use crate::dirwatch::DirectoryWatch;

/// How often entries that failed are tried again.
pub const PERIOD: Duration = Duration::from_mins(1);
const DIR_MODE: u32 = 0o700;
const MAX_ENTRY: u64 = api::MAX_MESSAGE as u64;

/// What became of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Entries that are done and gone.
    pub done: usize,
    /// Entries that failed and stay, with the reason.
    pub failed: Vec<String>,
}

/// Watches the directory of a journal, made if need be.
pub(crate) fn watch(root: &Root, cni_dir: &Path) -> io::Result<DirectoryWatch> {
    let dir = journal::dir(cni_dir);
    root.make_dirs(&dir, DIR_MODE)
        .map_err(|error| error.source)?;
    DirectoryWatch::new(root, &[&dir])
}

/// Gives every entry to `del`; one that succeeds is removed, one that is no request is set aside as `<name>.broken`.
pub fn replay(
    root: &Root,
    cni_dir: &Path,
    del: impl Fn(api::Request) -> Result<(), CniError>,
) -> Result<Replayed, RootError> {
    let dir = journal::dir(cni_dir);
    let names = match root.list(&dir) {
        Ok(names) => names,
        Err(error) if error.is_not_found() => return Ok(Replayed::default()),
        Err(error) => return Err(error),
    };
    let mut replayed = Replayed::default();
    for name in names.into_iter().filter(|name| journal::is_entry(name)) {
        let path = dir.join(&name);
        let bytes = root.read(&path, MAX_ENTRY)?;
        let outcome = match api::Request::from_json(&bytes) {
            Ok(request) => del(request).map_err(|error| error.to_string()),
            Err(error) => {
                root.write_atomic(dir.join(format!("{name}.broken")), &bytes, 0o600)?;
                warn!(entry = %path.display(), %error, "an entry of the journal is no request, it was set aside");
                Ok(())
            }
        };
        match outcome {
            Ok(()) => {
                root.remove(&path)?;
                replayed.done += 1;
                info!(entry = name, "replayed a DEL from the journal");
            }
            Err(reason) => {
                warn!(
                    entry = name,
                    reason, "a DEL from the journal failed, it will be tried again"
                );
                replayed.failed.push(format!("{name}: {reason}"));
            }
        }
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn done_entries_go_failed_ones_stay_broken_ones_are_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let cni_dir = Path::new("/state");
        assert_eq!(
            replay(&root, cni_dir, |_| panic!("nothing to do")).unwrap(),
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
        let del = |request: api::Request| match request.env["CNI_CONTAINERID"].as_str() {
            "good" => Ok(()),
            _ => Err(CniError::new(999, "no")),
        };
        let replayed = replay(&root, cni_dir, del).unwrap();
        assert_eq!(
            (replayed.done, replayed.failed),
            (2, vec!["b.json: no".to_owned()])
        );
        assert_eq!(root.list(&pending).unwrap(), ["b.json", "c.json.broken"]);
    }
}
