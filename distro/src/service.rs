//! The distro's systemd unit on a node, and the drop-in of this program.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use node::root::Root;

use crate::{
    plan::Distro,
    unit::{self, DROP_IN, Environment},
};

/// The directories in which systemd looks for units, in its order.
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
/// More than any unit.
const MAX: u64 = 1 << 20;

/// A unit of the distro.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// The command that it starts without our drop-in.
    pub(crate) command: String,
    /// The variables that the unit and its files set.
    environment: Environment,
    /// The text of our drop-in, if there is one.
    pub(crate) drop_in: Option<String>,
}

impl Service {
    /// Returns the arguments that the unit starts without our drop-in.
    pub(crate) fn args(&self) -> Vec<String> {
        unit::args(&self.command, &self.environment)
    }

    /// Returns a variable of the unit's environment, unless it is empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let value = self.environment.get(name).cloned();
        value.filter(|value| !value.is_empty())
    }

    pub(crate) fn drop_in_path(&self) -> PathBuf {
        drop_in_path(&self.name)
    }
}

/// Finds the unit of that name, or the only one that a distro has installed.
pub(crate) fn find(
    root: &Root,
    distro: Option<Distro>,
    name: Option<&str>,
) -> anyhow::Result<Option<Service>> {
    if let Some(name) = name {
        if !is_installed(root, name) {
            bail!("there is no unit {name}: name one that systemd knows with --unit");
        }
        return read(root, name).map(Some);
    }
    let found = installed(root, distro);
    match found[..] {
        [] => Ok(None),
        [unit] => read(root, unit).map(Some),
        _ => bail!(
            "{} are installed: choose the one that starts with Multus, with --unit",
            found.join(" and ")
        ),
    }
}

/// Finds the only unit that a distro has installed; `None` where there are several.
pub(crate) fn find_only(root: &Root, distro: Option<Distro>) -> anyhow::Result<Option<Service>> {
    match installed(root, distro)[..] {
        [unit] => read(root, unit).map(Some),
        _ => Ok(None),
    }
}

fn installed(root: &Root, distro: Option<Distro>) -> Vec<&'static str> {
    UNITS
        .iter()
        .filter(|(of, unit)| distro.is_none_or(|distro| distro == *of) && is_installed(root, unit))
        .map(|(_, unit)| *unit)
        .collect()
}

fn is_installed(root: &Root, unit: &str) -> bool {
    DIRS.iter()
        .any(|dir| root.exists(Path::new(dir).join(unit)))
}

fn read(root: &Root, name: &str) -> anyhow::Result<Service> {
    let text = |path: &Path| -> anyhow::Result<String> {
        let bytes = root.read(path, MAX)?;
        String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))
    };
    let unit = DIRS
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| root.exists(path))
        .with_context(|| format!("there is no unit {name}"))?;
    let mut texts = vec![text(&unit)?];
    // Of drop-ins with the same name, the one in the first directory counts.
    let mut drop_ins: Vec<(String, PathBuf)> = Vec::new();
    for dir in DIRS {
        let dir = Path::new(dir).join(format!("{name}.d"));
        for file in root.list(&dir).unwrap_or_default() {
            let is_new = drop_ins.iter().all(|(name, _)| *name != file);
            let is_drop_in = Path::new(&file)
                .extension()
                .is_some_and(|end| end == "conf");
            if is_drop_in && file != DROP_IN && is_new {
                drop_ins.push((file.clone(), dir.join(file)));
            }
        }
    }
    drop_ins.sort();
    for (_, path) in &drop_ins {
        texts.push(text(path)?);
    }
    let command = unit::exec_start(&texts)
        .with_context(|| format!("cannot use {} and its drop-ins", unit.display()))?;
    let mut environment = unit::environment(&texts, name);
    for file in unit::environment_files(&texts, name) {
        let path = Path::new(&file.path);
        if file.is_optional && !root.exists(path) {
            continue;
        }
        let text = text(path).with_context(|| format!("cannot read the environment of {name}"))?;
        unit::add_environment_file(&mut environment, &text);
    }
    let own = drop_in_path(name);
    let drop_in = root.exists(&own).then(|| text(&own)).transpose()?;
    Ok(Service {
        name: name.to_owned(),
        command,
        environment,
        drop_in,
    })
}

fn drop_in_path(name: &str) -> PathBuf {
    Path::new(DIRS[0]).join(format!("{name}.d")).join(DROP_IN)
}
