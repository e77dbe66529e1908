//! The DHCP service of this daemon: serves our plugin `dhcp` and holds the leases of the node's pods.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use cni::env::IfName;
use dhcp::{
    service::{Event, Host, Options, Service},
    store::Store,
};
use node::root::{Directory, Root, proc_path};
use tracing::{debug, info, warn};

use crate::{
    cluster::Cluster,
    host::{
        dhcp_server,
        exec::{RuntimeExec, open_netns},
        node_service::{DIR_MODE, NodeService, Turn, remove_socket},
    },
    metrics::Metrics,
    state::{self, PodRef},
};

/// How many characters of the cause an event has.
const CAUSE_LENGTH: usize = 300;

/// The paths of the service on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The socket that our plugin connects to.
    pub socket: PathBuf,
    /// The socket of `dhcp daemon`, which an earlier daemon may have started from our plugin.
    pub former_socket: PathBuf,
    /// The directory of the leases, which survives a reboot.
    pub leases: PathBuf,
}

impl Paths {
    /// Returns the paths with this directory of state.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            socket: dhcp::wire::SOCKET.into(),
            former_socket: dhcp::wire::REFERENCE_SOCKET.into(),
            leases: state::own_dir(state_dir).join("dhcp"),
        }
    }

    /// Removes what nothing needs while no daemon serves: the socket, and the directory of the leases when there are none. Leases of
    /// running pods stay.
    pub fn remove(&self, seen: &Root, root: &Root) {
        // Best effort: what stays is refused connections and an empty directory.
        let _ = remove_socket(seen, &self.socket);
        let _ = root.remove_dir(&self.leases);
    }
}

/// The parts of the daemon that the service needs.
#[derive(Clone)]
pub struct Parts {
    /// The node.
    pub root: Arc<Root>,
    /// The runtime, in whose file tree the paths of network namespaces are.
    pub exec: Arc<RuntimeExec>,
    /// Gets the number of leases, and what happens to them.
    pub metrics: Arc<Metrics>,
    /// The directory of the state, which says whose container a lease is for.
    pub cni_dir: PathBuf,
    /// Gets events about pods, once there is access to it.
    pub cluster: Arc<OnceLock<Cluster>>,
}

/// Takes the socket and starts the thread, which serves as soon as no other daemon does. `seen` is the file tree of plugins.
pub fn start(parts: Parts, paths: &Paths, seen: &Root) -> anyhow::Result<NodeService> {
    let former_dir = seen.parent(&paths.former_socket).ok();
    let leases = parts.root.make_directory(&paths.leases, DIR_MODE)?;
    let former = former_dir.map(|(dir, name)| Former {
        socket: proc_path(&dir).join(name),
        _dir: dir,
    });
    NodeService::start("dhcp", seen, &paths.socket, leases, move |turn| {
        serve(parts, &turn, former)
    })
}

/// The socket of the process in which an earlier daemon kept our plugin, by a path of this process.
struct Former {
    socket: PathBuf,
    _dir: Directory,
}

/// Serves until the service is stopped.
fn serve(parts: Parts, turn: &Turn, former: Option<Former>) -> io::Result<()> {
    let store = Store::new(proc_path(&turn.dir));
    if let Some(former) = former {
        take_over(&store, &former);
    }
    let metrics = Arc::clone(&parts.metrics);
    let service = Service::resume(Options::default(), store, NodeHost(parts))?;
    info!("the DHCP service holds the leases of this node");
    let outcome = service.run(&turn.listener, &turn.stopped);
    metrics.set_dhcp_leases(0);
    outcome
}

/// Takes over the leases of the process in which an earlier daemon kept our plugin. The reference's plugin has no such leases on disk, and
/// its process goes on.
fn take_over(store: &Store, former: &Former) {
    dhcp_server::end_own();
    if UnixStream::connect(&former.socket).is_ok() {
        return;
    }
    match store.take_over(&Store::from_socket(&former.socket)) {
        Ok(0) => {}
        Ok(leases) => info!(leases, "took over the leases of the former DHCP service"),
        Err(error) => warn!(%error, "cannot take over all leases of the former DHCP service"),
    }
}

/// This daemon as the host of the service.
struct NodeHost(Parts);

impl Host for NodeHost {
    fn open_namespace(&self, path: &str) -> io::Result<OwnedFd> {
        open_netns(&self.0.root, &self.0.exec.context(), path)
    }

    fn record(&self, client: &str, event: &Event<'_>) {
        match event {
            Event::Searching => debug!(client, "requests a DHCP lease"),
            Event::Granted(address) => info!(client, %address, "a DHCP lease was granted"),
            Event::Resumed(address) => debug!(client, %address, "a DHCP lease is held again"),
            Event::Renewed(address) => debug!(client, %address, "a DHCP lease was renewed"),
            Event::Released(address) => info!(client, %address, "a DHCP lease was released"),
            Event::Lost(reason) => {
                warn!(client, %reason, "a DHCP lease is lost: its address is removed from the interface until a server grants it again");
            }
            Event::Regained(address) => {
                info!(client, %address, "a lost DHCP lease was granted again");
            }
            Event::Orphaned(address) => {
                info!(client, %address, "the interface of a DHCP lease no longer exists");
            }
            Event::Failed(reason) => warn!(client, %reason, "a DHCP lease has failed"),
            Event::Trouble(reason) => warn!(client, reason, "a DHCP lease has a problem"),
        }
        self.report(client, event);
        let counted = match event {
            Event::Granted(_) | Event::Regained(_) => "granted",
            Event::Renewed(_) => "renewed",
            Event::Released(_) => "released",
            Event::Orphaned(_) => "orphaned",
            Event::Lost(_) | Event::Failed(_) => "failed",
            Event::Searching | Event::Resumed(_) | Event::Trouble(_) => return,
        };
        self.0.metrics.dhcp_event(counted);
    }

    fn set_held(&self, leases: usize) {
        self.0.metrics.set_dhcp_leases(leases);
    }
}

impl NodeHost {
    /// Writes an event about the pod of a lease: nothing else tells its owner that the interface has no address.
    fn report(&self, client: &str, event: &Event<'_>) {
        let Some((is_warning, reason, message)) = pod_event(client, event) else {
            return;
        };
        if let (Some(cluster), Some(pod)) = (self.0.cluster.get(), self.pod(client)) {
            cluster.event_about(&pod, is_warning, reason, message);
        }
    }

    /// Returns the pod of a lease, if the container was attached by this node's daemon.
    fn pod(&self, client: &str) -> Option<PodRef> {
        let (container, _) = client.split_once('/')?;
        let ifname = IfName::parse("eth0").ok()?;
        let store = state::Store::new(Arc::clone(&self.0.root), &self.0.cni_dir);
        let state = store.load(&container.parse().ok()?, &ifname).ok()??;
        (!state.pod.name.is_empty()).then_some(state.pod)
    }
}

/// Returns what the owner of a pod needs to know of its lease: whether it is a warning, its reason and its message.
fn pod_event(client: &str, event: &Event<'_>) -> Option<(bool, &'static str, String)> {
    let (_, ifname) = client.rsplit_once('/')?;
    match event {
        Event::Lost(failure) => {
            // A refusal has the server's words, however many.
            let cause: String = failure.to_string().chars().take(CAUSE_LENGTH).collect();
            let message =
                format!("{ifname} has no address until a DHCP server grants it again: {cause}");
            Some((true, "DhcpLeaseLost", message))
        }
        Event::Regained(address) => {
            let message = format!("{ifname} has its address {address} again");
            Some((false, "DhcpLeaseRegained", message))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        net::Shutdown,
        os::unix::{fs::MetadataExt as _, net::UnixListener},
    };

    use dhcp::{
        Failure, Kind as MessageKind, Message,
        options::code,
        wire::{Answer, Ask, Verb},
    };
    use rustix::fs::{FlockOperation, flock};
    use serde_json::json;

    use super::*;
    use crate::host::exec::ExecContext;

    struct Fixture {
        dir: tempfile::TempDir,
        paths: Paths,
        root: Arc<Root>,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let paths = Paths {
                socket: dir.path().join("run/multus-dhcp.sock"),
                former_socket: dir.path().join("run/dhcp.sock"),
                leases: dir.path().join("state/dhcp"),
            };
            Self {
                dir,
                paths,
                root: Arc::new(Root::open("/").unwrap()),
            }
        }

        fn start(&self) -> anyhow::Result<NodeService> {
            self.start_with(Arc::default())
        }

        fn start_with(&self, metrics: Arc<Metrics>) -> anyhow::Result<NodeService> {
            start(self.parts(metrics), &self.paths, &self.root)
        }

        fn parts(&self, metrics: Arc<Metrics>) -> Parts {
            let exec = RuntimeExec::new(Arc::clone(&self.root), ExecContext::default());
            Parts {
                root: Arc::clone(&self.root),
                exec: Arc::new(exec),
                metrics,
                cni_dir: self.dir.path().join("state"),
                cluster: Arc::default(),
            }
        }

        /// Sends a request, as the plugin does.
        fn send(&self) -> UnixStream {
            let ask = Ask {
                verb: Verb::Check,
                client: "c/n/net1".to_owned(),
                netns: "/proc/self/ns/net".to_owned(),
                ifname: "net1".to_owned(),
                provide: Vec::new(),
                request: Vec::new(),
                broadcast: false,
            };
            let mut stream = UnixStream::connect(&self.paths.socket).unwrap();
            stream
                .write_all(&serde_json::to_vec(&ask).unwrap())
                .unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        }

        /// Writes a lease as the former service of our plugin has left it.
        fn write_former_lease(&self) {
            let mac = [2, 0, 0, 0, 0, 1];
            let mut ack = Message::new(MessageKind::Ack, 7, mac);
            ack.your_address = [10, 9, 0, 5].into();
            ack.options
                .set(code::SUBNET_MASK, [255, 255, 255, 0])
                .set(code::LEASE_TIME, u32::MAX.to_be_bytes());
            let netns = fs::metadata("/proc/self/ns/net").unwrap();
            let lease = json!({
                "schema": 1,
                "ask": {"verb": "allocate", "client": "c/n/net1", "netns": "/proc/self/ns/net", "ifname": "net1", "provide": [], "request": [3]},
                "netns": [netns.dev(), netns.ino()],
                "mac": mac, "began": 5, "server_mac": mac, "ack": ack.encode(),
            });
            let mut dir = self.paths.former_socket.clone().into_os_string();
            dir.push(".leases");
            fs::create_dir_all(&dir).unwrap();
            fs::write(Path::new(&dir).join("lease"), lease.to_string()).unwrap();
        }
    }

    fn answer(stream: UnixStream) -> Answer {
        serde_json::from_reader(stream).unwrap()
    }

    fn address(stream: UnixStream) -> String {
        match answer(stream) {
            Answer::Done(Some(grant)) => grant.address,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn next_daemon_takes_socket_and_leases() {
        let fixture = Fixture::new();
        fixture.write_former_lease();
        let first = fixture.start().unwrap();
        assert_eq!(address(fixture.send()), "10.9.0.5/24");
        let left = fs::read_dir(fixture.paths.socket.parent().unwrap()).unwrap();
        assert_eq!(left.count(), 1, "the leases have moved");
        assert!(first.name().is_ours(&fixture.root));

        let metrics = Arc::<Metrics>::default();
        let second = fixture.start_with(Arc::clone(&metrics)).unwrap();
        assert!(!first.name().is_ours(&fixture.root));
        assert!(second.name().is_ours(&fixture.root));
        let request = fixture.send();
        let leases = fs::File::open(&fixture.paths.leases).unwrap();
        let attempt = flock(&leases, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(attempt, Err(rustix::io::Errno::WOULDBLOCK));
        drop(first);
        assert_eq!(address(request), "10.9.0.5/24");
        let text = metrics.text();
        assert!(text.contains("multus_dhcp_leases 1\n"), "{text}");
    }

    #[tokio::test]
    async fn killed_daemon_leaves_nothing_in_the_way() {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.paths.socket.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&fixture.paths.socket).unwrap());
        let service = fixture.start().unwrap();
        let text = "the DHCP daemon holds no lease for c/n/net1";
        assert_eq!(answer(fixture.send()), Answer::Failed(text.to_owned()));
        let mode = fs::metadata(&fixture.paths.socket).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);

        // The next service creates a name again that was removed.
        fs::remove_file(&fixture.paths.socket).unwrap();
        assert!(!service.name().is_ours(&fixture.root));
        drop(service);
        fixture.paths.remove(&fixture.root, &fixture.root);
        assert!(!fixture.paths.leases.exists(), "there are no leases");
    }

    #[test]
    fn pod_of_a_lost_lease_gets_an_event() {
        let fixture = Fixture::new();
        let host = NodeHost(fixture.parts(Arc::default()));
        let store = state::Store::new(Arc::clone(&fixture.root), &host.0.cni_dir);
        let pod = PodRef {
            namespace: "shop".to_owned(),
            name: "cart".to_owned(),
            uid: "u".to_owned(),
        };
        let attached = state::State {
            pod: pod.clone(),
            ..state::State::unknown(&"c".parse().unwrap(), &"eth0".parse().unwrap())
        };
        store.record(&attached).unwrap();
        assert_eq!(host.pod("c/n/net1"), Some(pod));
        assert_eq!(host.pod("other/n/net1"), None);

        let failure = Failure::Expired([10, 9, 0, 5].into());
        let expected = "net1 has no address until a DHCP server grants it again: no DHCP server has renewed the lease of 10.9.0.5 before it expired";
        let lost = pod_event("c/n/net1", &Event::Lost(&failure));
        assert_eq!(lost, Some((true, "DhcpLeaseLost", expected.to_owned())));
        let regained = pod_event("c/n/net1", &Event::Regained([10, 9, 0, 5].into()));
        let expected = "net1 has its address 10.9.0.5 again".to_owned();
        assert_eq!(regained, Some((false, "DhcpLeaseRegained", expected)));
        assert_eq!(pod_event("c/n/net1", &Event::Searching), None);
    }

    #[test]
    fn file_of_another_kind_stays() {
        let fixture = Fixture::new();
        fs::create_dir_all(fixture.paths.socket.parent().unwrap()).unwrap();
        fs::write(&fixture.paths.socket, "mine").unwrap();
        let error = fixture.start().unwrap_err();
        assert!(format!("{error:#}").contains("move it away"), "{error:#}");
        fixture.paths.remove(&fixture.root, &fixture.root);
        assert!(fixture.paths.socket.exists());
    }
}
