//! The DHCP client `dhcp/` against dnsmasq, in network namespaces of its own.
#![expect(
    clippy::unwrap_used,
    reason = "each scenario has a thread of its own, whose panic is its failure"
)]

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::anyhow;
use dhcp::{Action, Client, Config, Failure, Lease, Mac, Options, Retry, Route, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};

use super::PluginsFixture;
use crate::report::Report;

const SERVER: &str = "10.44.0.1";

/// Checks all scenarios. Each runs on its own thread, which enters the client's namespace and ends there.
pub(super) fn run(fixture: &PluginsFixture<'_>, report: &mut Report) {
    let scenarios: [(&str, fn()); 6] = [
        (
            "DHCP client: lease has address and routes and is given back",
            lease_has_address_and_routes_and_is_given_back,
        ),
        (
            "DHCP client: static routes and router count without classless routes",
            static_routes_and_router_count_without_classless_routes,
        ),
        (
            "DHCP client: lease is renewed and after the server's restart rebound",
            lease_is_renewed_and_after_the_servers_restart_rebound,
        ),
        (
            "DHCP client: refused lease is asked for until it is granted again",
            refused_lease_is_asked_for_until_it_is_granted_again,
        ),
        (
            "DHCP client: requested address comes back and replies may be broadcast",
            requested_address_comes_back_and_replies_may_be_broadcast,
        ),
        (
            "DHCP client: network without a server ends the search",
            network_without_a_server_ends_the_search,
        ),
    ];
    for (name, scenario) in scenarios {
        if !fixture.selects(name) {
            continue;
        }
        let _ = report.check(name, || {
            std::thread::spawn(scenario).join().map_err(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                anyhow!(text.unwrap_or_else(|| "it panicked, see above".to_owned()))
            })
        });
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .unwrap();
    assert!(status.success(), "ip {arguments}: {status}");
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap()
}

/// Two namespaces with a veth pair between them, and a server in one of them. The test's thread is in the other one.
struct Network {
    server_netns: String,
    client_netns: String,
    dir: PathBuf,
    mac: Mac,
    index: u32,
    server: Option<Child>,
}

impl Network {
    fn new(name: &str, options: &[&str]) -> Self {
        let (server_netns, client_netns) =
            (format!("dhcp-{name}-server"), format!("dhcp-{name}-client"));
        let dir = std::env::temp_dir().join(format!("dhcp-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for netns in [&server_netns, &client_netns] {
            ip(&format!("netns add {netns}"));
        }
        ip(&format!(
            "-n {server_netns} link add s0 type veth peer name net1 netns {client_netns}"
        ));
        ip(&format!("-n {server_netns} addr add {SERVER}/24 dev s0"));
        ip(&format!("-n {server_netns} link set s0 up"));
        ip(&format!(
            "-n {client_netns} link set net1 address 02:00:00:00:44:01"
        ));
        ip(&format!("-n {client_netns} link set net1 up"));
        let netns = File::open(format!("/run/netns/{client_netns}")).unwrap();
        move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let shown = Command::new("ip")
            .args(["-o", "link", "show", "net1"])
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        let index = shown.split(':').next().unwrap().parse().unwrap();
        let mut network = Self {
            server_netns,
            client_netns,
            dir,
            mac: [2, 0, 0, 0, 0x44, 1],
            index,
            server: None,
        };
        network.start_server(options);
        network
    }

    fn start_server(&mut self, options: &[&str]) {
        let leases = self.dir.join("leases");
        let server = Command::new("ip")
            .args(["netns", "exec", &self.server_netns, "dnsmasq"])
            .args("--keep-in-foreground --user=root --port=0 --interface=s0 --bind-interfaces --no-ping".split(' '))
            .args("--conf-file=/dev/null --pid-file= --log-dhcp --log-facility=-".split(' '))
            .arg(format!("--dhcp-leasefile={}", leases.display()))
            .args(options)
            .stderr(File::create(self.dir.join("log")).unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(server);
        self.wait_for_log("DHCP, IP range");
    }

    fn stop_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Waits until the server has written this.
    fn wait_for_log(&self, text: &str) {
        let deadline = now() + Duration::from_secs(10);
        while !self.log().contains(text) {
            assert!(now() < deadline, "no {text:?} in {}", self.log());
            std::thread::yield_now();
        }
    }

    fn leases(&self) -> String {
        fs::read_to_string(self.dir.join("leases")).unwrap_or_default()
    }

    fn config(&self) -> Config {
        Config {
            mac: self.mac,
            identifier: "container/network/net1".to_owned(),
            request: vec![121, 33, 3, 1],
            provide: vec![(12, b"pod".to_vec())],
            broadcast: false,
            requested_address: None,
            retry: Retry {
                limit: Duration::from_secs(8),
                ..Retry::default()
            },
            seed: u64::from(std::process::id()),
        }
    }

    /// Lets a client work until it has a lease, or has ended. `actions` are carried out first.
    fn run(&self, client: &mut Client, mut actions: Vec<Action>) -> Result<Lease, Failure> {
        let socket = Socket::open(self.index, self.mac).unwrap();
        loop {
            for action in actions.drain(..) {
                match action {
                    Action::Send(outgoing) => socket.send(&outgoing).unwrap(),
                    Action::Keep(lease) => return Ok(*lease),
                    Action::Lost(failure) | Action::Failed(failure) => return Err(failure),
                }
            }
            let pause = client.deadline().unwrap().saturating_sub(now());
            let mut waiting = [PollFd::new(&socket, PollFlags::IN)];
            poll(&mut waiting, Some(&Timespec::try_from(pause).unwrap())).unwrap();
            if let Some((message, from)) = socket.receive(client.transaction()).unwrap() {
                actions = client.receive(&message, from, now());
            } else {
                actions = client.advance(now());
            }
        }
    }

    fn acquire(&self, config: Config) -> (Client, Lease) {
        let (mut client, actions) = Client::start(config, now());
        let lease = self
            .run(&mut client, actions)
            .unwrap_or_else(|failure| panic!("{failure}: {}", self.log()));
        (client, lease)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop_server();
        for netns in [&self.server_netns, &self.client_netns] {
            ip(&format!("netns del {netns}"));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

const RANGE: &str = "--dhcp-range=10.44.0.50,10.44.0.50,255.255.255.0,120";
/// Renewal after 3 s, rebinding after 5 s: dnsmasq passes over shorter times.
const T1: &str = "--dhcp-option=58,3";
const T2: &str = "--dhcp-option=59,5";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 44, 0, 50);

fn lease_has_address_and_routes_and_is_given_back() {
    let network = Network::new(
        "routes",
        &[
            RANGE,
            "--dhcp-option=121,0.0.0.0/0,10.44.0.254,10.9.0.0/16,10.44.0.9,192.168.77.0/24,0.0.0.0",
            "--dhcp-option=33,172.20.0.0,10.44.0.8",
        ],
    );
    let (mut client, lease) = network.acquire(network.config());
    assert_eq!(
        (lease.address(), lease.prefix_length()),
        (ADDRESS, Some(24))
    );
    assert_eq!(lease.server(), Some(SERVER.parse().unwrap()));
    let route = |destination: &str, length, gateway: Option<&str>| Route {
        destination: destination.parse().unwrap(),
        length,
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    };
    assert_eq!(
        lease.routes(),
        [
            route("0.0.0.0", 0, Some("10.44.0.254")),
            route("10.9.0.0", 16, Some("10.44.0.9")),
            route("192.168.77.0", 24, None),
        ]
    );
    let kept = network.leases();
    assert!(
        kept.contains("10.44.0.50 pod 00:63:6f:6e:74:61:69:6e:65:72"),
        "{kept}"
    );
    ip(&format!(
        "-n {} addr add 10.44.0.50/24 dev net1",
        network.client_netns
    ));
    let release = client.release().unwrap();
    Socket::open(network.index, network.mac)
        .unwrap()
        .send(&release)
        .unwrap();
    network.wait_for_log("DHCPRELEASE(s0) 10.44.0.50");
    assert!(
        !network.log().contains("unknown lease"),
        "{}",
        network.log()
    );
}

fn static_routes_and_router_count_without_classless_routes() {
    let network = Network::new("static", &[RANGE, "--dhcp-option=33,172.20.0.0,10.44.0.8"]);
    let (_, lease) = network.acquire(network.config());
    let shown: Vec<_> = lease
        .routes()
        .iter()
        .map(|route| {
            format!(
                "{}/{} {}",
                route.destination,
                route.length,
                route.gateway.unwrap()
            )
        })
        .collect();
    assert_eq!(shown, ["172.20.0.0/16 10.44.0.8", "0.0.0.0/0 10.44.0.1"]);
    assert_eq!(lease.gateway(), Some(SERVER.parse().unwrap()));
}

fn lease_is_renewed_and_after_the_servers_restart_rebound() {
    let mut network = Network::new("renew", &[RANGE, T1, T2]);
    let (mut client, lease) = network.acquire(network.config());
    ip(&format!(
        "-n {} addr add 10.44.0.50/24 dev net1",
        network.client_netns
    ));
    let (t1, t2) = (lease.renews().unwrap(), lease.rebinds().unwrap());
    assert_eq!(t1, lease.began + Duration::from_secs(3));
    assert_eq!(t2, lease.began + Duration::from_secs(5));
    let renewed = network.run(&mut client, Vec::new()).unwrap();
    assert_eq!(renewed.address(), ADDRESS);
    assert!(renewed.began >= t1 && renewed.began < t2);
    assert_eq!(network.log().matches("DHCPDISCOVER").count(), 1);

    // No server hears the unicast renewal; the broadcast after T2 is answered by the restarted server.
    network.stop_server();
    let actions = loop {
        let pause = client.deadline().unwrap().saturating_sub(now());
        poll(&mut [], Some(&Timespec::try_from(pause).unwrap())).unwrap();
        let actions = client.advance(now());
        if let [Action::Send(outgoing)] = &actions[..] {
            let socket = Socket::open(network.index, network.mac).unwrap();
            if outgoing.destination == Ipv4Addr::BROADCAST {
                break actions;
            }
            socket.send(outgoing).unwrap();
        }
    };
    network.start_server(&[RANGE, T1, T2, "--dhcp-authoritative"]);
    let rebound = network.run(&mut client, actions).unwrap();
    assert_eq!(rebound.address(), ADDRESS);
    assert!(rebound.began >= renewed.rebinds().unwrap());
    assert_eq!(network.log().matches("DHCPDISCOVER").count(), 0);
}

fn refused_lease_is_asked_for_until_it_is_granted_again() {
    let mut network = Network::new("nak", &[RANGE, T1, T2]);
    let (client, lease) = network.acquire(network.config());
    ip(&format!(
        "-n {} addr add 10.44.0.50/24 dev net1",
        network.client_netns
    ));
    network.stop_server();
    fs::remove_file(network.dir.join("leases")).unwrap();
    network.start_server(&[
        "--dhcp-range=10.44.0.60,10.44.0.60,255.255.255.0,120",
        "--dhcp-authoritative",
    ]);
    // Another process goes on with the stored lease.
    drop(client);
    let mut client = Client::resume(network.config(), lease, now());
    let failure = network.run(&mut client, Vec::new()).unwrap_err();
    let other = Ipv4Addr::new(10, 44, 0, 60);
    assert_eq!(failure, Failure::Changed(ADDRESS, other));
    assert!(
        network.log().contains("DHCPNAK(s0) 10.44.0.50"),
        "{}",
        network.log()
    );
    // It takes no other address, and the server that has its own again grants it.
    network.stop_server();
    network.start_server(&[RANGE]);
    let lease = network.run(&mut client, Vec::new()).unwrap();
    assert_eq!(lease.address(), ADDRESS);
}

fn requested_address_comes_back_and_replies_may_be_broadcast() {
    let network = Network::new(
        "requested",
        &["--dhcp-range=10.44.0.50,10.44.0.99,255.255.255.0,120"],
    );
    let config = Config {
        requested_address: Some(Ipv4Addr::new(10, 44, 0, 77)),
        broadcast: true,
        ..network.config()
    };
    let (_, lease) = network.acquire(config);
    assert_eq!(lease.address(), Ipv4Addr::new(10, 44, 0, 77));
    assert!(lease.ack.wants_broadcast);
    assert_ne!(lease.ack.options, Options::default());
}

fn network_without_a_server_ends_the_search() {
    let mut network = Network::new("none", &[RANGE]);
    network.stop_server();
    let (mut client, actions) = Client::start(network.config(), now());
    let failure = network.run(&mut client, actions).unwrap_err();
    assert_eq!(failure, Failure::NoLease(Duration::from_secs(8)));
}
