//! The distro's systemd unit on a node, and our drop-in beside it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use node::root::Root;

use crate::{
    plan::Distro,
    unit::{self, DROP_IN},
};

/// Where systemd looks for units, the first one first.
const DIRS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The units that the distros install.
const UNITS: [(Distro, &str); 4] = [
    (Distro::K3s, "k3s.service"),
    (Distro::K3s, "k3s-agent.service"),
    (Distro::Rke2, "rke2-server.service"),
    (Distro::Rke2, "rke2-agent.service"),
];
/// No unit is longer.
const MAX: u64 = 1 << 20;

/// A unit of the distro.
#[derive(Debug)]
pub(crate) struct Service {
    /// Its name.
    pub(crate) name: String,
    /// What it starts without us.
    pub(crate) command: String,
    /// Our drop-in's text, where it is there.
    pub(crate) drop_in: Option<String>,
}

impl Service {
    /// Where our drop-in is.
    pub(crate) fn place(&self) -> PathBuf {
        place(&self.name)
    }
}

/// The unit of that name, or the only one that a distro has installed.
pub(crate) fn find(
    root: &Root,
    distro: Option<Distro>,
    name: Option<&str>,
) -> anyhow::Result<Option<Service>> {
    let is_there = |unit: &str| {
        DIRS.iter()
            .any(|dir| root.exists(Path::new(dir).join(unit)))
    };
    if let Some(name) = name {
        if !is_there(name) {
            bail!("there is no unit {name}: name one that systemd knows with --unit");
        }
        return read(root, name).map(Some);
    }
    let found: Vec<&str> = UNITS
        .iter()
        .filter(|(of, unit)| distro.is_none_or(|distro| distro == *of) && is_there(unit))
        .map(|(_, unit)| *unit)
        .collect();
    match found[..] {
        [] => Ok(None),
        [unit] => read(root, unit).map(Some),
        _ => bail!(
            "{} are installed: say which starts with Multus, with --unit",
            found.join(" and ")
        ),
    }
}

fn read(root: &Root, name: &str) -> anyhow::Result<Service> {
    let text = |path: &Path| -> anyhow::Result<String> {
        let bytes = root.read(path, MAX)?;
        String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))
    };
    let unit = DIRS
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| root.exists(path))
        .with_context(|| format!("there is no unit {name}"))?;
    let mut texts = vec![text(&unit)?];
    // Of drop-ins with one name, that of the first place counts.
    let mut beside: Vec<(String, PathBuf)> = Vec::new();
    for dir in DIRS {
        let dir = Path::new(dir).join(format!("{name}.d"));
        for file in root.list(&dir).unwrap_or_default() {
            let is_new = beside.iter().all(|(name, _)| *name != file);
            let is_drop_in = Path::new(&file)
                .extension()
                .is_some_and(|end| end == "conf");
            if is_drop_in && file != DROP_IN && is_new {
                beside.push((file.clone(), dir.join(file)));
            }
        }
    }
    beside.sort();
    for (_, path) in &beside {
        texts.push(text(path)?);
    }
    let command = unit::exec_start(&texts)
        .with_context(|| format!("{} and its drop-ins cannot be used", unit.display()))?;
    let own = place(name);
    let drop_in = root.exists(&own).then(|| text(&own)).transpose()?;
    Ok(Service {
        name: name.to_owned(),
        command,
        drop_in,
    })
}

fn place(name: &str) -> PathBuf {
    Path::new(DIRS[0]).join(format!("{name}.d")).join(DROP_IN)
}
