//! The registries of a command: options, and the logins that docker, podman and skopeo store.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::{Context as _, bail, ensure};

use crate::{
    http::{Environment, variable},
    names,
    registry::{self, Access, Login, Registry, stored},
};

/// The variable with the password of `--user`: every user of the machine can see arguments.
const PASSWORD: &str = "MULTUS_REGISTRY_PASSWORD";
/// The hint when a login is missing.
pub const HINT: &str =
    "give --user and MULTUS_REGISTRY_PASSWORD, or log in with docker, podman or skopeo";

/// Adds a hint to an error about a missing login.
pub fn with_hint(error: registry::Error) -> anyhow::Error {
    let is_login = matches!(error, registry::Error::Login { .. });
    let error = anyhow::Error::new(error);
    if is_login { error.context(HINT) } else { error }
}

/// Options for registries.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Options {
    /// User of the registry, with the password in `MULTUS_REGISTRY_PASSWORD`; the login that docker, podman or skopeo stores unless set
    ///
    /// The host may be left out when the command connects to one registry. With several users each has its password in a variable with
    /// its host, as `MULTUS_REGISTRY_PASSWORD_R_EXAMPLE_5000` for r.example:5000.
    #[arg(long = "user", value_name = "[HOST=]NAME", value_parser = user)]
    users: Vec<String>,
    /// Connect without TLS to this registry; without a host to the mirrors, or to the registry itself when there is no mirror
    #[arg(long, value_name = "HOST", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = host_or_none)]
    plain_http: Vec<String>,
    /// Directory with a directory of certificates for each host: HOST:PORT/ca.crt, and client.cert with client.key for a registry that
    /// wants them; those of docker, podman and containerd below /etc unless set
    ///
    /// The CA of any host can be in `SSL_CERT_FILE`, which replaces the machine's own list.
    #[arg(long, value_name = "DIR")]
    certs_d: Option<PathBuf>,
}

/// The directories with certificates by host: of docker, podman and containerd.
const CERTS_D: [&str; 3] = [
    "/etc/docker/certs.d",
    "/etc/containers/certs.d",
    "/etc/containerd/certs.d",
];

fn user(text: &str) -> Result<String, String> {
    let (host, name) = text.split_once('=').unwrap_or(("localhost", text));
    if names::is_host(host) && !name.is_empty() {
        return Ok(text.to_owned());
    }
    Err("write NAME or HOST=NAME, as registry.example:5000=me".to_owned())
}

fn host_or_none(text: &str) -> Result<String, String> {
    if text.is_empty() || names::is_host(text) {
        return Ok(text.to_owned());
    }
    Err("write a host, as registry.example:5000".to_owned())
}

/// The users of the registries that a command connects to.
pub struct Registries<'a> {
    options: &'a Options,
    /// The logins of `--user`, by host.
    logins: BTreeMap<String, Login>,
}

impl Options {
    /// Decides which login each of these hosts gets, before a request is sent to any of them.
    pub fn registries(&self, hosts: &BTreeSet<String>) -> anyhow::Result<Registries<'_>> {
        let users = users(&self.users, hosts)?;
        Ok(Registries {
            options: self,
            logins: logins(&users, &variable)?,
        })
    }
}

impl Registries<'_> {
    /// Opens a registry; `--plain-http` without a host counts for it only when it `is_default`.
    pub fn open(&self, host: &str, is_default: bool) -> anyhow::Result<Registry> {
        let is_plain = |of: &String| of == host || (is_default && of.is_empty());
        let login = match self.logins.get(host) {
            Some(login) => Some(login.clone()),
            None => stored_login(host)?,
        };
        let access = Access {
            host: host.to_owned(),
            is_plain: self.options.plain_http.iter().any(is_plain),
            login,
        };
        let certs_d = match &self.options.certs_d {
            Some(dir) => vec![dir.clone()],
            None => CERTS_D.map(PathBuf::from).to_vec(),
        };
        let environment = Environment {
            variable: &variable,
            certs_d: &certs_d,
        };
        Registry::new(access, &environment).with_context(|| format!("cannot connect to {host}"))
    }
}

/// Returns the user of each host. One without a host counts when there is one host, because a password is for one registry.
fn users(users: &[String], hosts: &BTreeSet<String>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for user in users {
        let (host, name) = match (user.split_once('='), hosts.first()) {
            (Some((host, name)), _) => (host, name),
            (None, Some(host)) if hosts.len() == 1 => (host.as_str(), user.as_str()),
            (None, None) => continue,
            (None, Some(host)) => {
                let all: Vec<_> = hosts.iter().map(String::as_str).collect();
                bail!(
                    "--user {user} is for one registry, and there are {}: write --user {host}={user}, or give --mirror-only with one mirror",
                    all.join(", ")
                );
            }
        };
        let former = found.insert(host.to_owned(), name.to_owned());
        ensure!(
            former.is_none(),
            "--user is there twice for {host}: remove one"
        );
    }
    Ok(found)
}

/// Adds the passwords to users by host. The variable without a host is for a single user.
fn logins(
    users: &BTreeMap<String, String>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<BTreeMap<String, Login>> {
    let mut logins = BTreeMap::new();
    for (host, user) in users {
        let own = password_variable(host);
        let is_shared = users
            .keys()
            .any(|other| other != host && password_variable(other) == own);
        ensure!(
            !is_shared,
            "{own} would be the password for several hosts: run the command for one after the other"
        );
        let of_all = || variable(PASSWORD).filter(|_| users.len() == 1);
        let password = variable(&own).or_else(of_all).with_context(|| {
            if users.len() == 1 {
                format!("--user requires its password in {PASSWORD}: set it")
            } else {
                format!("--user {host}={user} requires its password in {own}: set it, since {PASSWORD} is for a single user")
            }
        })?;
        let user = user.clone();
        logins.insert(host.clone(), Login::Password { user, password });
    }
    Ok(logins)
}

/// Returns the variable with the password for one host.
fn password_variable(host: &str) -> String {
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    format!("{PASSWORD}_{}", host.chars().map(plain).collect::<String>())
}

/// Returns the login that docker, podman or skopeo stores for a host.
fn stored_login(host: &str) -> anyhow::Result<Option<Login>> {
    for path in login_files() {
        let Ok(config) = std::fs::read(&path) else {
            continue;
        };
        let login = stored(&config, host)
            .with_context(|| format!("cannot use the logins of {}", path.display()))?;
        if login.is_some() {
            return Ok(login);
        }
    }
    Ok(None)
}

/// Returns the files that may hold logins: the one that a variable names, else those of docker, then of podman and skopeo.
fn login_files() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let Some(file) = variable("REGISTRY_AUTH_FILE") {
        return vec![file];
    }
    if let Some(dir) = variable("DOCKER_CONFIG") {
        return vec![dir.join("config.json")];
    }
    let docker = std::env::home_dir().map(|home| home.join(".docker/config.json"));
    let runtime_dir = variable("XDG_RUNTIME_DIR").unwrap_or_else(|| "/run".into());
    let of_user = runtime_dir.join("containers/auth.json");
    let of_root = PathBuf::from("/run/containers/0/auth.json");
    docker.into_iter().chain([of_user, of_root]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hosts: &[&str]) -> BTreeSet<String> {
        hosts.iter().map(|&host| host.to_owned()).collect()
    }

    #[track_caller]
    fn check(args: &[&str], hosts: &[&str], expected: Result<&[(&str, &str)], &str>) {
        let args: Vec<_> = args.iter().map(|&user| user.to_owned()).collect();
        match (users(&args, &set(hosts)), expected) {
            (Ok(found), Ok(expected)) => {
                let found: Vec<_> = found.iter().map(|(a, b)| (&**a, &**b)).collect();
                assert_eq!(found, expected);
            }
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{error}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn user_without_a_host_is_for_a_single_registry() {
        check(&["me"], &["r:1"], Ok(&[("r:1", "me")]));
        check(&["r:1=me"], &["q", "r:1"], Ok(&[("r:1", "me")]));
        check(
            &["q=you", "r:1=me"],
            &["q", "r:1"],
            Ok(&[("q", "you"), ("r:1", "me")]),
        );
        check(&["me"], &[], Ok(&[]));
        let refusal = "--user me is for one registry, and there are q, r:1: write --user q=me";
        check(&["me"], &["q", "r:1"], Err(refusal));
        check(&["q=me", "q=you"], &["q"], Err("twice for q"));
        check(&["me", "r:1=me"], &["r:1"], Err("twice for r:1"));
    }

    #[test]
    fn password_is_for_one_host() {
        let check = |users: &[&str], variables: &[&str], expected: Result<&[&str], &str>| {
            let users = users.iter().map(|&host| (host.to_owned(), "me".to_owned()));
            let variable = |name: &str| {
                let is_set = variables.contains(&name);
                is_set.then(|| format!("of {name}"))
            };
            match (logins(&users.collect(), &variable), expected) {
                (Ok(found), Ok(expected)) => {
                    let passwords = found.values().map(|login| match login {
                        Login::Password { password, .. } => password.as_str(),
                        Login::IdentityToken(_) => "",
                    });
                    assert_eq!(passwords.collect::<Vec<_>>(), expected);
                }
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                }
                (found, _) => panic!("{found:?}"),
            }
        };
        let (of_q, of_r) = (
            "MULTUS_REGISTRY_PASSWORD_Q",
            "MULTUS_REGISTRY_PASSWORD_R_EXAMPLE_1",
        );
        check(&["q"], &[PASSWORD], Ok(&["of MULTUS_REGISTRY_PASSWORD"]));
        check(
            &["q"],
            &[PASSWORD, of_q],
            Ok(&["of MULTUS_REGISTRY_PASSWORD_Q"]),
        );
        let both = [
            "of MULTUS_REGISTRY_PASSWORD_Q",
            "of MULTUS_REGISTRY_PASSWORD_R_EXAMPLE_1",
        ];
        check(&["q", "r.example:1"], &[of_q, of_r], Ok(&both));
        check(&["q", "r.example:1"], &[of_q, PASSWORD], Err(of_r));
        check(&["q"], &[of_r], Err("in MULTUS_REGISTRY_PASSWORD: set it"));
        check(&["q.r", "q-r"], &[PASSWORD], Err("for several hosts"));
    }
}
