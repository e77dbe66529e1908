//! A real API server without controllers and kubelets: it accepts or refuses objects.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{
    defects,
    render::{self, NAMESPACE},
    values,
};
use crate::{
    control_plane::{Components, ControlPlane, api_client::ApiClient, objects},
    node::{Node, network::NodeNetwork},
    pool,
    report::{Checked, Report},
    sh::{self, words},
    test_env::TestEnv,
};

/// The API server and its node.
pub(super) struct Server {
    pub(super) control: ControlPlane,
    pub(super) node: Node,
    pub(super) api: ApiClient,
    _network: NodeNetwork,
}

impl Server {
    pub(super) fn start(env: &TestEnv) -> anyhow::Result<Self> {
        let network = NodeNetwork::new()?;
        let node = Node::start(env, &network, 1, &[&env.bin])?;
        let control = ControlPlane::start(&node, Components::ApiServer)?;
        let api = ApiClient::start(&node, &control.admin())?;
        Ok(Self {
            control,
            node,
            api,
            _network: network,
        })
    }

    /// Runs Helm on the node.
    pub(super) fn helm(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut helm = self.node.command("helm");
        helm.env("KUBECONFIG", self.control.admin());
        // The home directory has Helm's cache and its logins.
        helm.env("HOME", &self.node.dir);
        sh::run(helm.args(args).args(["--namespace", NAMESPACE]))
    }

    /// Runs `helm install` or `helm upgrade` of a packed chart.
    pub(super) fn release(
        &self,
        verb: &str,
        name: &str,
        chart: &Path,
        more: &[&str],
    ) -> anyhow::Result<String> {
        let chart = chart.display().to_string();
        self.helm(&[&[verb, name, &chart], more].concat())
    }

    pub(super) fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.control.kubectl(&self.node, args)
    }

    /// Reads an object; `None` when it does not exist.
    pub(super) fn get(&self, identity: &str) -> anyhow::Result<Option<Value>> {
        let text = self.kubectl(&words!(
            "get {identity} --namespace {NAMESPACE} --ignore-not-found --output=json"
        ))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&text).context("kubectl printed no JSON")
    }

    /// Reads an object, which must exist.
    pub(super) fn existing(&self, identity: &str) -> anyhow::Result<Value> {
        self.get(identity)?
            .with_context(|| format!("there is no {identity}"))
    }

    /// Applies rendered text as Fleet and Argo do: server-side, with strict validation.
    pub(super) fn apply_on_server(&self, text: &str) -> anyhow::Result<String> {
        let mut command = self.node.command("kubectl");
        command.arg("--kubeconfig").arg(self.control.admin());
        command.args("apply --server-side --force-conflicts --field-manager=gitops".split(' '));
        command.args(["--validate=strict", "--filename", "-"]);
        sh::feed(&mut command, text.as_bytes())
    }

    fn delete(&self, text: &str) -> anyhow::Result<()> {
        let mut command = self.node.command("kubectl");
        command.arg("--kubeconfig").arg(self.control.admin());
        command.args(["delete", "--ignore-not-found", "--filename", "-"]);
        sh::feed(&mut command, text.as_bytes()).map(drop)
    }

    /// Applies all objects of all charts, with every switch.
    pub(super) fn apply_charts(&self, env: &TestEnv, report: &mut Report) -> Checked {
        report.check(
            "all objects can be applied server-side, with every switch",
            || {
                // One chart with each switch on top of all objects, the other with each switch alone: both have the same templates.
                self.chart(env, "rke2-multus", defects::EVERYTHING)?;
                self.chart(env, "k3s-multus", &[])
            },
        )?;
        report.check("an unknown field is refused", || {
            let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: default}\nupdateStrategy: {}\n";
            match self.apply_on_server(text) {
                Ok(_) => bail!("the field is accepted"),
                Err(error) => ensure!(error.to_string().contains("updateStrategy"), "{error:#}"),
            }
            Ok(())
        })
    }

    fn chart(&self, env: &TestEnv, name: &str, base: &[&str]) -> anyhow::Result<()> {
        let crd = format!("{name}-crd");
        let crd = render::text(env, &crd, &env.chart(&crd)?, &[])?;
        self.apply_on_server(&crd)?;
        self.control
            .apply(&self.node, &objects::monitoring_crds())?;
        self.kubectl(objects::WAIT_FOR_MONITORING_CRDS)?;
        let chart = env.chart(name)?;
        let switches: Vec<_> = values::switches().collect();
        ensure!(switches.len() > 10, "only {} times", switches.len());
        let texts = pool::all(&switches, |arguments| {
            let further: Vec<_> = arguments.iter().map(String::as_str).collect();
            render::text(env, name, &chart, &[base, &further].concat())
        })?;
        // Most objects are those of the switch before.
        let mut applied = BTreeSet::new();
        for (arguments, text) in switches.iter().zip(texts) {
            let objects = render::parse(&text)?.into_iter();
            let objects = objects.map(|object| object.to_string());
            let new: Vec<_> = objects
                .filter(|object| applied.insert(object.clone()))
                .collect();
            if !new.is_empty() {
                self.apply_on_server(&new.join("\n---\n"))
                    .with_context(|| arguments.join(" "))?;
            }
        }
        let text = render::text(env, name, &chart, defects::EVERYTHING)?;
        self.apply_on_server(&text)?;
        let versions = || {
            let objects = render::parse(&text)?;
            let found = objects.iter().map(|one| {
                Ok(self.existing(&render::identity(one))?["metadata"]["resourceVersion"].clone())
            });
            found.collect::<anyhow::Result<Vec<_>>>()
        };
        let before = versions()?;
        self.apply_on_server(&text)?;
        ensure!(before == versions()?, "applying again changes objects");
        self.delete(&text)?;
        self.delete(&crd)
    }
}
