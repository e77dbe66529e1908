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
    Abandoned, Added, DefaultRoute, Engine, Followed, Interfaces, LinkProbe, Patience, Request,
    Waiting,
};

/// One call of a plugin.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) plugin: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) stdin: Value,
}

impl Call {
    /// `COMMAND plugin ifname`.
    pub(super) fn text(&self) -> String {
        let ifname = self.env.get("CNI_IFNAME").map_or("", String::as_str);
        format!("{} {} {ifname}", self.env["CNI_COMMAND"], self.plugin)
            .trim_end()
            .to_owned()
    }
}

/// The default routes that a family was given at once.
pub(super) type SetRoutes = (Family, Vec<DefaultRoute>);

/// What happens when a plugin runs, besides being written down.
type Hook = Arc<dyn Fn(&Call) -> Result<(), CniError> + Send + Sync>;

#[derive(Default)]
pub(super) struct Plugins {
    missing: Mutex<BTreeSet<String>>,
    calls: Mutex<Vec<Call>>,
    hook: Mutex<Option<Hook>>,
    pub(super) links: Arc<Mutex<BTreeSet<String>>>,
    /// Default routes that were set, in order.
    pub(super) routes: Mutex<Vec<SetRoutes>>,
    /// How many can be set before one that cannot.
    no_route: Mutex<Option<usize>>,
    /// What ADD answers for an interface, besides its usual keys.
    pub(super) answers: Mutex<HashMap<String, Value>>,
}

impl Plugins {
    /// After so many default routes, one cannot be set.
    pub(super) fn no_route_after(&self, count: usize) {
        *self.no_route.lock().unwrap() = Some(count);
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
        let call = Call {
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
                let answers = self.answers.lock().unwrap();
                for (key, value) in answers
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
        let mut spared = self.no_route.lock().unwrap();
        match spared.take() {
            Some(0) => return Err(io::Error::from_raw_os_error(101)),
            Some(count) => *spared = Some(count - 1),
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

pub(super) struct World {
    pub(super) dir: tempfile::TempDir,
    root: Arc<Root>,
    pub(super) engine: Engine,
    pub(super) plugins: Arc<Plugins>,
    nads: Arc<Nads>,
    pub(super) config: Value,
    /// Seconds since the node was started.
    pub(super) uptime: Arc<AtomicU64>,
    given_up: Arc<Mutex<Vec<Abandoned>>>,
}

const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
pub(super) const PRIMARY: &str = "etc/cni/net.d/10-flannel.conflist";

impl World {
    /// Default network `cbr0` (flannel, portmap); definitions shop/a (macvlan), shop/b (bridge).
    pub(super) fn new() -> Self {
        Self::with(|root| root)
    }

    /// The same on a disk that is not the kernel's.
    pub(super) fn on_disk(disk: Arc<dyn Disk>) -> Self {
        Self::with(|root| root.with_disk(disk))
    }

    fn with(root: impl FnOnce(Root) -> Root) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(root(Root::open(dir.path()).unwrap()));
        let plugins = Arc::new(Plugins::default());
        let nads = Arc::new(Nads::default());
        let uptime = Arc::new(AtomicU64::new(1000));
        let given_up = Arc::default();
        let engine = engine(&root, &plugins, &nads, &uptime, &given_up);
        let world = Self {
            uptime,
            given_up,
            dir,
            root,
            engine,
            plugins,
            nads,
            config: json!({
                "cniVersion": "1.1.0",
                "name": "multus-cni-network",
                "type": "multus-shim",
                "clusterNetwork": format!("/{PRIMARY}"),
                "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]},
            }),
        };
        world.put("var/run/netns/x", "");
        world.put(BOOT_ID, "one\n");
        world.primary("1.0.0");
        world.nad("a", r#"{"cniVersion":"1.1.0","name":"neta","type":"macvlan","capabilities":{"ips":true,"mac":true,"portMappings":true}}"#);
        world.nad("b", r#"{"cniVersion":"0.3.1","type":"bridge"}"#);
        world
    }

    /// The node starts anew: its namespaces are gone, and the daemon knows nothing but files.
    pub(super) fn reboot(&mut self) {
        let before = fs::read_to_string(self.dir.path().join(BOOT_ID)).unwrap();
        self.put(BOOT_ID, &format!("after {before}"));
        // It may be the second time.
        let _ = fs::remove_file(self.dir.path().join("var/run/netns/x"));
        self.uptime.store(10, Ordering::SeqCst);
        self.restart();
    }

    /// The daemon starts anew.
    pub(super) fn restart(&mut self) {
        let Self {
            root,
            plugins,
            nads,
            uptime,
            given_up,
            ..
        } = self;
        self.engine = engine(root, plugins, nads, uptime, given_up);
    }

    /// Time passes.
    pub(super) fn pass(&self, minutes: u64) {
        self.uptime.fetch_add(minutes * 60, Ordering::SeqCst);
    }

    /// The networks that were given up since the last look: network, interface and addresses.
    pub(super) fn given_up(&self) -> Vec<String> {
        let taken = std::mem::take(&mut *self.given_up.lock().unwrap());
        let text = |one: Abandoned| format!("{} {} {}", one.network, one.ifname, one.ips.join(" "));
        taken.into_iter().map(text).collect()
    }

    pub(super) fn primary(&self, version: &str) {
        self.put(
            PRIMARY,
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
        };
        let key = (namespace.to_owned(), name.to_owned());
        self.nads.0.lock().unwrap().insert(key, Arc::new(nad));
    }

    pub(super) fn forget_nads(&self) {
        self.nads.0.lock().unwrap().clear();
    }

    pub(super) fn put(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn missing(&self, plugin: &str) {
        self.plugins
            .missing
            .lock()
            .unwrap()
            .insert(plugin.to_owned());
    }

    pub(super) fn all_there(&self) {
        self.plugins.missing.lock().unwrap().clear();
    }

    pub(super) fn link(&self, ifname: &str) {
        self.plugins.links.lock().unwrap().insert(ifname.to_owned());
    }

    pub(super) fn on_call(
        &self,
        hook: impl Fn(&Call) -> Result<(), CniError> + Send + Sync + 'static,
    ) {
        *self.plugins.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Makes calls fail whose text starts so.
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

    /// Keys that ADD answers for an interface.
    pub(super) fn answer(&self, ifname: &str, keys: Value) {
        let mut answers = self.plugins.answers.lock().unwrap();
        answers.insert(ifname.to_owned(), keys);
    }

    /// The default routes that were set.
    pub(super) fn set_routes(&self) -> Vec<SetRoutes> {
        self.plugins.routes.lock().unwrap().clone()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.plugins.calls.lock().unwrap())
    }

    /// The calls since the last look, as texts.
    pub(super) fn check_calls(&self, expected: &[&str]) {
        let got: Vec<_> = self.calls().iter().map(Call::text).collect();
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

    /// The pod runs, and asks for these networks by now.
    pub(super) fn follow(&self, id: &str, networks: &str) -> Result<Followed, CniError> {
        let (id, path) = (id.parse().unwrap(), || vec!["/opt/cni/bin".into()]);
        let followed = self
            .engine
            .follow(&id, &self.netconf(), &pod(networks), path);
        followed.map_err(CniError::from)
    }

    /// The sidecar.
    pub(super) fn state(&self, id: &str) -> Value {
        let path = format!("var/lib/cni/multus/.multus-rs/{id}.json");
        let bytes = fs::read(self.dir.path().join(path)).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// DEL with pod and definitions gone.
    pub(super) fn del(&self, id: &str) -> Result<(), CniError> {
        self.engine.del(&request(id), &self.netconf(), None)
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

    /// Names of all state, sidecar and result files.
    pub(super) fn left(&self) -> Vec<String> {
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
    given_up: &Arc<Mutex<Vec<Abandoned>>>,
) -> Engine {
    let (exec, links) = (Arc::clone(plugins), Arc::clone(plugins));
    let (uptime, given_up) = (Arc::clone(uptime), Arc::clone(given_up));
    Engine::new(exec, links, Arc::clone(root), Arc::clone(nads) as _)
        .with_patience(Patience {
            interval: Duration::ZERO,
            attempts: 2,
        })
        .with_clock(Box::new(move || {
            Duration::from_secs(uptime.load(Ordering::SeqCst))
        }))
        .with_witness(Box::new(move |_, abandoned| {
            given_up.lock().unwrap().push(abandoned.clone());
        }))
}

pub(super) fn request(id: &str) -> Request {
    Request {
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
        waiting: Waiting::default(),
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
