//! The API server asked without a process per question, for tests that ask often.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    control::Control,
    http::{self, Answer},
    node::Node,
    sh,
};

/// A `kubectl proxy` on a node and its socket.
#[derive(Debug)]
pub(crate) struct Direct(PathBuf);

impl Direct {
    /// Starts the proxy and waits until the API server answers through it.
    pub(crate) fn start(node: &Node, control: &Control) -> anyhow::Result<Self> {
        let socket = "/run/api.sock";
        node.serve("proxy", "kubectl", |command| {
            command
                .arg("proxy")
                .arg(format!("--unix-socket={socket}"))
                .arg("--kubeconfig")
                .arg(control.admin())
        })?;
        let direct = Self(node.path(socket));
        sh::until(20, "the API server can be asked", || {
            direct.ask("GET", "/readyz", &Value::Null)
        })?;
        Ok(direct)
    }

    /// One question; whatever is no success is an error.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let kind = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        http::send(&self.0, method, path, kind, &bytes)?.well()
    }
}
