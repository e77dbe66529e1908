//! A container of a pod, and calls of the shim for many containers at the same time.

use std::{
    io::Write as _,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::fixture::{LoadFixture, namespace, pod_name};
use crate::{
    node::Service,
    single_node::{BIN_DIR, GENERATED, TRY_AGAIN_LATER},
    test_env,
};

#[derive(Debug, Clone)]
pub(super) struct Container {
    pub(super) pod: usize,
    pub(super) id: String,
}

/// The outcome of a call of the shim.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A result; `null` when the verb has none.
    Done(Value),
    /// A CNI error.
    Refused(Value),
}

/// A call of the shim in progress.
pub(super) struct Running(Child);

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

    fn environment(&self, fixture: &LoadFixture<'_>, verb: &str) -> Vec<(&'static str, String)> {
        let (pod, id) = (pod_name(self.pod), &self.id);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={pod};K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={}",
            namespace(self.pod),
            fixture.uid(self.pod)
        );
        vec![
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", id.clone()),
            ("CNI_NETNS", format!("/run/netns/{pod}")),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_ARGS", args),
            ("CNI_PATH", BIN_DIR.to_owned()),
        ]
    }
}

impl LoadFixture<'_> {
    pub(super) fn start(&self, verb: &str, container: &Container) -> anyhow::Result<Running> {
        let mut command = self.node.command(shim());
        command.envs(container.environment(self, verb));
        self.run(command)
    }

    pub(super) fn call(&self, verb: &str, container: &Container) -> anyhow::Result<Outcome> {
        self.start(verb, container)?.outcome()
    }

    /// Runs a call that has to succeed.
    pub(super) fn succeed(&self, verb: &str, container: &Container) -> anyhow::Result<Value> {
        self.start(verb, container)?.succeed(verb, container)
    }

    pub(super) fn status(&self) -> anyhow::Result<Outcome> {
        let mut command = self.node.command(shim());
        command.envs([("CNI_COMMAND", "STATUS"), ("CNI_PATH", BIN_DIR)]);
        self.run(command)?.outcome()
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
            command.envs(container.environment(self, verb)).args([
                "-c",
                "exec \"$0\" <\"$1\"",
                &shim(),
                GENERATED,
            ])
        })
    }

    fn run(&self, mut command: Command) -> anyhow::Result<Running> {
        let config = std::fs::read(self.node.path(GENERATED)).context(GENERATED)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the shim")?;
        let mut stdin = child.stdin.take().context("stdin is piped")?;
        // A shim that does not read its stdin prints the reason on stdout.
        let _ = stdin.write_all(&config);
        Ok(Running(child))
    }
}

impl Running {
    pub(super) fn outcome(self) -> anyhow::Result<Outcome> {
        let output = self.0.wait_with_output()?;
        let document = match output.stdout.as_slice() {
            b"" => Value::Null,
            text => serde_json::from_slice(text)
                .with_context(|| format!("no JSON: {}", String::from_utf8_lossy(text)))?,
        };
        if output.status.success() {
            return Ok(Outcome::Done(document));
        }
        ensure!(
            document["code"].is_u64(),
            "{}: {document} is no error document",
            output.status
        );
        Ok(Outcome::Refused(document))
    }

    /// Waits for the end of the call, which has to succeed.
    pub(super) fn succeed(self, verb: &str, container: &Container) -> anyhow::Result<Value> {
        match self.outcome()? {
            Outcome::Done(result) => Ok(result),
            Outcome::Refused(error) => bail!("{verb} of {}: {error}", pod_name(container.pod)),
        }
    }
}

impl Outcome {
    /// Returns whether the error asks the runtime to try again later.
    pub(super) fn is_retriable(&self) -> bool {
        matches!(self, Self::Refused(error) if error["code"] == TRY_AGAIN_LATER)
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
        match running.succeed(verb, container) {
            Ok(result) if verb == "ADD" && result["ips"][0]["address"] != "10.66.0.2/24" => {
                failures.push(format!("{verb} of {}: {result}", pod_name(container.pod)));
            }
            Ok(_) => {}
            Err(error) => failures.push(format!("{error:#}")),
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
