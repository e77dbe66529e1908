//! A container of a pod, and calls of the shim for many containers at the same time.

use std::{ffi::OsStr, fs};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::fixture::{LoadFixture, namespace, pod_name};
use crate::{
    node::Service,
    sandbox::{Answer, Running, Sandbox},
    single_node::{BIN_DIR, GENERATED},
    test_env,
};

#[derive(Debug, Clone)]
pub(super) struct Container {
    pub(super) pod: usize,
    pub(super) id: String,
}

impl Container {
    /// Returns a new container of a pod; `name` must be unique in the run.
    pub(super) fn new(pod: usize, name: &str) -> Self {
        let id = test_env::sha256(format!("{name} {pod}").as_bytes());
        Self { pod, id }
    }

    /// Returns a new container for each of the first pods.
    pub(super) fn many(count: usize, name: &str) -> Vec<Self> {
        (0..count).map(|pod| Self::new(pod, name)).collect()
    }

    fn sandbox(&self, fixture: &LoadFixture<'_>) -> Sandbox {
        Sandbox {
            namespace: namespace(self.pod).to_owned(),
            name: pod_name(self.pod),
            uid: fixture.uid(self.pod).to_owned(),
            id: self.id.clone(),
            netns_name: pod_name(self.pod),
        }
    }
}

impl LoadFixture<'_> {
    pub(super) fn start(&self, verb: &str, container: &Container) -> anyhow::Result<Running> {
        self.shim(&container.sandbox(self).env(verb))
    }

    pub(super) fn call(&self, verb: &str, container: &Container) -> anyhow::Result<Answer> {
        self.start(verb, container)?.answer()
    }

    /// Runs a call that has to succeed.
    pub(super) fn succeed(&self, verb: &str, container: &Container) -> anyhow::Result<Value> {
        let answer = self.call(verb, container)?;
        answer
            .success()
            .with_context(|| format!("{verb} of {}", pod_name(container.pod)))
    }

    pub(super) fn status(&self) -> anyhow::Result<Answer> {
        let env = [("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)];
        self.shim(&env)?.answer()
    }

    fn shim(&self, env: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)]) -> anyhow::Result<Running> {
        let config = fs::read(self.node.path(GENERATED)).context(GENERATED)?;
        Running::start(self.node.command(shim()), env, &config)
    }

    /// Starts a call for each container at the same time.
    pub(super) fn start_all(
        &self,
        verb: &str,
        containers: &[Container],
    ) -> anyhow::Result<Vec<Running>> {
        let start = |container| self.start(verb, container);
        containers.iter().map(start).collect()
    }

    /// Runs a call for each container at the same time; each has to succeed.
    pub(super) fn all_succeed(&self, verb: &str, containers: &[Container]) -> anyhow::Result<()> {
        finish(verb, containers, self.start_all(verb, containers)?)
    }

    /// Starts a call as a service of the node, so that the test can kill it.
    pub(super) fn start_caller(
        &self,
        verb: &str,
        container: &Container,
    ) -> anyhow::Result<Service> {
        self.node.serve("caller", "sh", |command| {
            command.envs(container.sandbox(self).env(verb)).args([
                "-c",
                "exec \"$0\" <\"$1\"",
                &shim(),
                GENERATED,
            ])
        })
    }
}

/// Waits for all calls; the error counts those that failed.
pub(super) fn finish(
    verb: &str,
    containers: &[Container],
    running: Vec<Running>,
) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    for (container, running) in containers.iter().zip(running) {
        match running.answer().and_then(|answer| answer.success()) {
            Ok(result) if verb == "ADD" && result["ips"][0]["address"] != "10.66.0.2/24" => {
                failures.push(format!("{verb} of {}: {result}", pod_name(container.pod)));
            }
            Ok(_) => {}
            Err(error) => {
                failures.push(format!("{verb} of {}: {error:#}", pod_name(container.pod)));
            }
        }
    }
    ensure!(
        failures.is_empty(),
        "{} of {} failed, the first with: {}",
        failures.len(),
        containers.len(),
        failures[0]
    );
    Ok(())
}

/// Returns the path at which the daemon installs the shim.
fn shim() -> String {
    format!("{BIN_DIR}/multus-shim")
}
