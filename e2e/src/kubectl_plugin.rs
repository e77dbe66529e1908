//! `kubectl-multus` with a kubeconfig, as a user runs it.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    node::{Node, inspect::Addresses},
    sh,
    test_env::TestEnv,
};

pub(crate) struct KubectlPlugin<'a> {
    env: &'a TestEnv,
    node: &'a Node,
    kubeconfig: PathBuf,
}

impl<'a> KubectlPlugin<'a> {
    /// Returns the plugin of a user on this node, with this kubeconfig.
    pub(crate) fn new(env: &'a TestEnv, node: &'a Node, kubeconfig: impl Into<PathBuf>) -> Self {
        let kubeconfig = kubeconfig.into();
        Self {
            env,
            node,
            kubeconfig,
        }
    }

    /// Runs it with `--output=json`; returns its exit status and its answer.
    pub(crate) fn json(&self, args: &[&str], input: &str) -> anyhow::Result<(i32, Value)> {
        let mut command = self.node.command(self.env.program("kubectl-multus"));
        command.args(args).args(["--output=json", "--kubeconfig"]);
        let output = sh::output(command.arg(&self.kubeconfig), input.as_bytes())?;
        let status = output.status.code().context("it was killed")?;
        let answer = serde_json::from_slice(&output.stdout);
        let answer = answer.with_context(|| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("{args:?} ended with {status}: {stderr}")
        })?;
        Ok((status, answer))
    }

    /// Fails unless `status` lists exactly these interfaces and addresses, and finds nothing wrong; returns its rows by interface.
    pub(crate) fn ensure_status(
        &self,
        pod: &str,
        inside: &Addresses,
    ) -> anyhow::Result<BTreeMap<String, Value>> {
        let (status, answer) = self.json(&["status", pod], "")?;
        ensure!(status == 0, "{answer}");
        let bare = |address: &String| address.split('/').next().unwrap_or(address).to_owned();
        let rows = answer["networks"].as_array().into_iter().flatten();
        let rows: BTreeMap<_, _> = rows
            .map(|row| {
                let interface = row["interface"].as_str().unwrap_or_default();
                (interface.to_owned(), row.clone())
            })
            .collect();
        ensure!(
            rows.keys().eq(inside.keys()),
            "the pod has {inside:?}, status lists {answer}"
        );
        for (interface, addresses) in inside {
            let expected: Vec<_> = addresses.iter().map(bare).collect();
            ensure!(
                rows[interface]["addresses"] == Value::from(expected),
                "the pod has {addresses:?}, status lists {}",
                rows[interface]
            );
        }
        Ok(rows)
    }
}
