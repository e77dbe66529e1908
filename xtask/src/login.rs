//! How registries are reached: options, and logins from where other programs keep them.

use std::path::PathBuf;

use airgap::registry::{Access, Found, Login, Registry, in_docker_config};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// Where the secret to `--user` stands: an argument would be seen by everybody on the machine.
const PASSWORD: &str = "MULTUS_REGISTRY_PASSWORD";
/// The cure where a login is missing.
pub(crate) const CURE: &str =
    "give --user and MULTUS_REGISTRY_PASSWORD, or log in with docker, podman or skopeo";

/// Options for registries.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Who asks, with the password in `MULTUS_REGISTRY_PASSWORD`; the login in docker's config.json unless given
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
        let Some(path) = docker_config() else {
            return Ok(None);
        };
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Ok(None);
        };
        let found = in_docker_config(&text, host)
            .with_context(|| format!("{} is damaged: log in again", path.display()))?;
        match found {
            Found::Nothing => Ok(None),
            Found::Login(login) => Ok(Some(login)),
            Found::Helper(name) => ask(&name, host).map(Some),
        }
    }
}

fn docker_config() -> Option<PathBuf> {
    let named = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let dir = named.or_else(|| Some(std::env::home_dir()?.join(".docker")));
    Some(dir?.join("config.json"))
}

/// Asks a credential helper, as docker does.
fn ask(name: &str, host: &str) -> anyhow::Result<Login> {
    let program = format!("docker-credential-{name}");
    let shell = Shell::new()?;
    let answer = cmd!(shell, "{program} get")
        .stdin(host)
        .quiet()
        .ignore_stderr()
        .read()
        .with_context(|| format!("{program} does not know {host}: {CURE}"))?;
    let answer: Value = serde_json::from_str(&answer)
        .with_context(|| format!("{program} answers something else than JSON"))?;
    let word = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let login = Login {
        user: word("Username"),
        password: word("Secret"),
    };
    ensure!(
        !login.user.is_empty(),
        "{program} knows no user for {host}: {CURE}"
    );
    Ok(login)
}
