//! The daemon under test: its configuration file, its start and its end.

use std::fs;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Harness;
use crate::{
    daemon::{Access, launch},
    sh,
    single_node::{BIN_DIR, CONF_DIR, DAEMON_CONFIG, GENERATED},
};

/// The API server's port on the node.
const API_SERVER: u16 = 6443;

/// How the daemon is set up while a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonSetup {
    /// One daemon runs for many cases; its file names its directories.
    Plain,
    /// The same with keys that replace those of requests.
    Overlaid,
    /// The case starts its own daemon, or none.
    Own,
}

impl DaemonSetup {
    /// Returns the daemon's configuration file.
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
            file["unknownKey"] = json!({"a": 1});
        }
        file
    }

    /// Returns the daemon's configuration file with further keys.
    pub(crate) fn file_with(self, keys: &Value) -> Value {
        let mut file = self.file();
        for (key, value) in keys.as_object().into_iter().flatten() {
            file[key] = value.clone();
        }
        file
    }
}

impl Harness {
    /// Starts the daemon and waits until it serves and has written the CNI configuration.
    pub(crate) fn start_daemon(&self, file: &Value) -> anyhow::Result<()> {
        self.launch_daemon(file)?;
        sh::until(60, "the daemon is ready", || self.ensure_ready())
    }

    /// Starts the daemon without waiting for it; a daemon that runs is ended first.
    pub(crate) fn launch_daemon(&self, file: &Value) -> anyhow::Result<()> {
        self.launch_daemon_behind(API_SERVER, file)
    }

    /// Does the same with another port for the API server.
    pub(crate) fn launch_daemon_behind(&self, port: u16, file: &Value) -> anyhow::Result<()> {
        self.stop_daemon("TERM")?;
        let node = &self.node();
        let socket = file["socketDir"].as_str().unwrap_or("/run/multus");
        socket.clone_into(&mut self.socket.borrow_mut());
        node.write(DAEMON_CONFIG, file.to_string())?;
        // Some implementations keep the generated file at their end; each daemon has to write it.
        let _ = fs::remove_file(node.path(GENERATED));
        let number = {
            let mut starts = self.starts.borrow_mut();
            *starts += 1;
            *starts
        };
        let program = self.programs.borrow().daemon.clone();
        let (name, account) = (format!("daemon-{number}"), Access::Account(port));
        let daemon = launch(node, &name, &program, account, |command| {
            command.args(["-config", DAEMON_CONFIG])
        })?;
        *self.daemon.borrow_mut() = Some(daemon);
        Ok(())
    }

    /// Fails while the daemon is not ready or has not written the CNI configuration.
    pub(crate) fn ensure_ready(&self) -> anyhow::Result<()> {
        let answer = match self.daemon_request("GET", "/readyz", b"")? {
            answer if answer.status == 404 => self.daemon_request("GET", "/healthz", b"")?,
            answer => answer,
        };
        answer.well()?;
        self.config().map(drop)
    }

    /// Ends the daemon with a signal, if one runs.
    pub(crate) fn stop_daemon(&self, signal: &str) -> anyhow::Result<()> {
        match self.daemon.take() {
            Some(daemon) if self.node().runs(&daemon) => self.node().end(&daemon, signal),
            _ => Ok(()),
        }
    }

    /// Returns the path of the log of the newest daemon.
    pub(crate) fn daemon_log(&self) -> anyhow::Result<std::path::PathBuf> {
        let log = self.node().log(&format!("daemon-{}", self.starts.borrow()));
        anyhow::ensure!(log.exists(), "{} is missing", log.display());
        Ok(log)
    }

    /// Sends a signal to the daemon without waiting for its end.
    pub(crate) fn signal_daemon(&self, signal: &str) -> anyhow::Result<()> {
        let daemon = self.daemon.borrow();
        self.node()
            .signal(daemon.as_ref().context("no daemon was started")?, signal)
    }
}
