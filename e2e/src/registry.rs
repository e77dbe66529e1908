//! A registry with a login, as a service of a node. It speaks plain HTTP.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    node::{Node, Service},
    sh,
};

/// The only user.
pub(crate) const USER: &str = "e2e";
pub(crate) const PASSWORD: &str = "for this run alone";

pub(crate) struct Registry {
    /// The name by which others reach it: address and port.
    pub(crate) host: String,
    service: Service,
    log: PathBuf,
}

impl Registry {
    /// Starts an empty registry at an address of a node, and waits until it answers.
    pub(crate) fn start(node: &Node, host: &str) -> anyhow::Result<Self> {
        let dir = node.dir.join("registry");
        fs::create_dir_all(&dir)?;
        let users = sh::run(Command::new("htpasswd").args(["-Bbn", USER, PASSWORD]))?;
        fs::write(dir.join("htpasswd"), users.trim())?;
        let config = dir.join("config.yml");
        fs::write(&config, config_of(host, &dir))?;
        let service = node.serve("registry", "docker-registry", |command| {
            command.arg("serve").arg(&config)
        })?;
        let registry = Self {
            host: host.to_owned(),
            service,
            log: node.log("registry"),
        };
        sh::until(20, "the registry answers", || {
            registry.curl(node, &["/v2/"])
        })?;
        Ok(registry)
    }

    /// Ends the service; its files stay.
    pub(crate) fn end(&self, node: &Node) -> anyhow::Result<()> {
        node.end(&self.service, "TERM")
    }

    /// Sends a request from a node as the user; the first argument is the path.
    pub(crate) fn curl(&self, node: &Node, args: &[&str]) -> anyhow::Result<String> {
        let (path, more) = args.split_first().context("a request has a path")?;
        let mut command = node.command("curl");
        command.args(["--silent", "--show-error", "--fail", "--user"]);
        command.arg(format!("{USER}:{PASSWORD}")).args(more);
        sh::run(command.arg(format!("http://{}{path}", self.host)))
    }

    /// Returns the digest that a tag of a repository has.
    pub(crate) fn digest(
        &self,
        node: &Node,
        repository: &str,
        tag: &str,
    ) -> anyhow::Result<String> {
        let path = format!("/v2/{repository}/manifests/{tag}");
        let accept = "Accept: application/vnd.oci.image.index.v1+json";
        let head = self.curl(node, &[&path, "--head", "--header", accept])?;
        let digest = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_it = name.eq_ignore_ascii_case("docker-content-digest");
            is_it.then(|| value.trim().to_owned())
        });
        digest.with_context(|| format!("{repository}:{tag} has no digest: {head}"))
    }

    /// Returns containerd's file that makes it a mirror of a registry that does not exist.
    pub(crate) fn mirror(&self) -> String {
        format!(
            "server = \"https://registry.invalid\"\n[host.\"http://{0}\"]\n  capabilities = [\"pull\", \"resolve\"]\n  [host.\"http://{0}\".header]\n    Authorization = \"Basic {1}\"\n",
            self.host,
            login()
        )
    }

    /// Counts the lines of its log that contain all these texts.
    pub(crate) fn logged_requests(&self, texts: &[&str]) -> anyhow::Result<usize> {
        let log = fs::read_to_string(&self.log)?;
        let has = |line: &&str| texts.iter().all(|text| line.contains(text));
        Ok(log.lines().filter(has).count())
    }
}

/// Returns the login of the user, as HTTP and docker's configuration have it.
pub(crate) fn login() -> String {
    STANDARD.encode(format!("{USER}:{PASSWORD}"))
}

fn config_of(host: &str, dir: &Path) -> String {
    format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\nauth:\n  htpasswd:\n    realm: e2e\n    path: {}\n",
        dir.join("storage").display(),
        dir.join("htpasswd").display()
    )
}
