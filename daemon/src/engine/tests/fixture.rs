//! A node in a temporary directory, with recording plugins and a handful of definitions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cni::exec::{Exec, ExecError};
use cni::types::CniError;
use node::root::{Disk, Root};
use plan::netconf::Netconf;
use plan::{Definitions, Family, NETWORKS_ANNOTATION, Nad, PodView};
use serde_json::{Map, Value, json};

use crate::engine::{
    Abandoned, Added, Cancellation, ContainerRequest, DefaultRoute, Engine, Interfaces, LinkProbe,
    ReadinessPolling, Reconciled,
};

use crate::statuses::{PodStatus, Statuses};

#[derive(Debug, Clone)]
pub(super) struct PluginCall {
    pub(super) plugin: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) stdin: Value,
    /// Its time limit.
    pub(super) time: Duration,
}

impl PluginCall {
    /// `COMMAND plugin ifname`.
    pub(super) fn text(&self) -> String {
        let ifname = self.env.get("CNI_IFNAME").map_or("", String::as_str);
        format!("{} {} {ifname}", self.env["CNI_COMMAND"], self.plugin)
            .trim_end()
            .to_owned()
    }
}

/// The default routes of one call that set a family's.
pub(super) type SetRoutes = (Family, Vec<DefaultRoute>);

/// Runs at each call of a plugin, after the call was recorded.
type Hook = Arc<dyn Fn(&PluginCall) -> Result<(), ExecError> + Send + Sync>;

#[derive(Default)]
pub(super) struct Plugins {
    missing: Mutex<BTreeSet<String>>,
    calls: Mutex<Vec<PluginCall>>,
    hook: Mutex<Option<Hook>>,
    pub(super) links: Arc<Mutex<BTreeSet<String>>>,
    /// Default routes that were set, in order.
    pub(super) routes: Mutex<Vec<SetRoutes>>,
    /// The number of calls that succeed before setting default routes fails once.
    fail_route: Mutex<Option<usize>>,
    /// Keys that ADD adds to its result, by interface.
    result_keys: Mutex<HashMap<String, Value>>,
}

impl Plugins {
    /// Makes setting default routes fail once, after `count` calls.
    pub(super) fn fail_route_after(&self, count: usize) {
        *self.fail_route.lock().unwrap() = Some(count);
    }
}

impl Exec for Plugins {
    fn find(&self, plugin: &str, dirs: &[PathBuf]) -> Result<PathBuf, ExecError> {
        if self.missing.lock().unwrap().contains(plugin) {
            return Err(ExecError::NotFound {
                plugin: plugin.to_owned(),
                dirs: dirs.to_vec(),
            });
        }
        Ok(dirs[0].join(plugin))
    }

    fn run(
        &self,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        self.run_within(Duration::MAX, path, env, stdin)
    }

    fn run_within(
        &self,
        time: Duration,
        path: &Path,
        env: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, ExecError> {
        let call = PluginCall {
            time,
            plugin: path.file_name().unwrap().to_str().unwrap().to_owned(),
            env: env.iter().cloned().collect(),
            stdin: serde_json::from_slice(stdin).unwrap(),
        };
        self.calls.lock().unwrap().push(call.clone());
        let hook = self.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            hook(&call)?;
        }
        let ifname = call.env.get("CNI_IFNAME").cloned().unwrap_or_default();
        match call.env["CNI_COMMAND"].as_str() {
            "ADD" => {
                let mut result = json!({
                    "cniVersion": call.stdin["cniVersion"],
                    "interfaces": [{"name": ifname, "sandbox": call.env["CNI_NETNS"]}],
                    "ips": [{"interface": 0, "address": "10.0.0.9/24"}],
                });
                let keys = self.result_keys.lock().unwrap();
                for (key, value) in keys
                    .get(&ifname)
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                {
                    result[key] = value.clone();
                }
                Ok(result.to_string().into_bytes())
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// The interfaces of every namespace.
struct Links(Arc<Mutex<BTreeSet<String>>>);

impl Interfaces for Links {
    fn contains(&self, ifname: &str) -> io::Result<bool> {
        Ok(self.0.lock().unwrap().contains(ifname))
    }
}

impl LinkProbe for Plugins {
    fn interfaces(&self, _netns: &str) -> io::Result<Box<dyn Interfaces>> {
        Ok(Box::new(Links(Arc::clone(&self.links))))
    }

    fn set_default_routes(
        &self,
        _netns: &str,
        family: Family,
        routes: &[DefaultRoute],
    ) -> io::Result<()> {
        let mut remaining = self.fail_route.lock().unwrap();
        match remaining.take() {
            Some(0) => return Err(io::Error::from_raw_os_error(101)),
            Some(count) => *remaining = Some(count - 1),
            None => {}
        }
        let mut set = self.routes.lock().unwrap();
        set.push((family, routes.to_vec()));
        Ok(())
    }
}

#[derive(Default)]
struct Nads(Mutex<HashMap<(String, String), Arc<Nad>>>);

impl Definitions for Nads {
    fn nad(&self, namespace: &str, name: &str) -> Option<Arc<Nad>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.lock().unwrap().get(&key).cloned()
    }
}

pub(super) struct Fixture {
    pub(super) dir: tempfile::TempDir,
    root: Arc<Root>,
    pub(super) engine: Engine,
    pub(super) plugins: Arc<Plugins>,
    nads: Arc<Nads>,
    pub(super) config: Value,
    /// Seconds since the node was started.
    pub(super) uptime: Arc<AtomicU64>,
    abandoned: Arc<Mutex<Vec<Abandoned>>>,
}

const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
pub(super) const DEFAULT_NETWORK: &str = "etc/cni/net.d/10-flannel.conflist";

impl Fixture {
    /// A node with the default network `cbr0` (flannel, portmap) and the definitions shop/a (macvlan) and shop/b (bridge).
    pub(super) fn new() -> Self {
        Self::with(|root| root)
    }

    /// The same node on a disk that the test controls.
    pub(super) fn on_disk(disk: Arc<dyn Disk>) -> Self {
        Self::with(|root| root.with_disk(disk))
    }

    fn with(root: impl FnOnce(Root) -> Root) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(root(Root::open(dir.path()).unwrap()));
        let plugins = Arc::new(Plugins::default());
        let nads = Arc::new(Nads::default());
        let uptime = Arc::new(AtomicU64::new(1000));
        let abandoned = Arc::default();
        let engine = engine(&root, &plugins, &nads, &uptime, &abandoned);
        let fixture = Self {
            uptime,
            abandoned,
            dir,
            root,
            engine,
            plugins,
            nads,
            config: json!({
                "cniVersion": "1.1.0",
                "name": "multus-cni-network",
                "type": "multus-shim",
                "clusterNetwork": format!("/{DEFAULT_NETWORK}"),
                "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]},
            }),
        };
        fixture.put("var/run/netns/x", "");
        fixture.put(BOOT_ID, "one\n");
        fixture.default_network("1.0.0");
        fixture.nad("a", r#"{"cniVersion":"1.1.0","name":"neta","type":"macvlan","capabilities":{"ips":true,"mac":true,"portMappings":true}}"#);
        fixture.nad("b", r#"{"cniVersion":"0.3.1","type":"bridge"}"#);
        fixture
    }

    /// Reboots the node: its namespaces are deleted, and the daemon knows only its files.
    pub(super) fn reboot(&mut self) {
        let before = fs::read_to_string(self.dir.path().join(BOOT_ID)).unwrap();
        self.put(BOOT_ID, &format!("after {before}"));
        // A second reboot finds no namespace.
        let _ = fs::remove_file(self.dir.path().join("var/run/netns/x"));
        self.uptime.store(10, Ordering::SeqCst);
        self.restart();
    }

    /// Restarts the daemon.
    pub(super) fn restart(&mut self) {
        self.engine = self.new_engine();
    }

    fn new_engine(&self) -> Engine {
        let Self {
            root,
            plugins,
            nads,
            uptime,
            abandoned,
            ..
        } = self;
        engine(root, plugins, nads, uptime, abandoned)
    }

    /// Advances the clock.
    pub(super) fn advance_minutes(&self, minutes: u64) {
        self.uptime.fetch_add(minutes * 60, Ordering::SeqCst);
    }

    /// Takes the networks that were abandoned since the last call: network, interface and addresses.
    pub(super) fn abandoned(&self) -> Vec<String> {
        let taken = std::mem::take(&mut *self.abandoned.lock().unwrap());
        let text = |one: Abandoned| format!("{} {} {}", one.network, one.ifname, one.ips.join(" "));
        taken.into_iter().map(text).collect()
    }

    pub(super) fn default_network(&self, version: &str) {
        self.put(
            DEFAULT_NETWORK,
            &json!({"cniVersion":version,"name":"cbr0","plugins":[
                {"type":"flannel"},
                {"type":"portmap","capabilities":{"portMappings":true}},
            ]})
            .to_string(),
        );
    }

    pub(super) fn nad(&self, name: &str, config: &str) {
        self.nad_of("shop", name, config);
    }

    pub(super) fn nad_of(&self, namespace: &str, name: &str, config: &str) {
        let nad = Nad {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            config: config.to_owned(),
            resource_name: None,
            node_selector: None,
        };
        let key = (namespace.to_owned(), name.to_owned());
        self.nads.0.lock().unwrap().insert(key, Arc::new(nad));
    }

    pub(super) fn delete_nads(&self) {
        self.nads.0.lock().unwrap().clear();
    }

    pub(super) fn put(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn uninstall(&self, plugin: &str) {
        self.plugins
            .missing
            .lock()
            .unwrap()
            .insert(plugin.to_owned());
    }

    pub(super) fn install_all(&self) {
        self.plugins.missing.lock().unwrap().clear();
    }

    pub(super) fn link(&self, ifname: &str) {
        self.plugins.links.lock().unwrap().insert(ifname.to_owned());
    }

    pub(super) fn on_call(
        &self,
        hook: impl Fn(&PluginCall) -> Result<(), CniError> + Send + Sync + 'static,
    ) {
        self.on_run(move |call| hook(call).map_err(ExecError::from));
    }

    /// The same with errors of running the plugin.
    pub(super) fn on_run(
        &self,
        hook: impl Fn(&PluginCall) -> Result<(), ExecError> + Send + Sync + 'static,
    ) {
        *self.plugins.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Makes calls fail whose text starts with one of these prefixes.
    pub(super) fn fail(&self, prefixes: &'static [&'static str]) {
        self.on_call(move |call| {
            if prefixes
                .iter()
                .any(|prefix| call.text().starts_with(prefix))
            {
                Err(CniError::new(123, "no more addresses").with_details("range full"))
            } else {
                Ok(())
            }
        });
    }

    /// Adds keys to the result of ADD for an interface.
    pub(super) fn add_to_result(&self, ifname: &str, keys: Value) {
        let mut result_keys = self.plugins.result_keys.lock().unwrap();
        result_keys.insert(ifname.to_owned(), keys);
    }

    /// The default routes that were set.
    pub(super) fn set_routes(&self) -> Vec<SetRoutes> {
        self.plugins.routes.lock().unwrap().clone()
    }

    pub(super) fn calls(&self) -> Vec<PluginCall> {
        std::mem::take(&mut *self.plugins.calls.lock().unwrap())
    }

    /// Checks the texts of the calls since they were last taken.
    pub(super) fn check_calls(&self, expected: &[&str]) {
        let got: Vec<_> = self.calls().iter().map(PluginCall::text).collect();
        assert_eq!(got, expected);
    }

    pub(super) fn netconf(&self) -> Netconf {
        Netconf::effective(self.config.to_string().as_bytes(), &Map::new(), true).unwrap()
    }

    pub(super) fn add(&self, id: &str, networks: &str) -> Result<Added, CniError> {
        self.engine
            .add(&request(id), &self.netconf(), &pod(networks))
            .map_err(CniError::from)
    }

    /// Reconciles the running pod with an annotation that requests these networks.
    pub(super) fn reconcile(&self, id: &str, networks: &str) -> Result<Reconciled, CniError> {
        let (id, path) = (id.parse().unwrap(), || vec!["/opt/cni/bin".into()]);
        let reconciled = self
            .engine
            .reconcile(&id, &self.netconf(), &pod(networks), path);
        reconciled.map_err(CniError::from)
    }

    /// Restarts the daemon with statuses that nothing writes.
    pub(super) fn with_statuses(&mut self) -> Arc<Statuses> {
        let statuses = Arc::<Statuses>::default();
        self.engine = self.new_engine().with_statuses(Arc::clone(&statuses));
        statuses
    }

    /// Records that the container's status was written.
    pub(super) fn status_written(&self, id: &str) -> Result<(), CniError> {
        let (id, dir) = (id.parse().unwrap(), self.netconf().cni_dir);
        let status = PodStatus::new(&pod(""), id, dir, String::new());
        self.engine.status_written(&status)
    }

    /// Reads the sidecar of a container.
    pub(super) fn state(&self, id: &str) -> Value {
        let path = format!("var/lib/cni/multus/.multus-rs/{id}.json");
        let bytes = fs::read(self.dir.path().join(path)).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Runs DEL as after the deletion of pod and definitions.
    pub(super) fn del(&self, id: &str) -> Result<(), CniError> {
        self.engine
            .del(&request(id), &self.netconf(), None)
            .map_err(CniError::from)
    }

    pub(super) fn gc(&mut self, valid: Value) -> Result<(), CniError> {
        self.config["cni.dev/valid-attachments"] = valid;
        let path = [PathBuf::from("/opt/cni/bin")];
        self.engine.gc(&path, &self.netconf())
    }

    pub(super) fn status(&self) -> Result<(), CniError> {
        let path = [PathBuf::from("/opt/cni/bin")];
        self.engine.status(&path, &self.netconf())
    }

    /// Returns the names of all state, sidecar and result files.
    pub(super) fn files(&self) -> Vec<String> {
        let base = self.dir.path().join("var/lib/cni/multus");
        let mut names = Vec::new();
        for dir in ["", ".multus-rs", "results"] {
            for entry in fs::read_dir(base.join(dir)).into_iter().flatten() {
                let entry = entry.unwrap();
                let is_lock = entry.path().extension().is_some_and(|it| it == "locks");
                if entry.file_type().unwrap().is_file() && !is_lock {
                    let name = entry.file_name().into_string().unwrap();
                    names.push(format!("{dir}/{name}"));
                }
            }
        }
        names.sort();
        names
    }
}

fn engine(
    root: &Arc<Root>,
    plugins: &Arc<Plugins>,
    nads: &Arc<Nads>,
    uptime: &Arc<AtomicU64>,
    abandoned: &Arc<Mutex<Vec<Abandoned>>>,
) -> Engine {
    let (exec, links) = (Arc::clone(plugins), Arc::clone(plugins));
    let (uptime, abandoned) = (Arc::clone(uptime), Arc::clone(abandoned));
    Engine::new(exec, links, Arc::clone(root), Arc::clone(nads) as _)
        .with_readiness_polling(ReadinessPolling {
            interval: Duration::ZERO,
            attempts: 2,
        })
        .with_clock(Box::new(move || {
            Duration::from_secs(uptime.load(Ordering::SeqCst))
        }))
        .with_on_abandoned(Box::new(move |_, network| {
            abandoned.lock().unwrap().push(network.clone());
        }))
}

pub(super) fn request(id: &str) -> ContainerRequest {
    ContainerRequest {
        container_id: id.parse().unwrap(),
        netns: Some("/var/run/netns/x".to_owned()),
        ifname: "eth0".parse().unwrap(),
        args: cni::args::parse(&format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID=5b0c;VENDOR=x=y;IP=10.9.9.9"
        )),
        path: vec![
            "/opt/cni/bin".into(),
            "/var/lib/multus/bin".into(),
            "/usr/lib/cni".into(),
        ],
        cancellation: Cancellation::default(),
        replayed: false,
    }
}

pub(super) fn pod(networks: &str) -> PodView {
    let mut pod = PodView {
        namespace: "shop".to_owned(),
        name: "cart-0".to_owned(),
        uid: "5b0c".to_owned(),
        ..PodView::default()
    };
    if !networks.is_empty() {
        pod.annotations
            .insert(NETWORKS_ANNOTATION.to_owned(), networks.to_owned());
    }
    pod
}
