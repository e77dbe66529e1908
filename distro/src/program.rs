//! The distro's own arguments: which distro they start, where its data is, which registry it uses, what it disables.
//! Functions over arguments, environment and configuration, all of which are parameters.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use crate::{
    config::{self, Settings},
    plan::{Distro, Server},
};

/// The program that is started, as far as staging has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) distro: Distro,
    pub(crate) data_dir: PathBuf,
    /// The default registry; empty for none.
    pub(crate) registry: String,
    pub(crate) runs_agent: bool,
    pub(crate) disabled: Disabled,
}

impl Program {
    /// Returns what the staged files depend on.
    pub(crate) fn server(&self) -> Server<'_> {
        Server {
            registry: &self.registry,
            runs_agent: self.runs_agent,
        }
    }
}

/// The distro's disable list: the manifests that it removes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disabled {
    pub(crate) names: Vec<String>,
    /// The names come from files; one `--disable` on the command line replaces them all.
    from_files: bool,
}

impl Disabled {
    /// Returns further arguments by which the distro disables these names too, and still what it disabled before.
    pub(crate) fn args_to_add(&self, names: &[&str]) -> Vec<String> {
        let missing: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| self.names.iter().all(|known| known != name))
            .collect();
        let before = self.names.iter().map(String::as_str);
        let repeated = before.filter(|_| self.from_files && !missing.is_empty());
        repeated
            .chain(missing.iter().copied())
            .map(|name| format!("--disable={name}"))
            .collect()
    }
}

/// Reads the distro's command line, its environment variables and the configuration file that these name.
pub(crate) fn read(
    args: &[String],
    variable: impl Fn(&str) -> Option<String>,
    read_file: impl Fn(&Path) -> anyhow::Result<Settings>,
    explicit: Option<Distro>,
) -> anyhow::Result<Program> {
    let distro = distro(args, explicit)?;
    let settings = read_file(&config_file(distro, args, &variable))?;
    let listed = |long: &str| {
        let lists = flag(args, long, None);
        let items: Vec<String> = lists.iter().flat_map(|list| config::split(list)).collect();
        (!items.is_empty()).then_some(items)
    };
    if distro == Distro::Rke2 {
        let networks = listed("cni")
            .or_else(|| variable("RKE2_CNI").map(|value| config::split(&value).collect()))
            .unwrap_or_else(|| settings.values("cni"));
        ensure!(
            networks.iter().all(|network| network != "multus"),
            "rke2 is configured to bring its own multus: take `multus` out of its cni list, this program brings it"
        );
    }
    let disabled = listed("disable").map_or_else(
        || Disabled {
            names: settings.values("disable"),
            from_files: true,
        },
        |names| Disabled {
            names,
            from_files: false,
        },
    );
    Ok(Program {
        distro,
        data_dir: data_dir(distro, args, &variable, &settings),
        registry: registry(distro, args, &variable, &settings),
        runs_agent: runs_agent(args, &settings),
        disabled,
    })
}

/// Returns the configuration file that the arguments or the environment name, or the default one.
pub(crate) fn config_file(
    distro: Distro,
    args: &[String],
    variable: impl Fn(&str) -> Option<String>,
) -> PathBuf {
    flag(args, "config", Some("-c"))
        .pop()
        .or_else(|| variable(&variable_name(distro, "config-file")))
        .map_or_else(|| config::default_file(distro.as_str()), PathBuf::from)
}

/// Returns the data directory, which is the default one unless it is set.
pub(crate) fn data_dir(
    distro: Distro,
    args: &[String],
    variable: impl Fn(&str) -> Option<String>,
    settings: &Settings,
) -> PathBuf {
    let flag = ("data-dir", Some("-d"));
    setting(distro, args, variable, settings, flag)
        .map_or_else(|| default_data_dir(distro), PathBuf::from)
}

/// Returns the data directory of a distro that is started without `--data-dir`.
pub(crate) fn default_data_dir(distro: Distro) -> PathBuf {
    Path::new("/var/lib/rancher").join(distro.as_str())
}

/// Returns the default registry; empty for none.
pub(crate) fn registry(
    distro: Distro,
    args: &[String],
    variable: impl Fn(&str) -> Option<String>,
    settings: &Settings,
) -> String {
    let flag = ("system-default-registry", None);
    setting(distro, args, variable, settings, flag).unwrap_or_default()
}

/// Returns `false` for a server that is started with `disable-agent`, which has no environment variable.
pub(crate) fn runs_agent(args: &[String], settings: &Settings) -> bool {
    let from_args = args.iter().rev().find_map(|arg| {
        let value = arg.strip_prefix("--disable-agent")?;
        match value.strip_prefix('=') {
            Some(value) => Some(config::is_true(value)),
            None => value.is_empty().then_some(true),
        }
    });
    let is_disabled = from_args.unwrap_or_else(|| {
        let value = settings.value("disable-agent");
        value.is_some_and(|value| config::is_true(&value))
    });
    !is_disabled
}

/// Returns a setting from the first of arguments, environment and file that has it. The flag is its long form, and the short one.
pub(crate) fn setting(
    distro: Distro,
    args: &[String],
    variable: impl Fn(&str) -> Option<String>,
    settings: &Settings,
    (long, short): (&str, Option<&str>),
) -> Option<String> {
    flag(args, long, short)
        .pop()
        .or_else(|| variable(&variable_name(distro, long)))
        .or_else(|| settings.value(long))
}

/// Returns the name of the environment variable of a flag.
fn variable_name(distro: Distro, long: &str) -> String {
    format!("{}_{long}", distro.as_str())
        .replace('-', "_")
        .to_uppercase()
}

/// Fails where the arguments start the other kind of node.
pub(crate) fn check_role(args: &[String], role: &str, other: &str) -> anyhow::Result<()> {
    let actual = args.get(1).map(String::as_str);
    ensure!(
        actual != Some(other),
        "{} is started as {other}: use `multus-distro {other}` for it, or start it as {role}",
        args[0]
    );
    Ok(())
}

pub(crate) fn distro(args: &[String], explicit: Option<Distro>) -> anyhow::Result<Distro> {
    let Some(program) = args.first() else {
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
        (None, None) => {
            bail!("{program} is neither k3s nor rke2: name the distro with --distro")
        }
    }
}

/// Returns all values of a flag, in each of its forms.
fn flag(args: &[String], long: &str, short: Option<&str>) -> Vec<String> {
    let mut values = Vec::new();
    let mut rest = args.iter();
    let spelled = format!("--{long}");
    while let Some(arg) = rest.next() {
        if *arg == spelled || Some(arg.as_str()) == short {
            values.extend(rest.next().cloned());
        } else if let Some(value) = arg.strip_prefix(&format!("{spelled}=")) {
            values.push(value.to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, env: &[(&str, &str)], config: &str) -> anyhow::Result<Program> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let find = |key: &str| {
            let found = env.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        };
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("config.yaml"), config)?;
        let root = node::root::Root::open(dir.path())?;
        let settings = |file: &Path| {
            let defaults = [
                "/etc/rancher/k3s/config.yaml",
                "/etc/rancher/rke2/config.yaml",
            ];
            if defaults.iter().any(|default| file == Path::new(default)) {
                return config::read(&root, Path::new("/config.yaml"));
            }
            config::read(&root, file)
        };
        read(&args, find, settings, None)
    }

    #[test]
    fn arguments_win_over_environment_over_file() {
        let data_dir = |line: &str, env: &[(&str, &str)], config: &str| {
            check(line, env, config).unwrap().data_dir
        };
        let env = &[("K3S_DATA_DIR", "/e")];
        let file = "data-dir: /c";
        let default = Path::new("/var/lib/rancher/k3s");
        assert_eq!(data_dir("k3s server", &[], ""), default);
        assert_eq!(data_dir("k3s server", &[], file), Path::new("/c"));
        assert_eq!(data_dir("k3s server", env, file), Path::new("/e"));
        let both = "/usr/bin/k3s server --data-dir=/a -d /b";
        assert_eq!(data_dir(both, env, ""), Path::new("/b"));
        assert_eq!(data_dir("k3s server -c /none", &[], file), default);
        let other = &[("K3S_CONFIG_FILE", "/none")];
        assert_eq!(data_dir("k3s server", other, file), default);
    }

    #[test]
    fn server_without_agent_is_recognised_from_arguments_before_the_file() {
        for (line, config, expected) in [
            ("k3s server", "", true),
            ("k3s server --disable-agent", "", false),
            ("k3s server --disable-agent=true", "", false),
            (
                "k3s server --disable-agent=false",
                "disable-agent: true",
                true,
            ),
            ("k3s server", "disable-agent: true", false),
            ("k3s server", "disable-agent: \"1\"", false),
            ("k3s server", "disable-agent: false", true),
            ("k3s server --disable-agent-x", "", true),
        ] {
            let runs_agent = check(line, &[], config).unwrap().runs_agent;
            assert_eq!(runs_agent, expected, "{line} {config}");
        }
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
    fn disabled_manifests_stay_disabled() {
        let added = |line: &str, config: &str| {
            let disabled = check(line, &[], config).unwrap().disabled;
            disabled.args_to_add(&["multus"])
        };
        assert_eq!(added("k3s server", ""), ["--disable=multus"]);
        // A flag on the command line would replace the list of the file.
        assert_eq!(
            added("k3s server", "disable: [traefik, servicelb]"),
            [
                "--disable=traefik",
                "--disable=servicelb",
                "--disable=multus"
            ]
        );
        assert_eq!(
            added("k3s server --disable traefik", "disable: servicelb"),
            ["--disable=multus"]
        );
        assert_eq!(added("k3s server", "disable: traefik,multus"), [""; 0]);
        assert_eq!(added("k3s server --disable=x,multus", ""), [""; 0]);
    }

    #[test]
    fn wrong_roles_and_unknown_programs_are_refused() {
        let args = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(check_role(&args("k3s server"), "server", "agent").is_ok());
        let error = check_role(&args("k3s agent"), "server", "agent").unwrap_err();
        assert!(error.to_string().contains("multus-distro agent"));
        let error = check("sleep 1", &[], "").unwrap_err();
        assert!(error.to_string().contains("--distro"));
    }
}
