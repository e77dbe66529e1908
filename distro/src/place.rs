//! Which distro is on this node, and where its data is, when nobody says it.

use std::path::{Path, PathBuf};

use anyhow::bail;
use node::{root::Root, runtime::Hint};

use crate::{config, plan::Distro, program, service, unit};

/// A distro of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which.
    pub(crate) distro: Distro,
    /// Its data directory.
    pub(crate) data_dir: PathBuf,
    /// Who says so.
    pub(crate) source: &'static str,
}

/// By what was given, else by what was started through us and runs, else by the distro's unit, else by the last start, else by what
/// lies at the usual places.
pub(crate) fn find(
    root: &Root,
    distro: Option<Distro>,
    data_dir: Option<&Path>,
) -> anyhow::Result<Option<Place>> {
    let usual = |distro: Distro| Path::new("/var/lib/rancher").join(distro.as_str());
    let hint = Hint::last(root);
    let runs = hint.as_ref().is_some_and(|hint| hint.is_alive(root));
    let hinted = hint.and_then(hinted).filter(|place| {
        distro.is_none_or(|distro| distro == place.distro)
            && data_dir.is_none_or(|dir| dir == place.data_dir)
    });
    if let Some(dir) = data_dir {
        let by_name = || {
            let name = dir.file_name()?.to_str()?;
            [Distro::K3s, Distro::Rke2]
                .into_iter()
                .find(|distro| distro.as_str() == name)
        };
        let Some(distro) = distro
            .or_else(|| hinted.map(|place| place.distro))
            .or_else(by_name)
        else {
            bail!(
                "whose data directory {} is cannot be seen: say it with --distro",
                dir.display()
            )
        };
        return Ok(Some(Place {
            distro,
            data_dir: dir.to_owned(),
            source: "given",
        }));
    }
    let started = || started(root, distro);
    let found = if runs {
        hinted.or_else(started)
    } else {
        started().or(hinted)
    };
    if found.is_some() {
        return Ok(found);
    }
    let there: Vec<Distro> = [Distro::K3s, Distro::Rke2]
        .into_iter()
        .filter(|one| distro.map_or_else(|| root.is_dir(usual(*one)), |distro| distro == *one))
        .collect();
    match there[..] {
        [] => Ok(None),
        [distro] => Ok(Some(Place {
            distro,
            data_dir: usual(distro),
            source: "the usual place",
        })),
        _ => bail!("K3s and RKE2 have data on this node: say which is meant with --distro"),
    }
}

/// What the distro's unit starts, where there is one.
fn started(root: &Root, distro: Option<Distro>) -> Option<Place> {
    let service = service::find(root, distro, None).ok()??;
    let words = unit::words(&service.command);
    let program = program::read(&words, |_| None, |file| config::read(root, file), None).ok()?;
    Some(Place {
        distro: program.distro,
        data_dir: program.data_dir,
        source: "its unit",
    })
}

fn hinted(hint: Hint) -> Option<Place> {
    let distro = [Distro::K3s, Distro::Rke2]
        .into_iter()
        .find(|distro| distro.as_str() == hint.distro)?;
    Some(Place {
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
    fn given_counts_before_hinted_before_usual() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let found = |distro, data: Option<&str>| find(&root, distro, data.map(Path::new));
        let name = |place: anyhow::Result<Option<Place>>| {
            let place = place.unwrap().unwrap();
            (place.distro, place.data_dir.display().to_string())
        };
        assert_eq!(found(None, None).unwrap(), None);
        fs::create_dir_all(dir.path().join("var/lib/rancher/rke2")).unwrap();
        let usual = (Distro::Rke2, "/var/lib/rancher/rke2".to_owned());
        assert_eq!(name(found(None, None)), usual);
        fs::create_dir_all(dir.path().join("var/lib/rancher/k3s")).unwrap();
        let error = found(None, None).unwrap_err().to_string();
        assert!(error.contains("--distro"), "{error}");
        assert_eq!(name(found(Some(Distro::Rke2), None)), usual);
        let units = dir.path().join("etc/systemd/system");
        fs::create_dir_all(&units).unwrap();
        let unit = "[Service]\nExecStart=/usr/bin/rke2 server --data-dir=/unit\n";
        fs::write(units.join("rke2-server.service"), unit).unwrap();
        assert_eq!(name(found(None, None)), (Distro::Rke2, "/unit".to_owned()));
        let hint = dir.path().join(HINT.trim_start_matches('/'));
        fs::create_dir_all(hint.parent().unwrap()).unwrap();
        let text = r#"{"schema": 1, "distro": "k3s", "dataDir": "/data", "criSocket": "/s", "containerdConfig": "/c", "startedAt": 1, "pid": 7}"#;
        fs::write(&hint, text).unwrap();
        // What is to be started next counts more than what has ended.
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
