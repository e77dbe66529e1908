//! Finds out which distro is on this node and where its data is.

use std::path::{Path, PathBuf};

use anyhow::bail;
use node::{root::Root, runtime::Hint};

use crate::{
    plan::Distro,
    service::{self, Service},
    settings,
};

/// A distro on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installation {
    pub(crate) distro: Distro,
    pub(crate) data_dir: PathBuf,
    /// The origin of the data directory, for the user.
    pub(crate) source: &'static str,
}

/// Finds the distro by the options, else by the process that was started through this program and still runs, else by the distro's unit,
/// else by the last start, else by the default data directories.
pub(crate) fn find(
    root: &Root,
    distro: Option<Distro>,
    data_dir: Option<&Path>,
) -> anyhow::Result<Option<Installation>> {
    let hint = Hint::last(root);
    let is_running = hint.as_ref().is_some_and(|hint| hint.is_alive(root));
    let last_start = hint.and_then(from_hint).filter(|installation| {
        distro.is_none_or(|distro| distro == installation.distro)
            && data_dir.is_none_or(|dir| dir == installation.data_dir)
    });
    if let Some(dir) = data_dir {
        let by_name = || {
            let name = dir.file_name()?.to_str()?;
            [Distro::K3s, Distro::Rke2]
                .into_iter()
                .find(|distro| distro.as_str() == name)
        };
        let Some(distro) = distro
            .or_else(|| last_start.map(|installation| installation.distro))
            .or_else(by_name)
        else {
            bail!(
                "cannot see which distro {} belongs to: name it with --distro",
                dir.display()
            )
        };
        return Ok(Some(Installation {
            distro,
            data_dir: dir.to_owned(),
            source: "--data-dir",
        }));
    }
    let found = match last_start {
        Some(running) if is_running => Some(running),
        last_start => from_units(root, distro)?.or(last_start),
    };
    if found.is_some() {
        return Ok(found);
    }
    let present: Vec<Distro> = [Distro::K3s, Distro::Rke2]
        .into_iter()
        .filter(|one| {
            distro.map_or_else(
                || root.is_dir(settings::default_data_dir(*one)),
                |distro| distro == *one,
            )
        })
        .collect();
    match present[..] {
        [] => Ok(None),
        [distro] => Ok(Some(Installation {
            distro,
            data_dir: settings::default_data_dir(distro),
            source: "the default directory",
        })),
        _ => bail!("K3s and RKE2 have data on this node: choose one with --distro"),
    }
}

/// Returns what the distro's unit starts, and in which environment; of several units, what they agree on.
fn from_units(root: &Root, distro: Option<Distro>) -> anyhow::Result<Option<Installation>> {
    let mut found: Vec<(String, Installation)> = Vec::new();
    for service in service::find_started(root, distro)? {
        if let Some(installation) = started_by(root, &service)?
            && found.iter().all(|(_, other)| *other != installation)
        {
            found.push((service.name, installation));
        }
    }
    match &found[..] {
        [(first, one), (second, other), ..] => bail!(
            "{first} has its data in {}, and {second} in {}: enable the one that starts, or name its directory, as with --distro {} --data-dir {}",
            one.data_dir.display(),
            other.data_dir.display(),
            one.distro.as_str(),
            one.data_dir.display()
        ),
        _ => Ok(found.pop().map(|(_, installation)| installation)),
    }
}

/// Returns the units that start the distro with this data directory, that of a server first; none where it is started otherwise.
pub(crate) fn services(
    root: &Root,
    distro: Distro,
    data_dir: &Path,
) -> anyhow::Result<Vec<Service>> {
    let mut services = Vec::new();
    for service in service::find_started(root, Some(distro))? {
        if started_by(root, &service)?.is_some_and(|found| is_same(root, &found.data_dir, data_dir))
        {
            services.push(service);
        }
    }
    Ok(services)
}

/// Returns what a unit starts; `None` for a unit of another program, which counts for nothing.
fn started_by(root: &Root, service: &Service) -> anyhow::Result<Option<Installation>> {
    if settings::distro(&service.args(), None).is_err() {
        return Ok(None);
    }
    let settings = service.settings(root, None)?;
    Ok(Some(Installation {
        distro: settings.distro,
        data_dir: settings.data_dir,
        source: "its unit",
    }))
}

/// Returns whether two paths lead to the same directory.
fn is_same(root: &Root, one: &Path, other: &Path) -> bool {
    let identity = root.identity(one);
    one == other || (identity.is_some() && identity == root.identity(other))
}

fn from_hint(hint: Hint) -> Option<Installation> {
    let distro = [Distro::K3s, Distro::Rke2]
        .into_iter()
        .find(|distro| distro.as_str() == hint.distro)?;
    Some(Installation {
        distro,
        data_dir: hint.data_dir,
        source: "the last start",
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use node::runtime::HINT;

    use super::*;

    #[test]
    fn options_count_before_hint_and_unit_before_default_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let found = |distro, data: Option<&str>| find(&root, distro, data.map(Path::new));
        let name = |found: anyhow::Result<Option<Installation>>| {
            let found = found.unwrap().unwrap();
            (found.distro, found.data_dir.display().to_string())
        };
        assert_eq!(found(None, None).unwrap(), None);
        fs::create_dir_all(dir.path().join("var/lib/rancher/rke2")).unwrap();
        let default = (Distro::Rke2, "/var/lib/rancher/rke2".to_owned());
        assert_eq!(name(found(None, None)), default);
        fs::create_dir_all(dir.path().join("var/lib/rancher/k3s")).unwrap();
        let error = found(None, None).unwrap_err().to_string();
        assert!(error.contains("--distro"), "{error}");
        assert_eq!(name(found(Some(Distro::Rke2), None)), default);
        let units = dir.path().join("etc/systemd/system");
        fs::create_dir_all(&units).unwrap();
        let unit = "[Service]\nExecStart=/usr/bin/rke2 server --data-dir=/unit\n";
        fs::write(units.join("rke2-server.service"), unit).unwrap();
        assert_eq!(name(found(None, None)), (Distro::Rke2, "/unit".to_owned()));
        let environment = "EnvironmentFile=-/etc/default/%N\n";
        let text = unit.replace(" --data-dir=/unit", "") + environment;
        fs::write(units.join("rke2-server.service"), text).unwrap();
        assert_eq!(name(found(None, None)), default);
        fs::create_dir_all(dir.path().join("etc/default")).unwrap();
        let file = dir.path().join("etc/default/rke2-server");
        fs::write(&file, "RKE2_DATA_DIR='/from file'\n").unwrap();
        let from_file = (Distro::Rke2, "/from file".to_owned());
        assert_eq!(name(found(None, None)), from_file);
        // Without its environment the data directory is unknown, so no other one is used.
        fs::write(&file, b"\xff").unwrap();
        let error = format!("{:#}", found(None, None).unwrap_err());
        let expected = "environment of rke2-server.service: /etc/default/rke2-server is not UTF-8";
        assert!(error.contains(expected), "{error}");
        fs::write(units.join("rke2-server.service"), unit).unwrap();
        let hint = dir.path().join(HINT.trim_start_matches('/'));
        fs::create_dir_all(hint.parent().unwrap()).unwrap();
        let text = r#"{"schema": 1, "distro": "k3s", "dataDir": "/data", "criSocket": "/s", "containerdConfig": "/c", "startedAt": 1, "pid": 7}"#;
        fs::write(&hint, text).unwrap();
        // The unit, which starts next, counts more than a process that has ended.
        assert_eq!(name(found(None, None)), (Distro::Rke2, "/unit".to_owned()));
        assert_eq!(
            name(found(Some(Distro::K3s), None)),
            (Distro::K3s, "/data".to_owned())
        );
        fs::create_dir_all(dir.path().join("proc/7")).unwrap();
        assert_eq!(name(found(None, None)), (Distro::K3s, "/data".to_owned()));
        assert_eq!(name(found(None, Some("/data"))).0, Distro::K3s);
        assert_eq!(name(found(None, Some("/x/rke2"))).0, Distro::Rke2);
        assert!(found(None, Some("/x/other")).is_err());
    }
}
