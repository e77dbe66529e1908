//! The distro's systemd unit on a node, and the drop-in of this program.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use node::{glob, root::Root};

use crate::{
    plan::Distro,
    settings::{self, Settings},
    specifiers::Specifiers,
    unit::{self, DROP_IN, Environment, Features},
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
/// More than any unit's environment files.
const MAX_FILES: usize = 1000;

/// A unit of the distro.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// The command that it starts without our drop-in.
    pub(crate) command: String,
    /// The variables that the unit and its files set.
    environment: Environment,
    specifiers: Specifiers,
    /// The text of our drop-in, if there is one.
    pub(crate) drop_in: Option<String>,
}

impl Service {
    /// Returns the arguments that the unit starts without our drop-in.
    pub(crate) fn args(&self) -> Vec<String> {
        unit::args(&self.command, &self.environment, &self.specifiers)
    }

    /// Reads the distro's settings when the unit starts it. The drop-in knows the distro of a program with another name.
    pub(crate) fn settings(&self, root: &Root, distro: Option<Distro>) -> anyhow::Result<Settings> {
        let variable = |name: &str| {
            let value = self.environment.get(name).cloned();
            value.filter(|value| !value.is_empty())
        };
        let installed = self.drop_in.as_deref().and_then(Features::parse_drop_in);
        let distro = distro.or(installed.and_then(|features| features.distro));
        settings::read(root, &self.args(), variable, distro)
    }

    pub(crate) fn drop_in_path(&self) -> PathBuf {
        drop_in_path(&self.name)
    }
}

/// Reads the settings of a distro that this unit starts, or nothing but its file where no unit starts it.
pub(crate) fn settings(
    root: &Root,
    service: Option<&Service>,
    distro: Distro,
) -> anyhow::Result<Settings> {
    match service {
        Some(service) => service.settings(root, Some(distro)),
        None => settings::read(root, &[distro.as_str().to_owned()], |_| None, None),
    }
}

/// Finds the unit of that name, or the only one that a distro has installed, or that is enabled: RKE2's bundle has both.
pub(crate) fn find_to_install(
    root: &Root,
    distro: Option<Distro>,
    name: Option<&str>,
) -> anyhow::Result<Option<Service>> {
    let cure = "enable the one that starts with Multus (systemctl enable), or name it with --unit";
    find(root, distro, name, is_enabled, cure)
}

/// Finds the unit of that name, or the only one that a distro has installed, or that has our drop-in.
pub(crate) fn find_to_remove(
    root: &Root,
    distro: Option<Distro>,
    name: Option<&str>,
) -> anyhow::Result<Option<Service>> {
    let has_drop_in = |root: &Root, unit: &str| root.exists(drop_in_path(unit));
    let cure = "choose the one that starts with Multus, with --unit";
    find(root, distro, name, has_drop_in, cure)
}

/// Finds the unit of that name, or the only one that a distro has installed, or of several the only one that is meant.
fn find(
    root: &Root,
    distro: Option<Distro>,
    name: Option<&str>,
    is_meant: impl Fn(&Root, &str) -> bool,
    cure: &str,
) -> anyhow::Result<Option<Service>> {
    if let Some(name) = name {
        if !is_installed(root, name) {
            bail!("there is no unit {name}: name one that systemd knows with --unit");
        }
        return read(root, name).map(Some);
    }
    let all = installed(root, distro);
    let mut found = all.clone();
    if found.len() > 1 {
        found.retain(|unit| is_meant(root, unit));
    }
    match found[..] {
        [unit] => read(root, unit).map(Some),
        _ if all.is_empty() => Ok(None),
        _ => bail!("{} are installed: {cure}", all.join(" and ")),
    }
}

/// Returns the drop-ins of `multus-distro install`, whether their units exist or not.
pub(crate) fn own_drop_ins(root: &Root) -> Vec<PathBuf> {
    let dir = Path::new("/etc/systemd/system");
    let names = root.list(dir).unwrap_or_default();
    let service_dirs = names.iter().filter(|name| name.ends_with(".service.d"));
    let paths = service_dirs.map(|name| dir.join(name).join(unit::DROP_IN));
    let is_ours = |path: &PathBuf| {
        let bytes = root.read(path, MAX).unwrap_or_default();
        unit::original_command(&String::from_utf8_lossy(&bytes)).is_some()
    };
    paths.filter(is_ours).collect()
}

/// Reads the units by which a distro starts: those that systemd starts with the node, or all that are installed where it starts none.
/// The unit of a server comes before that of an agent.
pub(crate) fn find_started(root: &Root, distro: Option<Distro>) -> anyhow::Result<Vec<Service>> {
    let installed = installed(root, distro);
    let (enabled, disabled): (Vec<_>, Vec<_>) = installed
        .into_iter()
        .partition(|unit| is_enabled(root, unit));
    let units = if enabled.is_empty() {
        disabled
    } else {
        enabled
    };
    units.into_iter().map(|unit| read(root, unit)).collect()
}

fn installed(root: &Root, distro: Option<Distro>) -> Vec<&'static str> {
    UNITS
        .iter()
        .filter(|(of, unit)| distro.is_none_or(|distro| distro == *of) && is_installed(root, unit))
        .map(|(_, unit)| *unit)
        .collect()
}

fn is_installed(root: &Root, unit: &str) -> bool {
    unit_file(root, unit).is_some()
}

/// Returns the file that systemd reads for a unit: that in the first of its directories, unless it is a link to /dev/null, which masks
/// the unit.
fn unit_file(root: &Root, unit: &str) -> Option<PathBuf> {
    let mut paths = DIRS.iter().map(|dir| Path::new(dir).join(unit));
    let path = paths.find(|path| matches!(root.kind(path), Ok(Some(_))))?;
    (root.exists(&path) && !is_null(root, &path)).then_some(path)
}

/// Returns whether a target wants or requires the unit, as `systemctl enable` links it.
fn is_enabled(root: &Root, unit: &str) -> bool {
    DIRS.iter().any(|dir| {
        let names = root.list(dir).unwrap_or_default();
        let is_of_target = |name: &&String| {
            let ending = Path::new(name).extension();
            ending.is_some_and(|ending| ending == "wants" || ending == "requires")
        };
        names.iter().filter(is_of_target).any(|target| {
            let link = Path::new(dir).join(target).join(unit);
            matches!(root.kind(link), Ok(Some(_)))
        })
    })
}

fn read(root: &Root, name: &str) -> anyhow::Result<Service> {
    let text = |path: &Path| -> anyhow::Result<String> {
        let bytes = root.read(path, MAX)?;
        String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))
    };
    let unit = unit_file(root, name).with_context(|| format!("there is no unit {name}"))?;
    let mut texts = vec![text(&unit)?];
    for path in drop_ins(root, name) {
        // A link to /dev/null switches off the drop-ins of its name.
        if root.exists(&path) && !is_null(root, &path) {
            texts.push(text(&path)?);
        }
    }
    let command = unit::exec_start(&texts)
        .with_context(|| format!("cannot use {} and its drop-ins", unit.display()))?;
    let specifiers = Specifiers::new(name, &unit, &host(root));
    let mut environment = unit::environment(&texts, &specifiers);
    for files in unit::environment_files(&texts, &specifiers) {
        let paths = matching(root, &files.path);
        ensure!(
            files.are_optional || !paths.is_empty(),
            "{name} does not start without {}, and there is no such file: write it, or put `-` before its path",
            files.path
        );
        for path in paths {
            let text =
                text(&path).with_context(|| format!("cannot read the environment of {name}"))?;
            unit::add_environment_file(&mut environment, &text);
        }
    }
    let own = drop_in_path(name);
    let drop_in = root.exists(&own).then(|| text(&own)).transpose()?;
    Ok(Service {
        name: name.to_owned(),
        command,
        environment,
        specifiers,
        drop_in,
    })
}

/// Returns the drop-ins of a unit without ours, in systemd's order. Of those with the same name, the one in the first directory counts.
fn drop_ins(root: &Root, unit: &str) -> Vec<PathBuf> {
    let names = unit::drop_in_dirs(unit);
    let own = DIRS
        .iter()
        .flat_map(|dir| names.iter().map(|name| Path::new(dir).join(name)));
    let general = DIRS
        .iter()
        .map(|dir| Path::new(dir).join(unit::DROP_INS_OF_ALL));
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for dir in own.chain(general) {
        for file in root.list(&dir).unwrap_or_default() {
            let ending = Path::new(&file).extension();
            if ending.is_some_and(|ending| ending == "conf") && file != DROP_IN {
                let path = dir.join(&file);
                found.entry(file).or_insert(path);
            }
        }
    }
    found.into_values().collect()
}

fn is_null(root: &Root, path: &Path) -> bool {
    let null = root.identity("/dev/null");
    null.is_some() && root.identity(path) == null
}

/// Returns the files that a path or a pattern of glob(3) names, sorted: `*` and `?` pass over hidden files, and `[!a]` is `[^a]`.
fn matching(root: &Root, pattern: &str) -> Vec<PathBuf> {
    let pattern = pattern.replace("[!", "[^");
    let list = |dir: &Path, part: &str| {
        let mut names = root.list(dir).unwrap_or_default();
        names.retain(|name| part.starts_with('.') || !name.starts_with('.'));
        names
    };
    let mut paths = glob::expand(Path::new(&pattern), MAX_FILES, list);
    paths.retain(|path| root.exists(path));
    paths
}

/// Returns the node's name, from the kernel if it is the running node; empty where it is not to be found.
fn host(root: &Root) -> String {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let read = |file: &&str| String::from_utf8(root.read(file, MAX).ok()?).ok();
    let found = files.iter().find_map(read).unwrap_or_default();
    found.trim().to_owned()
}

fn drop_in_path(name: &str) -> PathBuf {
    Path::new(DIRS[0]).join(format!("{name}.d")).join(DROP_IN)
}
