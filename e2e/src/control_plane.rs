//! The control plane of a run: etcd, kube-apiserver and, for a cluster, controller manager and scheduler.

pub(crate) mod api_client;
pub(crate) mod http_proxy;
pub(crate) mod objects;
pub(crate) mod pki;
pub(crate) mod tcp_proxy;
pub(crate) mod tls_server;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use anyhow::Context as _;
use serde_json::Value;

use crate::{
    control_plane::pki::Pki,
    node::{Node, Service},
    sh,
};

/// The components of a control plane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Components {
    /// etcd and kube-apiserver, with the beta API of mutating policies; no kubelet runs the pods.
    ApiServer,
    /// Also controller manager and scheduler.
    All,
    /// All, with alpha features of this Kubernetes release.
    AllWithAlpha,
}

impl Components {
    /// Returns the feature gates to switch on.
    pub(crate) fn features(self) -> &'static [&'static str] {
        match self {
            Self::AllWithAlpha => &["DRAExtendedResource"],
            Self::ApiServer => &["MutatingAdmissionPolicy"],
            Self::All => &[],
        }
    }

    /// Returns the argument that switches the feature gates on.
    fn gates(self) -> Option<String> {
        let on = self.features().iter().map(|name| format!("{name}=true"));
        let on: Vec<_> = on.collect();
        (!on.is_empty()).then(|| format!("--feature-gates={}", on.join(",")))
    }
}

/// Addresses of a control plane and its cluster.
pub(crate) struct Endpoints {
    /// The address at which other nodes reach the API server.
    pub(crate) api: String,
    /// Further names and addresses of the API server's certificate, as OpenSSL writes them.
    pub(crate) names: Vec<String>,
    /// The only address of etcd.
    pub(crate) etcd: String,
    /// Addresses of the pods of all nodes.
    pub(crate) pods: String,
}

impl Endpoints {
    /// Returns those of a node that the others reach by its `eth0`.
    pub(crate) fn of(node: &Node) -> Self {
        Self {
            api: node.address(),
            names: Vec::new(),
            etcd: "127.0.0.1".to_owned(),
            pods: PODS.to_owned(),
        }
    }
}

/// A control plane on one node.
pub(crate) struct ControlPlane {
    pub(crate) pki: Pki,
    pub(crate) components: Components,
    server: Mutex<Service>,
    etcd: Mutex<Service>,
    endpoints: Endpoints,
    arguments: Vec<String>,
    dir: PathBuf,
}

const ADMIN: &str = "admin.conf";
/// The directory of etcd's data.
const DATA: &str = "etcd";
/// Addresses of services; the first is the API server's.
const SERVICES: &str = "10.96.0.0/16";
/// Addresses of the pods of all nodes.
pub(crate) const PODS: &str = "10.244.0.0/16";

impl ControlPlane {
    /// Starts the components on a node and waits until the API server is ready.
    pub(crate) fn start(node: &Node, components: Components) -> anyhow::Result<Self> {
        Self::start_with(node, components, Vec::new())
    }

    /// Like [`ControlPlane::start`], with further arguments of the API server.
    pub(crate) fn start_with(
        node: &Node,
        components: Components,
        arguments: Vec<String>,
    ) -> anyhow::Result<Self> {
        Self::start_at(node, components, arguments, Endpoints::of(node))
    }

    /// Like [`ControlPlane::start_with`], at these addresses.
    pub(crate) fn start_at(
        node: &Node,
        components: Components,
        arguments: Vec<String>,
        endpoints: Endpoints,
    ) -> anyhow::Result<Self> {
        let dir = node.dir.join("control");
        let fixed = format!(
            "DNS:kubernetes.default.svc,IP:127.0.0.1,IP:{},IP:10.96.0.1",
            endpoints.api
        );
        let names = [&[fixed], &endpoints.names[..]].concat().join(",");
        let pki = Pki::new(dir.join("pki"), &names)?;
        fs::write(dir.join("tokens.csv"), tokens()?)?;
        for name in ["admin", "controllers", "scheduler"] {
            let path = dir.join(format!("{name}.conf"));
            pki.kubeconfig(&path, "https://127.0.0.1:6443", name)?;
        }
        let etcd = etcd(node, &dir, &endpoints)?;
        let server = api_server(node, &pki, &dir, components, (&endpoints, &arguments))?;
        let control = Self {
            pki,
            components,
            server: Mutex::new(server),
            etcd: Mutex::new(etcd),
            endpoints,
            arguments,
            dir,
        };
        control.wait(node)?;
        if components != Components::ApiServer {
            control.controllers(node)?;
        }
        Ok(control)
    }

    /// Returns the addresses of the cluster.
    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Returns the administrator's kubeconfig, for programs on the node.
    pub(crate) fn admin(&self) -> PathBuf {
        self.dir.join(ADMIN)
    }

    /// Returns the process IDs of API server and etcd on the node.
    pub(crate) fn processes(&self) -> [u32; 2] {
        [&self.server, &self.etcd]
            .map(|service| service.lock().unwrap_or_else(PoisonError::into_inner).pid)
    }

    /// Kills the API server; etcd keeps its data.
    pub(crate) fn stop_server(&self, node: &Node) -> anyhow::Result<()> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        node.end(&server, "KILL")
    }

    /// Starts the API server again.
    pub(crate) fn start_server(&self, node: &Node, components: Components) -> anyhow::Result<()> {
        let with = (&self.endpoints, &self.arguments[..]);
        let server = api_server(node, &self.pki, &self.dir, components, with)?;
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
        self.wait(node)
    }

    /// Copies etcd's data, while neither it nor the API server runs.
    pub(crate) fn back_up(&self, node: &Node) -> anyhow::Result<()> {
        self.with_data(node, |data, backup| {
            sh::run(Command::new("cp").arg("-a").args([data, backup])).map(drop)
        })
    }

    /// Puts what [`ControlPlane::back_up`] has copied in place of etcd's data.
    pub(crate) fn restore(&self, node: &Node) -> anyhow::Result<()> {
        self.with_data(node, |data, backup| {
            fs::remove_dir_all(data)?;
            Ok(fs::rename(backup, data)?)
        })
    }

    /// Passes etcd's data and the place of its backup, while neither it nor the API server runs.
    fn with_data(
        &self,
        node: &Node,
        change: impl FnOnce(&Path, &Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.stop_server(node)?;
        let mut running = self.etcd.lock().unwrap_or_else(PoisonError::into_inner);
        node.end(&running, "KILL")?;
        change(&self.dir.join(DATA), &self.dir.join("etcd.backup"))?;
        *running = etcd(node, &self.dir, &self.endpoints)?;
        drop(running);
        self.start_server(node, self.components)
    }

    /// Restarts the API server with a certificate of another authority.
    pub(crate) fn replace_authority(
        &self,
        node: &Node,
        components: Components,
    ) -> anyhow::Result<()> {
        self.stop_server(node)?;
        self.pki.renew("multus-e2e-next")?;
        self.start_server(node, components)
    }

    /// Runs kubectl as the administrator and returns its stdout.
    pub(crate) fn kubectl(&self, node: &Node, args: &[&str]) -> anyhow::Result<String> {
        sh::run(
            node.command("kubectl")
                .arg("--kubeconfig")
                .arg(self.admin())
                .args(args),
        )
    }

    pub(crate) fn apply(&self, node: &Node, objects: &[Value]) -> anyhow::Result<()> {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.apply_text(node, &list.to_string())
    }

    /// Applies documents of a manifest.
    pub(crate) fn apply_text(&self, node: &Node, documents: &str) -> anyhow::Result<()> {
        let mut command = node.command("kubectl");
        command
            .arg("--kubeconfig")
            .arg(self.admin())
            .args(["apply", "--filename", "-"]);
        sh::feed(&mut command, documents.as_bytes()).map(drop)
    }

    /// Runs `kubectl get` with these arguments; returns its answer as JSON.
    pub(crate) fn get(&self, node: &Node, args: &[&str]) -> anyhow::Result<Value> {
        let text = self.kubectl(node, &[&["get", "--output=json"], args].concat())?;
        serde_json::from_str(&text).context("kubectl printed no JSON")
    }

    fn wait(&self, node: &Node) -> anyhow::Result<()> {
        // One that is killed while many nodes use it makes its roles in a minute or more.
        sh::until(180, "the API server is ready", || {
            self.kubectl(node, &["get", "--raw=/readyz", "--request-timeout=5s"])
        })
        .map(drop)
    }

    /// Starts the scheduler, which a control plane of only the API server lacks.
    pub(crate) fn start_scheduler(&self, node: &Node) -> anyhow::Result<()> {
        let service = node.serve("scheduler", "kube-scheduler", |command| {
            command
                .arg("--kubeconfig")
                .arg(self.dir.join("scheduler.conf"))
                .arg("--leader-elect=false")
                .args(self.components.gates())
        });
        service.map(drop)
    }

    fn controllers(&self, node: &Node) -> anyhow::Result<()> {
        node.serve("controllers", "kube-controller-manager", |command| {
            command
                .arg("--kubeconfig")
                .arg(self.dir.join("controllers.conf"))
                .arg("--service-account-private-key-file")
                .arg(self.pki.file("sa.key"))
                .arg("--root-ca-file")
                .arg(self.pki.file("ca.crt"))
                .arg("--cluster-signing-cert-file")
                .arg(self.pki.file("ca.crt"))
                .arg("--cluster-signing-key-file")
                .arg(self.pki.file("ca.key"))
                .args(
                    "--use-service-account-credentials --leader-elect=false --allocate-node-cidrs"
                        .split(' '),
                )
                .arg(format!("--cluster-cidr={}", self.endpoints.pods))
        })?;
        self.start_scheduler(node)?;
        sh::until(60, "pods can be created", || {
            self.get(node, &["serviceaccount", "default"])
        })
        .map(drop)
    }
}

fn etcd(node: &Node, dir: &Path, endpoints: &Endpoints) -> anyhow::Result<Service> {
    node.serve("etcd", "etcd", |command| {
        command
            .arg("--unsafe-no-fsync")
            .arg("--data-dir")
            .arg(dir.join(DATA))
            .args(etcd_urls(&endpoints.etcd))
    })
}

fn api_server(
    node: &Node,
    pki: &Pki,
    dir: &Path,
    components: Components,
    (endpoints, arguments): (&Endpoints, &[String]),
) -> anyhow::Result<Service> {
    node.serve("apiserver", "kube-apiserver", |command| {
        command
            .arg(format!("--etcd-servers=http://{}:2379", endpoints.etcd))
            .args(["--secure-port=6443", "--allow-privileged"])
            .arg(format!("--advertise-address={}", endpoints.api))
            .arg(format!("--service-cluster-ip-range={SERVICES}"))
            .args([
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
            ])
            .args([
                "--service-account-issuer=https://kubernetes.default.svc",
                "--kubelet-preferred-address-types=InternalIP",
            ])
            .arg("--token-auth-file")
            .arg(dir.join("tokens.csv"))
            .arg("--client-ca-file")
            .arg(pki.file("ca.crt"))
            .arg("--tls-cert-file")
            .arg(pki.file("apiserver.crt"))
            .arg("--tls-private-key-file")
            .arg(pki.file("apiserver.key"))
            .arg("--service-account-key-file")
            .arg(pki.file("sa.key"))
            .arg("--service-account-signing-key-file")
            .arg(pki.file("sa.key"))
            .arg("--kubelet-client-certificate")
            .arg(pki.file("client.crt"))
            .arg("--kubelet-client-key")
            .arg(pki.file("client.key"))
            .args(components.gates())
            .args(arguments);
        if components == Components::ApiServer {
            // Without the controller manager there are no default service accounts, which the admission plugin would require.
            command.args([
                "--disable-admission-plugins=ServiceAccount",
                "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
            ]);
        }
        command
    })
}

/// Returns the arguments that make etcd listen at one address, for clients and for its peers.
fn etcd_urls(address: &str) -> Vec<String> {
    let peers = format!("http://{address}:2380");
    let clients = format!("http://{address}:2379");
    vec![
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
    ]
}

/// Returns the file of static tokens; each token equals the name of its user.
fn tokens() -> anyhow::Result<String> {
    let mut csv = String::from(
        "admin,admin,admin,system:masters\n\
         controllers,system:kube-controller-manager,controllers,\n\
         scheduler,system:kube-scheduler,scheduler,\n\
         proxy,system:kube-proxy,proxy,\n",
    );
    for number in 1..=9 {
        writeln!(
            csv,
            "node{number},system:node:n{number},n{number},system:nodes"
        )?;
    }
    Ok(csv)
}
