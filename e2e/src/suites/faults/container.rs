//! A container of a pod as a runtime handles it: its CNI verbs, their outcomes, and a check that the pod has all its networks.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::fixture::{FaultsFixture, Pod};
use crate::{
    control_plane::objects,
    daemon::STATE_DIR,
    node::inspect::{self, Addresses},
    sandbox::Sandbox,
    sh, test_env,
};

/// Interfaces of every pod of this suite.
const INTERFACES: [&str; 2] = ["eth0", "net1"];
/// Seconds in which repeated DELs have to succeed; a runtime repeats them for ever.
const DELETED_WITHIN: u64 = 120;

/// One container of a pod.
pub(super) struct Container<'a> {
    fixture: &'a FaultsFixture<'a>,
    pub(super) sandbox: Sandbox,
}

/// The outcome of a call of the shim.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The call succeeded, with this result.
    Done(Value),
    /// The call failed with an error document as the specification requires it.
    Refused { code: u64, text: String },
    /// The shim printed no document, as one that was killed.
    Lost(String),
}

impl<'a> Container<'a> {
    /// Creates a network namespace for a new container; `name` must be unique in the run.
    pub(super) fn new(
        fixture: &'a FaultsFixture<'a>,
        pod: &Pod,
        name: &str,
    ) -> anyhow::Result<Self> {
        let id = test_env::sha256(name.as_bytes());
        let netns_name = format!("cni-{}", &id[..12]);
        fixture
            .single_node
            .node
            .run(&["ip", "netns", "add", &netns_name])?;
        let sandbox = Sandbox {
            namespace: "default".to_owned(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            id,
            netns_name,
        };
        Ok(Self { fixture, sandbox })
    }

    pub(super) fn add(&self) -> anyhow::Result<Outcome> {
        self.call("ADD", &self.sandbox)
    }

    /// Runs DEL with the network namespace.
    pub(super) fn del(&self) -> anyhow::Result<Outcome> {
        self.call("DEL", &self.sandbox)
    }

    /// Removes the container as a runtime does: DEL, deletion of the namespace, DEL without a namespace; each DEL repeated until it succeeds.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        self.repeat_del("DEL", || self.del())?;
        let node = &self.fixture.single_node.node;
        node.run(&["ip", "netns", "delete", &self.sandbox.netns_name])?;
        let without = self.sandbox.without_netns();
        self.repeat_del("DEL without a namespace", || self.call("DEL", &without))
    }

    fn repeat_del(
        &self,
        what: &str,
        mut del: impl FnMut() -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<()> {
        let what = format!("{what} of {} succeeds", self.sandbox.id);
        sh::until(DELETED_WITHIN, &what, || match del()? {
            Outcome::Done(_) => Ok(()),
            failed => bail!("{failed:?}"),
        })
    }

    /// Runs an ADD that must succeed and attach all networks of the pod.
    pub(super) fn add_complete(&self) -> anyhow::Result<()> {
        match self.add()? {
            Outcome::Done(result) => self.ensure_complete(&result),
            failed => bail!("ADD of {}: {failed:?}", self.sandbox.id),
        }
    }

    /// Fails unless the pod has all its networks, and result, state and network status say the same. The status is written after the answer.
    pub(super) fn ensure_complete(&self, result: &Value) -> anyhow::Result<()> {
        self.ensure_attached(result)?;
        sh::until(10, "the network status", || self.ensure_status())
    }

    /// Fails unless the network status says what the pod has.
    pub(super) fn ensure_status(&self) -> anyhow::Result<()> {
        objects::ensure_status(&self.fixture.object(&self.sandbox.name)?, &self.inside()?)
    }

    /// Fails unless the pod has all its networks, and result and state say the same.
    pub(super) fn ensure_attached(&self, result: &Value) -> anyhow::Result<()> {
        let inside = self.inside()?;
        let names: Vec<_> = inside.keys().map(String::as_str).collect();
        ensure!(names == INTERFACES, "ADD succeeded, inside are {inside:?}");
        ensure!(
            inside.values().all(|addresses| addresses.len() == 1),
            "ADD succeeded, inside are {inside:?}"
        );
        let address = result["ips"][0]["address"].as_str().unwrap_or_default();
        ensure!(
            inside["eth0"] == [address],
            "the result has {address}, the pod {inside:?}"
        );
        let known = self.interfaces_in_state()?;
        ensure!(
            known == INTERFACES.map(str::to_owned).into(),
            "the state has {known:?}"
        );
        Ok(())
    }

    /// Returns the interfaces of the namespace except `lo`, those without an address included.
    fn inside(&self) -> anyhow::Result<Addresses> {
        let node = &self.fixture.single_node.node;
        let netns = &self.sandbox.netns_name;
        let mut inside = inspect::addresses(&node.run(&["ip", "-n", netns, "-o", "address"])?);
        let links = node.run(&["ip", "-n", netns, "-json", "link"])?;
        let links: Vec<Value> = serde_json::from_str(&links).context("ip printed no list")?;
        for name in links.iter().filter_map(|link| link["ifname"].as_str()) {
            if name != "lo" {
                inside.entry(name.to_owned()).or_default();
            }
        }
        Ok(inside)
    }

    /// Returns the interfaces in the state, after checking that its two files agree.
    fn interfaces_in_state(&self) -> anyhow::Result<BTreeSet<String>> {
        let read = |path: String| -> anyhow::Result<Value> {
            let text = fs::read(self.fixture.single_node.node.path(&path))
                .with_context(|| format!("ADD succeeded without {path}"))?;
            serde_json::from_slice(&text).with_context(|| format!("{path} is incomplete"))
        };
        let upstream = read(format!("{STATE_DIR}/{}", self.sandbox.id))?;
        let own = read(format!("{STATE_DIR}/.multus-rs/{}.json", self.sandbox.id))?;
        let delegates = own["delegates"].as_array().context("a list of delegates")?;
        let begun = delegates
            .iter()
            .filter(|delegate| delegate["progress"] == "started");
        let names: BTreeSet<_> = begun
            .filter_map(|delegate| Some(delegate["ifname"].as_str()?.to_owned()))
            .collect();
        ensure!(
            upstream.as_array().map(Vec::len) == Some(names.len()),
            "the two state files differ: {upstream} and {own}"
        );
        Ok(names)
    }

    fn call(&self, verb: &str, sandbox: &Sandbox) -> anyhow::Result<Outcome> {
        let answer = self.fixture.single_node.call(verb, sandbox)?;
        Ok(match (answer.success(), answer.error()) {
            (Ok(document), _) => Outcome::Done(document),
            (_, Ok(error)) => Outcome::Refused {
                code: error["code"].as_u64().unwrap_or_default(),
                text: error.to_string(),
            },
            (Err(lost), _) => Outcome::Lost(lost.to_string()),
        })
    }
}
