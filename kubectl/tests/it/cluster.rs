//! A cluster that answers fixed paths, and a kubeconfig with several contexts that lead to it.

use std::{path::PathBuf, process::Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::api_server::{ApiServer, ReceivedRequest};

use crate::{answer, run};

pub(crate) fn list(items: &Value) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

pub(crate) fn forbidden(what: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": format!("{what} is forbidden: User \"u\" cannot list resource \"{what}\"")})
}

/// A cluster that runs until it is dropped.
pub(crate) struct Cluster {
    api: ApiServer,
    dir: TempDir,
}

impl Cluster {
    /// A cluster that answers these paths with these statuses and objects, and all others with 404.
    pub(crate) fn start(answers: &[(&str, u16, Value)]) -> Self {
        let api = ApiServer::start_with_answers(answers);
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": format!("http://{}", api.address())}}],
            "users": [{"name": "u", "user": {}}, {"name": "commanded", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [dir.path().join("credential")],
                "interactiveMode": "Never",
            }}}],
            "contexts": [
                {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "shop"}},
                {"name": "commanded", "context": {"cluster": "k", "user": "commanded", "namespace": "shop"}},
                {"name": "other", "context": {"cluster": "k", "user": "u", "namespace": "empty"}},
            ],
        });
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig.to_string()).unwrap();
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "secret"}});
        std::fs::write(dir.path().join("credential"), credential.to_string()).unwrap();
        Self { api, dir }
    }

    /// Runs the program with this cluster.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let kubeconfig = self.kubeconfig();
        let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
        run(&[args, &kubeconfig].concat(), "")
    }

    /// Runs the program with this cluster and `-o json`; returns exit status and answer.
    #[track_caller]
    pub(crate) fn answer(&self, args: &[&str]) -> (i32, Value) {
        let kubeconfig = self.kubeconfig();
        let kubeconfig = ["--kubeconfig", kubeconfig.to_str().unwrap()];
        answer(&[args, &kubeconfig].concat(), "")
    }

    /// The user of each request so far: the token that it carried.
    pub(crate) fn users(&self) -> Vec<String> {
        let requests = self.api.requests().into_iter();
        requests.map(|request| request.user).collect()
    }

    /// How many requests of this method and path there were.
    pub(crate) fn requests(&self, method_and_path: &str) -> usize {
        let requests = self.api.requests().into_iter();
        let same_path = requests.filter(|one| one.method_and_path == method_and_path);
        same_path.count()
    }

    /// Every patch so far.
    pub(crate) fn patches(&self) -> Vec<ReceivedRequest> {
        let requests = self.api.requests().into_iter();
        let is_patch = |one: &ReceivedRequest| one.method_and_path.starts_with("PATCH ");
        requests.filter(is_patch).collect()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }
}
