//! The connection of a command to its registry: options, and the logins that docker, podman and skopeo store.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use registry::{
    Access, Error, Login, Registry,
    http::{Environment, variable},
    names,
};

/// The variable with the password of `--user`: every user of the machine can see arguments.
const PASSWORD: &str = "MULTUS_REGISTRY_PASSWORD";
/// The hint when a login is missing.
const HINT: &str =
    "give --user and MULTUS_REGISTRY_PASSWORD, or log in with docker, podman or skopeo";

/// Adds a hint to an error about a missing login.
pub(super) fn with_hint(error: Error) -> anyhow::Error {
    let is_login = matches!(error, Error::Login { .. });
    let error = anyhow::Error::new(error);
    if is_login { error.context(HINT) } else { error }
}

/// Options for a registry.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct ConnectionOptions {
    /// User of the registry, with the password in `MULTUS_REGISTRY_PASSWORD`; the login that docker, podman or skopeo stores unless set
    ///
    /// With several users the one for the host of the registry counts, and its password is in a variable with the host, as
    /// `MULTUS_REGISTRY_PASSWORD_R_EXAMPLE_5000` for r.example:5000.
    #[arg(long = "user", value_name = "[HOST=]NAME", value_parser = user)]
    users: Vec<String>,
    /// Connect without TLS
    #[arg(long)]
    plain_http: bool,
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

impl ConnectionOptions {
    /// Opens a registry and decides about its login; sends no request.
    pub fn open(&self, host: &str) -> anyhow::Result<Registry> {
        let login = match login(&self.users, host, &variable)? {
            Some(login) => Some(login),
            None => login_of_programs(host)?,
        };
        let access = Access {
            host: host.to_owned(),
            is_plain: self.plain_http,
            login,
        };
        let certs_d = match &self.certs_d {
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

/// Returns the login of `--user` for a host. The variable without a host has the password of a single user.
fn login(
    users: &[String],
    host: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Login>> {
    let mut names = users.iter().filter_map(|user| match user.split_once('=') {
        Some((of, name)) => (of == host).then_some(name),
        None => Some(user.as_str()),
    });
    let Some(user) = names.next() else {
        return Ok(None);
    };
    ensure!(
        names.next().is_none(),
        "--user is there twice for {host}: remove one"
    );
    let own = password_variable(host);
    let shared = || variable(PASSWORD).filter(|_| users.len() == 1);
    let password = variable(&own).or_else(shared).with_context(|| {
        if users.len() == 1 {
            format!("--user requires its password in {PASSWORD}: set it")
        } else {
            format!("--user {host}={user} requires its password in {own}: set it, since {PASSWORD} is for a single user")
        }
    })?;
    let user = user.to_owned();
    Ok(Some(Login::Password { user, password }))
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
fn login_of_programs(host: &str) -> anyhow::Result<Option<Login>> {
    for path in login_files() {
        let Ok(config) = std::fs::read(&path) else {
            continue;
        };
        let login = registry::stored_login(&config, host)
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
    let user_file = runtime_dir.join("containers/auth.json");
    let root_file = PathBuf::from("/run/containers/0/auth.json");
    docker.into_iter().chain([user_file, root_file]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const R_VARIABLE: &str = "MULTUS_REGISTRY_PASSWORD_R_EXAMPLE_1";

    /// Checks which user and password the host r.example:1 gets, or the refusal.
    #[track_caller]
    fn check(users: &[&str], variables: &[&str], expected: Result<Option<(&str, &str)>, &str>) {
        let users: Vec<_> = users.iter().map(|&user| user.to_owned()).collect();
        let variable = |name: &str| {
            let is_set = variables.contains(&name);
            is_set.then(|| format!("of {name}"))
        };
        match (login(&users, "r.example:1", &variable), expected) {
            (Ok(None), Ok(None)) => {}
            (Ok(Some(Login::Password { user, password })), Ok(Some(expected))) => {
                let password = password.trim_start_matches("of ");
                assert_eq!((user.as_str(), password), expected);
            }
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{error}");
            }
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn user_is_the_one_for_the_host() {
        check(&["me"], &[PASSWORD], Ok(Some(("me", PASSWORD))));
        check(&["r.example:1=me"], &[PASSWORD], Ok(Some(("me", PASSWORD))));
        check(&["q=you"], &[PASSWORD], Ok(None));
        check(&[], &[PASSWORD], Ok(None));
        check(
            &["me", "r.example:1=me"],
            &[R_VARIABLE],
            Err("twice for r.example:1"),
        );
    }

    #[test]
    fn password_is_for_one_host() {
        check(
            &["me"],
            &[PASSWORD, R_VARIABLE],
            Ok(Some(("me", R_VARIABLE))),
        );
        check(&["me"], &[], Err("in MULTUS_REGISTRY_PASSWORD: set it"));
        let both = ["q=you", "r.example:1=me"];
        check(&both, &[R_VARIABLE], Ok(Some(("me", R_VARIABLE))));
        check(&both, &[PASSWORD], Err(R_VARIABLE));
    }
}
