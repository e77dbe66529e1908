//! A container of a pod as a runtime sees it: verbs, what came of them, and whether all networks are inside.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::fixture::FaultsFixture;
use crate::{
    control_plane::objects,
    node::inspect::{self, Addresses},
    sh,
    single_node::BIN_DIR,
    test_env,
};

/// The code that asks a runtime to come again.
pub(super) const TRY_AGAIN_LATER: u64 = 11;
/// Where the daemon keeps what it knows of pods.
pub(super) const STATE: &str = "/var/lib/cni/multus";
/// What every pod here asks for.
const INTERFACES: [&str; 2] = ["eth0", "net1"];
/// A runtime asks for ever; here it has to work by then.
const DELETED_WITHIN: u64 = 120;

/// A pod of the API server.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
}

/// One of its containers, over time.
pub(super) struct Container<'a> {
    fixture: &'a FaultsFixture<'a>,
    pod: &'a Pod,
    pub(super) id: String,
    /// Name of its network namespace.
    netns: String,
}

/// What a call of the shim gave.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Success, with what was printed.
    Done(Value),
    /// An error as the specification wants it.
    Refused { code: u64, text: String },
    /// The shim did not end by itself.
    Lost(String),
}

impl<'a> Container<'a> {
    /// A container that never was, with a namespace; `name` is told from all others.
    pub(super) fn new(
        fixture: &'a FaultsFixture<'a>,
        pod: &'a Pod,
        name: &str,
    ) -> anyhow::Result<Self> {
        let id = test_env::sha256(name.as_bytes());
        let netns = format!("cni-{}", &id[..12]);
        fixture
            .single_node
            .node
            .run(&["ip", "netns", "add", &netns])?;
        Ok(Self {
            fixture,
            pod,
            id,
            netns,
        })
    }

    pub(super) fn add(&self) -> anyhow::Result<Outcome> {
        self.call("ADD", &format!("/run/netns/{}", self.netns))
    }

    /// DEL with the namespace.
    pub(super) fn del(&self) -> anyhow::Result<Outcome> {
        self.call("DEL", &format!("/run/netns/{}", self.netns))
    }

    /// The end as a runtime brings it about: each DEL is repeated until it succeeds, and the namespace goes between the two.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        self.removed("DEL", || self.del())?;
        let node = &self.fixture.single_node.node;
        node.run(&["ip", "netns", "delete", &self.netns])?;
        self.removed("DEL without a namespace", || self.call("DEL", ""))
    }

    fn removed(
        &self,
        what: &str,
        mut del: impl FnMut() -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<()> {
        let what = format!("{what} of {} succeeds", self.id);
        sh::until(DELETED_WITHIN, &what, || match del()? {
            Outcome::Done(_) => Ok(()),
            failed => bail!("{failed:?}"),
        })
    }

    /// An ADD that must succeed, with all that the pod asked for.
    pub(super) fn is_added(&self) -> anyhow::Result<()> {
        match self.add()? {
            Outcome::Done(result) => self.is_whole(&result),
            failed => bail!("ADD of {}: {failed:?}", self.id),
        }
    }

    /// Fails unless everything that the pod asked for is there, and said to be there, with these results of its ADD.
    pub(super) fn is_whole(&self, result: &Value) -> anyhow::Result<()> {
        let inside = self.inside()?;
        let names: Vec<_> = inside.keys().map(String::as_str).collect();
        ensure!(names == INTERFACES, "ADD succeeded, inside are {inside:?}");
        ensure!(
            inside.values().all(|addresses| addresses.len() == 1),
            "ADD succeeded, inside are {inside:?}"
        );
        let given = result["ips"][0]["address"].as_str().unwrap_or_default();
        ensure!(
            inside["eth0"] == [given],
            "the result names {given}, inside are {inside:?}"
        );
        let known = self.known()?;
        ensure!(
            known == INTERFACES.map(str::to_owned).into(),
            "the state knows {known:?}"
        );
        objects::status_tells(&self.fixture.object(&self.pod.name)?, &inside)
    }

    /// Interfaces inside, `lo` apart, also those without address.
    fn inside(&self) -> anyhow::Result<Addresses> {
        let node = &self.fixture.single_node.node;
        let mut inside =
            inspect::addresses(&node.run(&["ip", "-n", &self.netns, "-o", "address"])?);
        let links = node.run(&["ip", "-n", &self.netns, "-json", "link"])?;
        let links: Vec<Value> = serde_json::from_str(&links).context("ip printed no list")?;
        for name in links.iter().filter_map(|link| link["ifname"].as_str()) {
            if name != "lo" {
                inside.entry(name.to_owned()).or_default();
            }
        }
        Ok(inside)
    }

    /// The interfaces that both files of the state agree on.
    fn known(&self) -> anyhow::Result<BTreeSet<String>> {
        let read = |path: String| -> anyhow::Result<Value> {
            let text = fs::read(self.fixture.single_node.node.path(&path))
                .with_context(|| format!("ADD succeeded without {path}"))?;
            serde_json::from_slice(&text).with_context(|| format!("{path} is not whole"))
        };
        let upstream = read(format!("{STATE}/{}", self.id))?;
        let own = read(format!("{STATE}/.multus-rs/{}.json", self.id))?;
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

    fn call(&self, verb: &str, netns: &str) -> anyhow::Result<Outcome> {
        let (pod, uid) = (&self.pod.name, &self.pod.uid);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={uid}",
            self.id
        );
        let env = [
            ("CNI_COMMAND", verb),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", BIN_DIR),
            ("CNI_CONTAINERID", &self.id),
            ("CNI_NETNS", netns),
            ("CNI_ARGS", &args),
        ];
        let single_node = &self.fixture.single_node;
        let config = single_node
            .config()
            .context("the runtime's configuration")?;
        let output = single_node.call(&env, config.to_string().as_bytes())?;
        let document = match output.stdout.as_slice() {
            b"" => Ok(Value::Null),
            text => serde_json::from_slice::<Value>(text),
        };
        Ok(match (output.status.success(), document) {
            (true, Ok(document)) => Outcome::Done(document),
            (false, Ok(error)) if error["code"].is_u64() && error["msg"].is_string() => {
                Outcome::Refused {
                    code: error["code"].as_u64().unwrap_or_default(),
                    text: error.to_string(),
                }
            }
            _ => Outcome::Lost(format!(
                "{}: {}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )),
        })
    }
}
