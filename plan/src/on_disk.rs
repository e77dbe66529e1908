//! Reads configurations from the node's directories.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::{Inputs, PlanError};

/// Returns the first configuration on the node's disk, in the order of file names, whose `name` is `name`.
/// A file before it that cannot be parsed is an error, since it might have been that one.
pub(super) fn find(name: &str, inputs: Inputs<'_>) -> Result<Option<Draft>, PlanError> {
    let dir = &inputs.netconf.conf_dir;
    for (_, draft) in drafts(dir, inputs)? {
        let draft = draft?;
        if draft.name() == name {
            return Ok(Some(draft));
        }
    }
    Ok(None)
}

/// Returns every configuration of a directory with its path, in the order of file names.
pub(super) fn drafts<'a>(
    dir: &Path,
    inputs: Inputs<'a>,
) -> Result<impl Iterator<Item = (PathBuf, Result<Draft, PlanError>)> + 'a, PlanError> {
    let paths = files(dir, &["conf", "json", "conflist"], inputs)?;
    Ok(paths.into_iter().map(move |path| {
        let draft = read(&path, inputs);
        (path, draft)
    }))
}

/// Returns the files of a directory with one of these extensions, in the order of their names; none where the directory does not exist.
pub(super) fn files(
    dir: &Path,
    extensions: &[&str],
    inputs: Inputs<'_>,
) -> Result<Vec<PathBuf>, PlanError> {
    let names = match inputs.files.list(dir) {
        Ok(names) => names,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Vec::new()
        }
        Err(error) => {
            return Err(PlanError::File {
                path: dir.to_owned(),
                reason: format!("cannot be listed: {error}"),
            });
        }
    };
    let matches = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
            && !inputs.files.is_dir(path)
    };
    let paths = names.into_iter().map(|name| dir.join(name));
    Ok(paths.filter(matches).collect())
}

/// Reads one configuration file.
pub(super) fn read(path: &Path, inputs: Inputs<'_>) -> Result<Draft, PlanError> {
    let unusable = |reason| PlanError::File {
        path: path.to_owned(),
        reason,
    };
    let bytes = inputs.files.read(path).map_err(|error| {
        let reason = format!("cannot be read: {error}; create it, or name another file");
        match error.kind() {
            ErrorKind::NotFound => PlanError::NoFile {
                path: path.to_owned(),
                reason,
            },
            _ => unusable(reason),
        }
    })?;
    Draft::parse(&bytes).map_err(unusable)
}
