//! What the distro's own arguments say: which distro it is, where its data is, which registry it uses, what it disables.
//! A function over words.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use crate::{
    config::{self, Settings},
    plan::Distro,
};

/// The program that is started, as far as staging has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// Which distro.
    pub(crate) distro: Distro,
    /// Its data directory.
    pub(crate) data_dir: PathBuf,
    /// Its default registry; empty for none.
    pub(crate) registry: String,
    /// What it is told to disable.
    pub(crate) disabled: Disabled,
}

/// The list of what the distro removes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disabled {
    /// Its words.
    pub(crate) words: Vec<String>,
    /// Whether they stand in files, which any word on the command line replaces.
    from_files: bool,
}

impl Disabled {
    /// Arguments that have the distro disable these as well, and still what it disabled before.
    pub(crate) fn also(&self, names: &[&str]) -> Vec<String> {
        let missing: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| self.words.iter().all(|word| word != name))
            .collect();
        let before = self.words.iter().map(String::as_str);
        let repeated = before.filter(|_| self.from_files && !missing.is_empty());
        repeated
            .chain(missing.iter().copied())
            .map(|word| format!("--disable={word}"))
            .collect()
    }
}

/// Reads the command line; `variable` gives environment variables, `read_file` the configuration file of that name.
pub(crate) fn read(
    words: &[String],
    variable: impl Fn(&str) -> Option<String>,
    read_file: impl Fn(&Path) -> anyhow::Result<Settings>,
    explicit: Option<Distro>,
) -> anyhow::Result<Program> {
    let distro = distro(words, explicit)?;
    let prefix = distro.as_str().to_uppercase();
    let variable = |name: &str| variable(&format!("{prefix}_{name}"));
    let last = |long: &str, short: Option<&str>| flag(words, long, short).pop();
    let file = last("config", Some("-c"))
        .or_else(|| variable("CONFIG_FILE"))
        .map_or_else(|| config::default_file(distro.as_str()), PathBuf::from);
    let settings = read_file(&file)?;
    let told = |long: &str, short: Option<&str>| {
        last(long, short)
            .or_else(|| variable(&long.replace('-', "_").to_uppercase()))
            .or_else(|| settings.value(long))
    };
    let listed = |long: &str| {
        let given = flag(words, long, None);
        let given: Vec<String> = given.iter().flat_map(|list| config::split(list)).collect();
        (!given.is_empty()).then_some(given)
    };
    if distro == Distro::Rke2 {
        let networks = listed("cni")
            .or_else(|| variable("CNI").map(|value| config::split(&value).collect()))
            .unwrap_or_else(|| settings.words("cni"));
        ensure!(
            networks.iter().all(|word| word != "multus"),
            "rke2 is told to bring its own multus: take `multus` out of its cni list, this program brings it"
        );
    }
    let disabled = listed("disable").map_or_else(
        || Disabled {
            words: settings.words("disable"),
            from_files: true,
        },
        |words| Disabled {
            words,
            from_files: false,
        },
    );
    let default = format!("/var/lib/rancher/{}", distro.as_str());
    Ok(Program {
        distro,
        data_dir: told("data-dir", Some("-d")).unwrap_or(default).into(),
        registry: told("system-default-registry", None).unwrap_or_default(),
        disabled,
    })
}

/// Fails where the program says that it is the other kind of node.
pub(crate) fn is_role(words: &[String], role: &str, other: &str) -> anyhow::Result<()> {
    let said = words.get(1).map(String::as_str);
    ensure!(
        said != Some(other),
        "{} is started as {other}: use `multus-distro {other}` for it, or start it as {role}",
        words[0]
    );
    Ok(())
}

fn distro(words: &[String], explicit: Option<Distro>) -> anyhow::Result<Distro> {
    let Some(program) = words.first() else {
        bail!("no program: give it after --, as in: -- k3s server")
    };
    let name = Path::new(program)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let named = match name.as_str() {
        "k3s" => Some(Distro::K3s),
        "rke2" => Some(Distro::Rke2),
        _ => None,
    };
    match (named, explicit) {
        (Some(named), Some(explicit)) => {
            ensure!(
                named == explicit,
                "--distro {} contradicts the program {program}: leave it out",
                explicit.as_str()
            );
            Ok(named)
        }
        (Some(distro), None) | (None, Some(distro)) => Ok(distro),
        (None, None) => bail!("{program} is neither k3s nor rke2: say which it is with --distro"),
    }
}

/// Values of a flag, in each of its forms.
fn flag(words: &[String], long: &str, short: Option<&str>) -> Vec<String> {
    let mut values = Vec::new();
    let mut rest = words.iter();
    let spelled = format!("--{long}");
    while let Some(word) = rest.next() {
        if *word == spelled || Some(word.as_str()) == short {
            values.extend(rest.next().cloned());
        } else if let Some(value) = word.strip_prefix(&format!("{spelled}=")) {
            values.push(value.to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, env: &[(&str, &str)], config: &str) -> anyhow::Result<Program> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let find = |key: &str| {
            let found = env.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        };
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("config.yaml"), config)?;
        let root = node::root::Root::open(dir.path())?;
        let settings = |file: &Path| {
            let usual = [
                "/etc/rancher/k3s/config.yaml",
                "/etc/rancher/rke2/config.yaml",
            ];
            if usual.iter().any(|usual| file == Path::new(usual)) {
                return config::read(&root, Path::new("/config.yaml"));
            }
            config::read(&root, file)
        };
        read(&words, find, settings, None)
    }

    #[test]
    fn arguments_win_over_environment_over_file() {
        let places = |line: &str, env: &[(&str, &str)], config: &str| {
            check(line, env, config).unwrap().data_dir
        };
        let env = &[("K3S_DATA_DIR", "/e")];
        let file = "data-dir: /c";
        let default = Path::new("/var/lib/rancher/k3s");
        assert_eq!(places("k3s server", &[], ""), default);
        assert_eq!(places("k3s server", &[], file), Path::new("/c"));
        assert_eq!(places("k3s server", env, file), Path::new("/e"));
        let both = "/usr/bin/k3s server --data-dir=/a -d /b";
        assert_eq!(places(both, env, ""), Path::new("/b"));
        assert_eq!(places("k3s server -c /none", &[], file), default);
        let other = &[("K3S_CONFIG_FILE", "/none")];
        assert_eq!(places("k3s server", other, file), default);
    }

    #[test]
    fn rke2_with_its_own_multus_is_refused() {
        for (line, env, config) in [
            ("rke2 server --cni multus,canal", &[][..], ""),
            ("rke2 server", &[], "cni: [multus, canal]"),
            ("rke2 server", &[("RKE2_CNI", "multus,canal")], ""),
        ] {
            let error = check(line, env, config).unwrap_err().to_string();
            assert!(error.contains("take `multus` out"), "{line}: {error}");
        }
        let line = "rke2 server --cni canal --system-default-registry r";
        assert_eq!(check(line, &[], "cni: multus").unwrap().registry, "r");
    }

    #[test]
    fn what_is_disabled_stays_disabled() {
        let also = |line: &str, config: &str| {
            let disabled = check(line, &[], config).unwrap().disabled;
            disabled.also(&["multus"])
        };
        assert_eq!(also("k3s server", ""), ["--disable=multus"]);
        // A word on the command line would replace those of the file.
        assert_eq!(
            also("k3s server", "disable: [traefik, servicelb]"),
            [
                "--disable=traefik",
                "--disable=servicelb",
                "--disable=multus"
            ]
        );
        assert_eq!(
            also("k3s server --disable traefik", "disable: servicelb"),
            ["--disable=multus"]
        );
        assert_eq!(also("k3s server", "disable: traefik,multus"), [""; 0]);
        assert_eq!(also("k3s server --disable=x,multus", ""), [""; 0]);
    }

    #[test]
    fn roles_and_unknown_programs_are_asked_about() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(is_role(&words("k3s server"), "server", "agent").is_ok());
        let error = is_role(&words("k3s agent"), "server", "agent").unwrap_err();
        assert!(error.to_string().contains("multus-distro agent"));
        let error = check("sleep 1", &[], "").unwrap_err();
        assert!(error.to_string().contains("--distro"));
    }
}
