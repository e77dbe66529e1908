//! What the distro's own arguments say: which distro it is, where its data is, which registry it uses. A function over words.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use crate::plan::Distro;

/// The program that is started, as far as staging has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// Which distro.
    pub(crate) distro: Distro,
    /// Its data directory.
    pub(crate) data_dir: PathBuf,
    /// Its default registry; empty for none.
    pub(crate) registry: String,
}

/// Reads the command line; `variable` gives environment variables, `config` the keys of its configuration file as words.
pub(crate) fn read(
    words: &[String],
    variable: impl Fn(&str) -> Option<String>,
    config: impl Fn(Distro, &str) -> Vec<String>,
    explicit: Option<Distro>,
) -> anyhow::Result<Program> {
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
    let distro = match (named, explicit) {
        (Some(named), Some(explicit)) => {
            ensure!(
                named == explicit,
                "--distro {} contradicts the program {program}: leave it out",
                explicit.as_str()
            );
            named
        }
        (Some(distro), None) | (None, Some(distro)) => distro,
        (None, None) => bail!("{program} is neither k3s nor rke2: say which it is with --distro"),
    };
    let prefix = distro.as_str().to_uppercase();
    let last = |long: &str, short: Option<&str>| flag(words, long, short).pop();
    let setting = |long: &str, short: Option<&str>| {
        last(long, short)
            .or_else(|| {
                variable(&format!(
                    "{prefix}_{}",
                    long.replace('-', "_").to_uppercase()
                ))
            })
            .or_else(|| config(distro, long).pop())
    };
    if distro == Distro::Rke2 {
        let mut networks = flag(words, "cni", None);
        if networks.is_empty() {
            networks =
                variable("RKE2_CNI").map_or_else(|| config(distro, "cni"), |value| vec![value]);
        }
        let own = networks
            .iter()
            .flat_map(|list| list.split(','))
            .any(|word| word.trim() == "multus");
        ensure!(
            !own,
            "rke2 is told to bring its own multus: take `multus` out of its cni list, this program brings it"
        );
    }
    let default = format!("/var/lib/rancher/{}", distro.as_str());
    Ok(Program {
        distro,
        data_dir: setting("data-dir", Some("-d")).unwrap_or(default).into(),
        registry: setting("system-default-registry", None).unwrap_or_default(),
    })
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

    fn check(line: &str, env: &[(&str, &str)], config: &[(&str, &str)]) -> anyhow::Result<Program> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let find = |list: &[(&str, &str)], key: &str| {
            list.iter()
                .filter(|(name, _)| *name == key)
                .map(|(_, value)| (*value).to_owned())
                .collect::<Vec<_>>()
        };
        read(
            &words,
            |name| find(env, name).pop(),
            |_, key| find(config, key),
            None,
        )
    }

    #[test]
    fn arguments_win_over_environment_over_file() {
        let places = |line: &str, env: &[(&str, &str)], config: &[(&str, &str)]| {
            check(line, env, config).unwrap().data_dir
        };
        assert_eq!(
            places("k3s server", &[], &[]),
            Path::new("/var/lib/rancher/k3s")
        );
        assert_eq!(
            places("k3s server", &[], &[("data-dir", "/c")]),
            Path::new("/c")
        );
        assert_eq!(
            places(
                "k3s server",
                &[("K3S_DATA_DIR", "/e")],
                &[("data-dir", "/c")]
            ),
            Path::new("/e")
        );
        assert_eq!(
            places(
                "/usr/bin/rke2 server --data-dir=/a -d /b",
                &[("RKE2_DATA_DIR", "/e")],
                &[]
            ),
            Path::new("/b")
        );
    }

    #[test]
    fn rke2_with_its_own_multus_is_refused() {
        for (line, config) in [
            ("rke2 server --cni multus,canal", &[][..]),
            ("rke2 server", &[("cni", "multus")]),
        ] {
            assert!(
                check(line, &[], config)
                    .unwrap_err()
                    .to_string()
                    .contains("take `multus` out"),
                "{line}"
            );
        }
        assert_eq!(
            check(
                "rke2 server --cni canal --system-default-registry r",
                &[],
                &[]
            )
            .unwrap()
            .registry,
            "r"
        );
    }

    #[test]
    fn unknown_programs_are_asked_about() {
        assert!(
            check("sleep 1", &[], &[])
                .unwrap_err()
                .to_string()
                .contains("--distro")
        );
    }
}
