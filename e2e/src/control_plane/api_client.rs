//! A client of the API server that starts no process per request, for tests with many requests.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    http::{self, HttpResponse},
    node::Node,
    sh,
};

/// A `kubectl proxy` on a node and its socket.
#[derive(Debug)]
pub(crate) struct ApiClient(PathBuf);

impl ApiClient {
    /// Starts the proxy with a kubeconfig of the node, and waits until the API server answers through it.
    pub(crate) fn start(node: &Node, kubeconfig: &Path) -> anyhow::Result<Self> {
        Self::named(node, "api", kubeconfig)
    }

    /// Does the same beside others, which have other names.
    pub(crate) fn named(node: &Node, name: &str, kubeconfig: &Path) -> anyhow::Result<Self> {
        let socket = format!("/run/{name}.sock");
        node.serve(&format!("{name}-proxy"), "kubectl", |command| {
            command
                .arg("proxy")
                .arg(format!("--unix-socket={socket}"))
                .arg("--kubeconfig")
                .arg(kubeconfig)
        })?;
        let client = Self(node.path(&socket));
        sh::until(20, "the API server answers", || {
            client.request("GET", "/readyz", &Value::Null)
        })?;
        Ok(client)
    }

    /// Reads an object or a list.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.request("GET", path, &Value::Null)?.json()
    }

    /// Sends a request; a response other than 2xx is an error.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<HttpResponse> {
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
