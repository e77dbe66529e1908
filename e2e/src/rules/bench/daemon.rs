//! The daemon under test: both are started the same way.

use std::fs;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Bench;
use crate::{
    sh,
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, GENERATED},
};

/// The API server's port on the node.
const API_SERVER: u16 = 6443;

/// How the daemon is set up while a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settings {
    /// A plain file that names its directories.
    Plain,
    /// The same with keys that are laid over every request.
    Overlaid,
    /// None runs; the case starts its own.
    None,
}

impl Settings {
    /// The daemon's file.
    pub(crate) fn file(self) -> Value {
        let mut file = json!({
            "cniVersion": "1.1.0", "multusConfigFile": "auto", "multusAutoconfigDir": CONF_DIR, "cniConfigDir": CONF_DIR,
            "binDir": BIN_DIR, "socketDir": "/run/multus/", "logLevel": "debug", "logToStderr": true,
        });
        if self == Self::Overlaid {
            file["namespaceIsolation"] = json!(true);
            file["globalNamespaces"] = json!("default, shared");
            file["defaultNetworks"] = json!(["everyone"]);
            file["systemNamespaces"] = json!(["quiet"]);
            file["multusNamespace"] = json!("shared");
            file["keyOfNobody"] = json!({"a": 1});
        }
        file
    }

    /// The same with further keys.
    pub(crate) fn file_with(self, keys: &Value) -> Value {
        let mut file = self.file();
        for (key, value) in keys.as_object().into_iter().flatten() {
            file[key] = value.clone();
        }
        file
    }
}

impl Bench {
    /// Starts the daemon and waits until it serves and has written its configuration.
    pub(crate) fn start(&self, file: &Value) -> anyhow::Result<()> {
        self.launch(file)?;
        sh::until(60, "the daemon is ready", || self.is_ready())
    }

    /// Starts the daemon.
    pub(crate) fn launch(&self, file: &Value) -> anyhow::Result<()> {
        self.launch_behind(API_SERVER, file)
    }

    /// The same; it finds its API server at another port.
    pub(crate) fn launch_behind(&self, port: u16, file: &Value) -> anyhow::Result<()> {
        self.stop("TERM")?;
        let node = &self.scene.node;
        let socket = file["socketDir"].as_str().unwrap_or("/run/multus");
        socket.clone_into(&mut self.socket.borrow_mut());
        node.write(DAEMON_CONFIG, file.to_string())?;
        // One implementation keeps it over its end, the other does not.
        let _ = fs::remove_file(node.path(GENERATED));
        let number = {
            let mut starts = self.starts.borrow_mut();
            *starts += 1;
            *starts
        };
        let program = self.programs.borrow().daemon.clone();
        let daemon = node.serve(&format!("daemon-{number}"), &program, |command| {
            command
                .env("MULTUS_NODE_NAME", &node.name)
                .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
                .env("KUBERNETES_SERVICE_PORT", port.to_string())
                .env("HOME", "/run/nowhere")
                .env_remove("KUBECONFIG")
                .args(["-config", DAEMON_CONFIG])
        })?;
        *self.daemon.borrow_mut() = Some(daemon);
        Ok(())
    }

    /// Fails while the daemon does not serve or has not written its configuration.
    pub(crate) fn is_ready(&self) -> anyhow::Result<()> {
        let answer = match self.daemon_says("GET", "/readyz", b"")? {
            answer if answer.status == 404 => self.daemon_says("GET", "/healthz", b"")?,
            answer => answer,
        };
        answer.well()?;
        self.config().map(drop)
    }

    /// Ends the daemon, if one runs.
    pub(crate) fn stop(&self, signal: &str) -> anyhow::Result<()> {
        match self.daemon.take() {
            Some(daemon) if self.scene.node.runs(&daemon) => self.scene.node.end(&daemon, signal),
            _ => Ok(()),
        }
    }

    /// What the daemon that runs has said so far.
    pub(crate) fn log(&self) -> anyhow::Result<std::path::PathBuf> {
        let log = self
            .scene
            .node
            .log(&format!("daemon-{}", self.starts.borrow()));
        anyhow::ensure!(log.exists(), "{} is missing", log.display());
        Ok(log)
    }

    /// Sends a signal to the daemon and does not wait.
    pub(crate) fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let daemon = self.daemon.borrow();
        self.scene
            .node
            .signal(daemon.as_ref().context("no daemon was started")?, signal)
    }
}
