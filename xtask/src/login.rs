//! Access to registries: options, and the logins that docker, podman and skopeo store.

use std::path::PathBuf;

use airgap::registry::{Access, Login, Registry, StoredLogin, in_docker_config, of_helper};
use anyhow::{Context as _, anyhow};
use xshell::{Shell, cmd};

/// The variable with the password of `--user`: every user of the machine can see arguments.
const PASSWORD: &str = "MULTUS_REGISTRY_PASSWORD";
/// The hint when a login is missing.
pub(crate) const HINT: &str =
    "give --user and MULTUS_REGISTRY_PASSWORD, or log in with docker, podman or skopeo";

/// Options for registries.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// User of the registry, with the password in `MULTUS_REGISTRY_PASSWORD`; the login that docker, podman or skopeo stores unless set
    ///
    /// Without a host the login is for the mirrors, or for the registry itself when there is no mirror.
    #[arg(long = "user", value_name = "[HOST=]NAME")]
    users: Vec<String>,
    /// Connect without TLS to this registry; without a host to the mirrors, or to the registry itself when there is no mirror
    #[arg(long, value_name = "HOST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    plain_http: Vec<String>,
}

impl Options {
    /// Opens a registry. Options without a host count for it only when it `is_default`.
    pub(crate) fn open(&self, host: &str, is_default: bool) -> anyhow::Result<Registry> {
        let is_plain = |of: &String| of == host || (is_default && of.is_empty());
        let access = Access {
            host: host.to_owned(),
            is_plain: self.plain_http.iter().any(is_plain),
            login: self.login(host, is_default)?,
        };
        Registry::new(access).with_context(|| format!("cannot connect to {host}"))
    }

    /// Returns the user for a host: one with its name before one without a name.
    fn user(&self, host: &str, is_default: bool) -> Option<&str> {
        let own = self.users.iter().find_map(|user| {
            let (of, name) = user.split_once('=')?;
            (of == host).then_some(name)
        });
        let bare = || self.users.iter().find(|user| !user.contains('='));
        own.or_else(|| bare().filter(|_| is_default).map(String::as_str))
    }

    fn login(&self, host: &str, is_default: bool) -> anyhow::Result<Option<Login>> {
        if let Some(user) = self.user(host, is_default) {
            let password = std::env::var(PASSWORD)
                .with_context(|| format!("--user requires its password in {PASSWORD}: set it"))?;
            return Ok(Some(Login {
                user: user.to_owned(),
                password,
            }));
        }
        for path in login_files() {
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let found = in_docker_config(&text, host)
                .with_context(|| format!("{} is damaged: log in again", path.display()))?;
            let login = match found {
                StoredLogin::None => None,
                StoredLogin::Login(login) => Some(login),
                StoredLogin::Helper { name, server } => from_helper(&name, &server)?,
            };
            if login.is_some() {
                return Ok(login);
            }
        }
        Ok(None)
    }
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

/// Requests a login from a credential helper, as docker does; returns `None` when the helper has none.
fn from_helper(name: &str, server: &str) -> anyhow::Result<Option<Login>> {
    let program = format!("docker-credential-{name}");
    let shell = Shell::new()?;
    let output = cmd!(shell, "{program} get")
        .stdin(server)
        .quiet()
        .ignore_stderr()
        .ignore_status()
        .output()
        .with_context(|| {
            format!("docker's configuration names {program} for logins: put it into PATH")
        })?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    of_helper(output.status.success(), &stdout)
        .map_err(|reason| anyhow!("{program} has no login for {server}: {reason}; {HINT}"))
}
