//! How registries are reached: options, and logins from where other programs keep them.

use std::path::PathBuf;

use airgap::registry::{Access, Found, Login, Registry, in_docker_config, of_helper};
use anyhow::{Context as _, anyhow};
use xshell::{Shell, cmd};

/// Where the secret to `--user` stands: an argument would be seen by everybody on the machine.
const PASSWORD: &str = "MULTUS_REGISTRY_PASSWORD";
/// The cure where a login is missing.
pub(crate) const CURE: &str =
    "give --user and MULTUS_REGISTRY_PASSWORD, or log in with docker, podman or skopeo";

/// Options for registries.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Who asks, with the password in `MULTUS_REGISTRY_PASSWORD`; the login that docker, podman or skopeo keeps unless given
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Speak to registries without TLS
    #[arg(long)]
    plain_http: bool,
}

impl Options {
    /// A connection to a registry.
    pub(crate) fn open(&self, host: &str) -> anyhow::Result<Registry> {
        let access = Access {
            host: host.to_owned(),
            is_plain: self.plain_http,
            login: self.login(host)?,
        };
        Registry::new(access).with_context(|| format!("cannot speak to {host}"))
    }

    fn login(&self, host: &str) -> anyhow::Result<Option<Login>> {
        if let Some(user) = &self.user {
            let password = std::env::var(PASSWORD)
                .with_context(|| format!("--user wants its password in {PASSWORD}: set it"))?;
            return Ok(Some(Login {
                user: user.clone(),
                password,
            }));
        }
        for path in kept() {
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let found = in_docker_config(&text, host)
                .with_context(|| format!("{} is damaged: log in again", path.display()))?;
            let login = match found {
                Found::Nothing => None,
                Found::Login(login) => Some(login),
                Found::Helper { name, server } => ask(&name, &server)?,
            };
            if login.is_some() {
                return Ok(login);
            }
        }
        Ok(None)
    }
}

/// Where logins are kept: the file or folder that is named, else where docker, then podman and skopeo, keep theirs.
fn kept() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    if let Some(file) = named("REGISTRY_AUTH_FILE") {
        return vec![file];
    }
    if let Some(dir) = named("DOCKER_CONFIG") {
        return vec![dir.join("config.json")];
    }
    let docker = std::env::home_dir().map(|home| home.join(".docker/config.json"));
    let running = named("XDG_RUNTIME_DIR").unwrap_or_else(|| "/run".into());
    let own = running.join("containers/auth.json");
    let of_root = PathBuf::from("/run/containers/0/auth.json");
    docker.into_iter().chain([own, of_root]).collect()
}

/// Asks a credential helper, as docker does; nothing where it knows none.
fn ask(name: &str, server: &str) -> anyhow::Result<Option<Login>> {
    let program = format!("docker-credential-{name}");
    let shell = Shell::new()?;
    let answer = cmd!(shell, "{program} get")
        .stdin(server)
        .quiet()
        .ignore_stderr()
        .ignore_status()
        .output()
        .with_context(|| {
            format!("docker's configuration has {program} keep logins: put it into PATH")
        })?;
    let told = String::from_utf8_lossy(&answer.stdout);
    of_helper(answer.status.success(), &told)
        .map_err(|told| anyhow!("{program} gives no login for {server}: {told}; {CURE}"))
}
