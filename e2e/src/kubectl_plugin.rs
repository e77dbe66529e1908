//! `kubectl-multus`, as a person runs it who has a kubeconfig.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    node::{Node, inspect::Addresses},
    sh,
    test_env::TestEnv,
};

/// Where it runs, and as whom.
pub(crate) struct KubectlPlugin<'a> {
    pub(crate) env: &'a TestEnv,
    pub(crate) node: &'a Node,
    pub(crate) kubeconfig: &'a Path,
}

impl KubectlPlugin<'_> {
    /// What it answers as JSON, and its exit status.
    pub(crate) fn json(&self, words: &[&str], input: &str) -> anyhow::Result<(i32, Value)> {
        let mut command = self.node.command(self.env.program("kubectl-multus"));
        command.args(words).args(["--output=json", "--kubeconfig"]);
        let output = sh::output(command.arg(self.kubeconfig), input.as_bytes())?;
        let status = output.status.code().context("it was killed")?;
        let answer = serde_json::from_slice(&output.stdout);
        let answer = answer.with_context(|| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("{words:?} ended with {status}: {stderr}")
        })?;
        Ok((status, answer))
    }

    /// `status` tells what is inside, and all is there; returns its rows by interface.
    pub(crate) fn status_is(
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
            "{inside:?} are inside, it tells {answer}"
        );
        for (interface, addresses) in inside {
            let expected: Vec<_> = addresses.iter().map(bare).collect();
            ensure!(
                rows[interface]["addresses"] == Value::from(expected),
                "{addresses:?} are inside, it tells {}",
                rows[interface]
            );
        }
        Ok(rows)
    }
}
