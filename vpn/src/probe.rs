//! What the other nodes of a cluster answer through the VPN: the tunnel itself, and the ports that a cluster needs. A node that the VPN's
//! policy keeps out is online like any other, and only this shows it.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{IpAddr, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    kernel::Netlink,
    provider::{Guide, Pods, Provider},
    status::{Finding, Report, Vxlan},
};

/// The port of the API server.
const API: u16 = 6443;
/// The port of the kubelet.
const KUBELET: u16 = 10250;
/// The deadline of a connection.
const LIMIT: Duration = Duration::from_secs(3);
/// The number of nodes that are asked at once.
const AT_ONCE: usize = 16;

/// What another node answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Its name.
    pub peer: String,
    /// The address that was asked.
    pub address: IpAddr,
    /// A ping through the tunnel, which neither a policy nor a firewall of the node stops.
    pub ping: Answer,
    /// A connection to the port of the API server.
    pub api: Answer,
    /// A connection to the kubelet.
    pub kubelet: Answer,
}

/// An answer, or what came in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum Answer {
    /// It came after this time.
    Answered {
        /// The time.
        milliseconds: u64,
    },
    /// The node was reached, and refused.
    Refused,
    /// There was none.
    Silent {
        /// What is known of the reason.
        reason: String,
    },
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { milliseconds } => write!(f, "{milliseconds} ms"),
            Self::Refused => f.write_str("refused"),
            Self::Silent { reason } => write!(f, "no answer ({reason})"),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            peer,
            address,
            ping,
            api,
            kubelet,
        } = self;
        write!(
            f,
            "{peer} {address}: ping {ping}; port {API} {api}; port {KUBELET} {kubelet}"
        )
    }
}

/// Asks the other nodes of the cluster, as far as this one knows them.
pub fn probe(provider: &(dyn Provider + Sync), report: &Report) -> Vec<Probe> {
    let by_address = |address: IpAddr| (address.to_string(), address);
    let mut peers: Vec<_> = match report.pods {
        Pods::Advertised => advertising(report),
        // A node behind a hub is not a peer.
        Pods::Routes => {
            let others = report.others.iter().map(|other| other.address);
            let others: BTreeSet<IpAddr> = others.collect();
            others.into_iter().map(by_address).collect()
        }
        Pods::Vxlan => Vec::new(),
    };
    // RKE2's network has its own VXLAN, whatever the settings say of pods.
    let mut wrapped = behind(&report.vxlan);
    wrapped.retain(|address| peers.iter().all(|(_, known)| known != address));
    peers.extend(wrapped.into_iter().map(by_address));
    let ask = |(name, address): &(String, IpAddr)| Probe {
        peer: name.clone(),
        address: *address,
        ping: match provider.ping(*address) {
            Ok(time) => answered(time),
            Err(error) => Answer::Silent {
                reason: error.to_string(),
            },
        },
        api: connect((*address, API).into()),
        kubelet: connect((*address, KUBELET).into()),
    };
    let mut probes = Vec::with_capacity(peers.len());
    for some in peers.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let ask = &ask;
            let asked = some.iter().map(|peer| scope.spawn(move || ask(peer)));
            let asked: Vec<_> = asked.collect();
            probes.extend(asked.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
    probes
}

/// Returns the nodes that are online and advertise subnets of the cluster's pods.
fn advertising(report: &Report) -> Vec<(String, IpAddr)> {
    let nodes = report.peers.iter().filter_map(|peer| {
        let mut routes = peer.routes.iter();
        let is_of_cluster = routes.any(|route| {
            let mut networks = report.cluster.iter();
            networks.any(|network| network.contains(*route))
        });
        let address = peer.addresses.first()?;
        (peer.is_online && is_of_cluster).then(|| (peer.name.clone(), *address))
    });
    nodes.collect()
}

/// Returns the nodes to which these interfaces send packets of pods; none where the kernel does not say.
fn behind(interfaces: &[Vxlan]) -> BTreeSet<IpAddr> {
    let found = Netlink::open().and_then(|mut netlink| {
        let links = netlink.network()?.links;
        let wrapping = links
            .iter()
            .filter(|(_, link)| interfaces.iter().any(|one| one.name == link.name));
        let indices: Vec<u32> = wrapping.map(|(index, _)| *index).collect();
        netlink.vxlan_destinations(&indices)
    });
    found.unwrap_or_default()
}

/// Returns whether this node has an API server.
pub fn has_api(report: &Report) -> bool {
    let mut addresses = report.addresses.iter();
    addresses.any(|address| {
        let answer = connect((*address, API).into());
        matches!(answer, Answer::Answered { .. })
    })
}

fn answered(time: Duration) -> Answer {
    Answer::Answered {
        milliseconds: time.as_millis().try_into().unwrap_or(u64::MAX),
    }
}

fn connect(address: SocketAddr) -> Answer {
    let start = Instant::now();
    match TcpStream::connect_timeout(&address, LIMIT) {
        Ok(_) => answered(start.elapsed()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Answer::Refused,
        Err(error) => Answer::Silent {
            reason: error.to_string(),
        },
    }
}

/// Returns what is wrong with the answers. The API server may be on any of the nodes, or on this one.
pub fn findings(guide: &Guide, probes: &[Probe], has_api: bool) -> Vec<Finding> {
    let finding = |is_problem: bool, text: String| Finding { is_problem, text };
    let mut found = Vec::new();
    if probes.is_empty() {
        let text = "no other node of the cluster is online, so none was asked";
        found.push(finding(false, text.to_owned()));
    }
    for probe in probes {
        let Probe { peer, address, .. } = probe;
        match (&probe.ping, &probe.kubelet) {
            (Answer::Silent { reason }, _) => found.push(finding(
                true,
                format!("{peer} does not answer in the VPN's tunnel ({reason}): see that {} runs there, and look at {} {address}", guide.daemon, guide.ping),
            )),
            (_, Answer::Silent { reason }) => found.push(finding(
                true,
                format!("port {KUBELET} of {peer}, its kubelet's, does not answer at {address} ({reason}): let the VPN's policy and the firewall of {peer} accept it"),
            )),
            (_, Answer::Refused) => found.push(finding(
                false,
                format!("{peer} refuses port {KUBELET}, its kubelet's: see that the distro runs there, and that no firewall refuses it"),
            )),
            (_, Answer::Answered { .. }) => {}
        }
    }
    let answers = |probe: &Probe| matches!(probe.api, Answer::Answered { .. });
    if !has_api && !probes.is_empty() && !probes.iter().any(answers) {
        found.push(finding(
            true,
            format!("no node of the cluster answers at port {API}, the API server's: see that a server runs, and let the VPN's policy and the servers' firewalls accept the port"),
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::provider::ProviderName;

    const SOUND: Answer = Answer::Answered { milliseconds: 3 };

    fn silent() -> Answer {
        Answer::Silent {
            reason: "timed out".to_owned(),
        }
    }

    fn check(answers: &[[Answer; 3]], has_api: bool, expected: &[&str]) {
        let names = ["b", "c"].iter().zip(answers);
        let probes = names.map(|(name, [ping, api, kubelet])| Probe {
            peer: (*name).to_owned(),
            address: [100, 64, 0, 2].into(),
            ping: ping.clone(),
            api: api.clone(),
            kubelet: kubelet.clone(),
        });
        let guide = ProviderName::default().guide();
        let found = findings(guide, &probes.collect::<Vec<_>>(), has_api);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (finding, expected) in found.iter().zip(expected) {
            let mark = if finding.is_problem { "!" } else { "" };
            let text = format!("{mark}{}", finding.text);
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn silence_is_a_problem_of_the_tunnel_or_of_what_filters_the_port() {
        let refused = || Answer::Refused;
        check(
            &[[SOUND, SOUND, SOUND], [SOUND, refused(), SOUND]],
            false,
            &[],
        );
        check(&[[SOUND, refused(), SOUND]], true, &[]);
        check(&[[SOUND, silent(), SOUND]], true, &[]);
        let no_api = "!no node of the cluster answers at port 6443";
        check(&[[SOUND, refused(), SOUND]], false, &[no_api]);
        check(
            &[[SOUND, silent(), silent()], [SOUND, SOUND, refused()]],
            false,
            &[
                "!port 10250 of b, its kubelet's, does not answer at 100.64.0.2 (timed out)",
                "c refuses port 10250",
            ],
        );
        check(
            &[[silent(), silent(), silent()]],
            true,
            &["!b does not answer in the VPN's tunnel (timed out)"],
        );
        check(&[], false, &["no other node of the cluster is online"]);
    }

    #[test]
    fn port_answers_while_something_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let answer = connect(address);
        assert!(matches!(answer, Answer::Answered { .. }), "{answer}");
        drop(listener);
        assert_eq!(connect(address), Answer::Refused);
    }
}
