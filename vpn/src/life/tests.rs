//! Tests of what `vpn run` does at one look, on a provider that records its calls.

use std::{cell::RefCell, io, net::IpAddr, rc::Rc};

use super::*;
use crate::{
    Secret,
    kernel::{Link, MAIN, Route},
    provider::{Peer, ProviderName, Selection},
};

/// A VPN in memory, with the calls that change it.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
struct Fake {
    phase: Option<Phase>,
    is_down: bool,
    refuses: bool,
    is_late: bool,
    is_away: bool,
    interface: Option<&'static str>,
    settings: Settings,
    approved: Vec<Prefix>,
    accepted: Vec<Prefix>,
    /// The kernel has a VXLAN interface of flannel with this subnet behind it.
    left: Option<Prefix>,
    /// The peers of an interface of WireGuard, in place of those above.
    peers: Vec<Peer>,
    calls: Vec<String>,
    saved: Vec<Record>,
}

type Shared = Rc<RefCell<Fake>>;

struct SharedProvider(Shared);
struct SharedStore(Shared);

impl Provider for SharedProvider {
    fn status(&self) -> Result<Status, ProviderError> {
        let fake = self.0.borrow();
        if fake.is_down {
            return Err(ProviderError::DaemonDown {
                program: "tailscale",
                unit: "tailscaled.service",
            });
        }
        Ok(Status {
            phase: fake.phase.clone().unwrap_or(Phase::Running),
            version: "1.102.5".to_owned(),
            own: Peer {
                name: "a".to_owned(),
                addresses: vec!["100.64.0.1".parse().unwrap()],
                routes: fake.approved.clone(),
                is_online: !fake.is_away,
                ..Peer::default()
            },
            peers: [
                &fake.peers[..],
                &[Peer {
                    name: "router".to_owned(),
                    routes: fake.accepted.clone(),
                    ..Peer::default()
                }],
            ]
            .concat(),
            health: Vec::new(),
            has_interface: true,
            ..Status::default()
        })
    }

    fn settings(&self) -> Result<Settings, ProviderError> {
        Ok(self.0.borrow().settings.clone())
    }

    fn up(&self, login: &Login<'_>) -> Result<(), ProviderError> {
        let mut fake = self.0.borrow_mut();
        let key = if login.key.is_some() {
            " with a key"
        } else {
            ""
        };
        fake.calls.push(format!("up{key}"));
        if fake.refuses {
            return Err(ProviderError::Failed {
                command: "tailscale up".to_owned(),
                text: "invalid authkey".to_owned(),
            });
        }
        if fake.is_late {
            return Err(ProviderError::Timeout {
                command: "tailscale up".to_owned(),
                limit: Duration::from_secs(30),
                unit: "tailscaled.service",
            });
        }
        fake.phase = None;
        if let Some(server) = login.control_server {
            fake.settings.control_server = Some(server.to_owned());
        }
        Ok(())
    }

    fn down(&self) -> Result<(), ProviderError> {
        self.0.borrow_mut().calls.push("down".to_owned());
        Ok(())
    }

    fn logout(&self) -> Result<(), ProviderError> {
        unreachable!("steps never log out")
    }

    fn ping(&self, _: IpAddr) -> Result<Duration, ProviderError> {
        unreachable!("steps never ping")
    }

    fn advertise(&self, routes: &[Prefix]) -> Result<(), ProviderError> {
        let mut fake = self.0.borrow_mut();
        let texts: Vec<String> = routes.iter().map(ToString::to_string).collect();
        fake.calls.push(format!("advertise {}", texts.join(" ")));
        fake.settings.advertised = routes.to_vec();
        Ok(())
    }

    fn accept_routes(&self, accept: bool) -> Result<(), ProviderError> {
        let mut fake = self.0.borrow_mut();
        fake.calls.push(format!("accept routes {accept}"));
        fake.settings.accepts_routes = accept;
        Ok(())
    }

    fn translate_sources(&self, translate: bool) -> Result<(), ProviderError> {
        let mut fake = self.0.borrow_mut();
        fake.calls.push(format!("translate {translate}"));
        fake.settings.translates_sources = translate;
        Ok(())
    }

    fn change_ranges(
        &self,
        add: &[Assignment],
        remove: &[Assignment],
    ) -> Result<(), ProviderError> {
        let mut fake = self.0.borrow_mut();
        if fake.refuses {
            return Err(ProviderError::Failed {
                command: "a change of peers".to_owned(),
                text: "Invalid argument".to_owned(),
            });
        }
        for (mark, changed) in [("+", add), ("-", remove)] {
            for Assignment { peer, range } in changed {
                fake.calls.push(format!("{mark}{peer} {range}"));
                let mut peers = fake.peers.iter_mut();
                let found = peers.find(|one| one.key.as_ref() == Some(peer)).unwrap();
                found.routes.retain(|one| one != range);
                found.routes.extend((mark == "+").then_some(*range));
            }
        }
        Ok(())
    }

    fn guide(&self) -> &'static Guide {
        ProviderName::default().guide()
    }
}

impl Store for SharedStore {
    fn save(&mut self, record: &Record) -> io::Result<()> {
        let mut fake = self.0.borrow_mut();
        let seen = fake.calls.len();
        fake.calls.push(format!("save {seen}"));
        fake.saved.push(record.clone());
        Ok(())
    }
}

fn prefixes(text: &str) -> Vec<Prefix> {
    text.split_whitespace()
        .map(|text| text.parse().unwrap())
        .collect()
}

fn network(vpn: &str) -> Network {
    let link = |name: &str| Link {
        name: name.to_owned(),
        mtu: 1280,
        ..Link::default()
    };
    Network {
        links: [(2, link("eth0")), (7, link(vpn))].into(),
        addresses: vec![
            (IpAddr::from([192, 168, 1, 5]), 2),
            (IpAddr::from([100, 64, 0, 1]), 7),
        ],
        routes: vec![Route {
            destination: "192.168.1.0/24".parse().unwrap(),
            table: MAIN,
            link: Some(2),
            protocol: 0,
        }],
        ..Network::default()
    }
}

/// One node over several steps.
struct Node {
    fake: Shared,
    life: Life<SharedStore>,
    start: Instant,
    key: Option<Secret>,
    control_server: Option<&'static str>,
    note: Option<Note>,
}

impl Node {
    fn new(fake: Fake) -> Self {
        let fake = Rc::new(RefCell::new(fake));
        Self {
            life: Life::new(
                Box::new(SharedProvider(Rc::clone(&fake))),
                SharedStore(Rc::clone(&fake)),
                Record::default(),
            ),
            fake,
            start: Instant::now(),
            key: None,
            control_server: None,
            note: None,
        }
    }

    fn with_key(mut self) -> Self {
        self.key = Some(Secret::new(*b"k"));
        self
    }

    fn flannel(&mut self, subnet: &str) {
        self.note = Some(Note {
            subnets: prefixes(subnet),
            networks: prefixes("10.42.0.0/16"),
            ..Note::default()
        });
    }

    /// Does a step that many seconds after the start.
    fn step(&mut self, seconds: u64) -> State {
        let login = Login {
            key: self.key.as_ref(),
            control_server: self.control_server,
            extra_args: &[],
        };
        let interface = self.fake.borrow().interface.unwrap_or("vpn7");
        let mut network = network(interface);
        if let Some(destination) = self.fake.borrow().left {
            let kind = Some("vxlan".to_owned());
            let name = "flannel.1".to_owned();
            let link = Link {
                name,
                kind,
                ..Link::default()
            };
            network.links.insert(9, link);
            network.routes.push(Route {
                destination,
                table: MAIN,
                link: Some(9),
                protocol: 0,
            });
        }
        self.life.step(&Input {
            now: self.start + Duration::from_secs(seconds),
            login: &login,
            configured: &[],
            leaves_sources: false,
            note: self.note.as_ref(),
            cluster: &[],
            network: &|| Ok(network.clone()),
        })
    }

    /// Starts `vpn run` again.
    fn restart(&mut self) {
        let record = self.fake.borrow().saved.last().cloned().unwrap_or_default();
        self.life = Life::new(
            Box::new(SharedProvider(Rc::clone(&self.fake))),
            SharedStore(Rc::clone(&self.fake)),
            record,
        );
    }

    /// Returns the calls since the last time, without those that write the record.
    fn calls(&self) -> Vec<String> {
        let mut calls = std::mem::take(&mut self.fake.borrow_mut().calls);
        calls.retain(|call| !call.starts_with("save"));
        calls
    }
}

fn is_up(state: &State) -> bool {
    state
        .node
        .as_ref()
        .is_some_and(|node| node.interface == "vpn7")
        && state.problem.is_none()
}

#[test]
fn vpn_that_is_up_is_left_as_it_is_and_stays_up() {
    let mut node = Node::new(Fake::default()).with_key();
    assert!(is_up(&node.step(0)));
    node.restart();
    assert!(is_up(&node.step(10)));
    node.life.end(true).unwrap();
    assert_eq!(node.calls(), [""; 0]);
}

#[test]
fn vpn_that_we_brought_up_is_taken_down_at_the_end_alone() {
    let mut node = Node::new(Fake {
        phase: Some(Phase::NeedsLogin(None)),
        ..Fake::default()
    })
    .with_key();
    assert!(is_up(&node.step(0)));
    assert_eq!(node.calls(), ["up with a key"]);
    // A restart of the unit changes nothing.
    node.restart();
    assert!(is_up(&node.step(10)));
    assert_eq!(node.calls(), [""; 0]);
    // Without being asked to, it cuts nobody's only way to the node.
    node.life.end(false).unwrap();
    assert_eq!(node.calls(), [""; 0]);
    node.life.end(true).unwrap();
    assert_eq!(node.calls(), ["down"]);
    node.life.end(true).unwrap();
    assert_eq!(node.calls(), [""; 0]);
}

#[test]
fn vpn_that_its_user_brings_up_after_a_refused_login_is_his() {
    for phase in [Phase::NeedsLogin(None), Phase::Stopped] {
        let mut node = Node::new(Fake {
            phase: Some(phase.clone()),
            refuses: true,
            ..Fake::default()
        })
        .with_key();
        // A login of this program's that was there before is gone.
        node.life.record.brought_up = true;
        assert!(node.step(0).problem.is_some());
        {
            let mut fake = node.fake.borrow_mut();
            fake.phase = None;
            fake.settings.control_server = Some("https://a.example".to_owned());
        }
        assert!(is_up(&node.step(1)));
        node.calls();
        // He is not taken to another control server either.
        node.control_server = Some("https://b.example");
        let problem = node.step(20).problem.unwrap();
        assert!(problem.contains("tailscale logout"), "{problem}");
        node.restart();
        node.life.end(true).unwrap();
        assert_eq!(node.calls(), [""; 0], "{phase:?}");
    }
}

#[test]
fn vpn_that_comes_up_after_the_deadline_of_our_login_is_ours() {
    let mut node = Node::new(Fake {
        phase: Some(Phase::NeedsLogin(None)),
        is_late: true,
        ..Fake::default()
    })
    .with_key();
    let problem = node.step(0).problem.unwrap();
    assert!(problem.contains("within 30 s"), "{problem}");
    node.fake.borrow_mut().phase = None;
    assert!(is_up(&node.step(1)));
    node.calls();
    node.life.end(true).unwrap();
    assert_eq!(node.calls(), ["down"]);
}

#[test]
fn refusal_of_another_control_server_leaves_our_login_ours() {
    let mut node = Node::new(Fake {
        settings: Settings {
            control_server: Some("https://a.example".to_owned()),
            ..Settings::default()
        },
        refuses: true,
        ..Fake::default()
    })
    .with_key();
    node.control_server = Some("https://b.example");
    node.life.record.brought_up = true;
    assert!(node.step(0).problem.is_some());
    node.fake.borrow_mut().refuses = false;
    assert!(is_up(&node.step(5)));
    node.calls();
    node.life.end(true).unwrap();
    assert_eq!(node.calls(), ["down"]);
}

#[test]
fn record_is_written_before_the_vpn_comes_up() {
    let mut node = Node::new(Fake {
        phase: Some(Phase::Stopped),
        ..Fake::default()
    });
    assert!(is_up(&node.step(0)));
    let fake = node.fake.borrow();
    assert_eq!(fake.calls[..2], ["save 0", "up"]);
    assert!(fake.saved[0].brought_up);
}

#[test]
fn vpn_that_is_taken_down_by_hand_stays_down_until_the_unit_restarts() {
    let mut node = Node::new(Fake::default());
    assert!(is_up(&node.step(0)));
    node.fake.borrow_mut().phase = Some(Phase::Stopped);
    let problem = node.step(10).problem.unwrap();
    assert!(
        problem.contains("taken down by hand: tailscale up"),
        "{problem}"
    );
    assert_eq!(node.calls(), [""; 0]);
    node.restart();
    assert!(is_up(&node.step(20)));
}

#[test]
fn cure_of_a_refused_login_is_that_of_its_reason() {
    for (error, expected) in [
        ("invalid authkey", "correct the key"),
        (
            "requested tags [tag:k3s] are invalid or not permitted",
            "take --advertise-tags out",
        ),
        (
            "changing settings via 'tailscale up' requires mentioning all non-default flags",
            "log in by hand",
        ),
    ] {
        assert!(
            (ProviderName::default().guide().cure)(error).contains(expected),
            "{error}"
        );
    }
}

#[test]
fn refused_key_is_tried_again_after_growing_pauses() {
    let mut node = Node::new(Fake {
        phase: Some(Phase::NeedsLogin(None)),
        refuses: true,
        ..Fake::default()
    })
    .with_key();
    let mut tries = Vec::new();
    for second in 0..=700 {
        let problem = node.step(second).problem.unwrap();
        assert!(
            problem.contains("invalid authkey: correct the key"),
            "{problem}"
        );
        if !node.calls().is_empty() {
            tries.push(second);
        }
    }
    assert_eq!(tries, [0, 5, 15, 35, 75, 155, 315, 615]);
    node.fake.borrow_mut().refuses = false;
    assert!(is_up(&node.step(915)));
}

#[test]
fn key_helps_where_the_former_login_is_not_accepted() {
    let mut node = Node::new(Fake {
        phase: Some(Phase::Stopped),
        refuses: true,
        ..Fake::default()
    })
    .with_key();
    node.step(0);
    node.fake.borrow_mut().refuses = false;
    assert!(is_up(&node.step(5)));
    assert_eq!(node.calls(), ["up", "up with a key"]);
}

#[test]
fn each_missing_thing_is_named_with_its_cure() {
    let problem = |fake: Fake| Node::new(fake).step(0).problem.unwrap();
    let phase = |phase| Fake {
        phase: Some(phase),
        ..Fake::default()
    };
    let down = Fake {
        is_down: true,
        ..Fake::default()
    };
    assert_eq!(
        problem(down),
        "the daemon of tailscale does not run: systemctl start tailscaled.service"
    );
    assert!(problem(phase(Phase::NeedsLogin(None))).contains("--vpn-auth-file"));
    let page = Phase::NeedsLogin(Some("https://x".to_owned()));
    assert!(problem(phase(page)).ends_with("open https://x"));
    assert!(problem(phase(Phase::NeedsApproval)).contains("approval of this node, a: approve it"));
    assert_eq!(problem(phase(Phase::Starting)), "the VPN is starting");
    let away = problem(phase(Phase::Unreached("no such host".to_owned())));
    assert!(
        away.contains("control server is not reached (no such host)"),
        "{away}"
    );
}

#[test]
fn other_control_server_is_joined_only_by_a_node_that_we_brought_up() {
    let at = |server: &str| Settings {
        control_server: Some(server.to_owned()),
        ..Settings::default()
    };
    let mut node = Node::new(Fake {
        settings: at("https://a.example"),
        ..Fake::default()
    })
    .with_key();
    node.control_server = Some("https://a.example/");
    assert!(is_up(&node.step(0)));
    node.control_server = Some("https://b.example");
    let problem = node.step(10).problem.unwrap();
    assert!(
        problem.contains("logged in at https://a.example") && problem.contains("tailscale logout"),
        "{problem}"
    );
    assert_eq!(node.calls(), [""; 0]);
    node.life.record.brought_up = true;
    assert!(is_up(&node.step(20)));
    assert_eq!(node.calls(), ["up with a key"]);
}

#[test]
fn subnet_of_the_hook_is_advertised_and_the_former_one_withdrawn() {
    let own = Settings {
        advertised: prefixes("10.9.0.0/16"),
        ..Settings::default()
    };
    let mut node = Node::new(Fake {
        settings: own,
        ..Fake::default()
    });
    // Without flannel nothing is changed.
    assert!(is_up(&node.step(0)));
    assert_eq!(node.calls(), [""; 0]);
    node.flannel("10.42.1.0/24");
    let state = node.step(10);
    assert_eq!(
        node.calls(),
        ["advertise 10.9.0.0/16 10.42.1.0/24", "accept routes true"]
    );
    assert_eq!(state.advertised, prefixes("10.42.1.0/24"));
    // The unit restarts, the node has another subnet.
    node.restart();
    node.flannel("10.42.8.0/24");
    node.step(20);
    assert_eq!(node.calls(), ["advertise 10.9.0.0/16 10.42.8.0/24"]);
    assert_eq!(
        node.life.take_events(),
        ["the subnet of this node's pods is 10.42.8.0/24 now: 10.42.1.0/24 is withdrawn"]
    );
    // `k3s-killall.sh` wipes all.
    node.fake.borrow_mut().settings.advertised.clear();
    node.step(30);
    assert_eq!(node.calls(), ["advertise 10.9.0.0/16 10.42.8.0/24"]);
    assert_eq!(
        node.life.take_events(),
        [
            "routes that were withdrawn, as by k3s-killall.sh, are advertised again: 10.9.0.0/16, 10.42.8.0/24"
        ]
    );
    node.step(31);
    assert_eq!(node.life.take_events(), [""; 0]);
    // A boot: flannel has not run yet, and nothing is withdrawn.
    node.restart();
    node.note = None;
    node.step(40);
    assert_eq!(node.calls(), [""; 0]);
    node.life.end(true).unwrap();
    assert_eq!(
        node.calls(),
        ["advertise 10.9.0.0/16", "accept routes false"]
    );
}

#[test]
fn route_that_is_not_approved_is_reported_after_a_while() {
    let mut node = Node::new(Fake::default());
    node.flannel("10.42.1.0/24");
    let state = node.step(0);
    assert_eq!(state.pending, prefixes("10.42.1.0/24"));
    assert_eq!(state.notes, [""; 0]);
    assert_eq!(node.step(29).notes, [""; 0]);
    let notes = node.step(30).notes;
    assert_eq!(
        notes,
        [
            "advertised, not approved: approve 10.42.1.0/24 of node a, or have the VPN's policy do it: \"autoApprovers\": {\"routes\": {\"10.42.0.0/16\": [\"tag:k3s\"]}}"
        ]
    );
    node.fake.borrow_mut().approved = prefixes("10.42.1.0/24");
    let state = node.step(40);
    assert_eq!((state.pending, state.notes), (Vec::new(), Vec::new()));
}

#[test]
fn sources_of_packets_to_pods_are_kept_unless_the_user_has_routes_of_his_own() {
    let translating = |advertised: &str| Settings {
        advertised: prefixes(advertised),
        accepts_routes: true,
        translates_sources: true,
        ..Settings::default()
    };
    let mut node = Node::new(Fake {
        settings: translating(""),
        ..Fake::default()
    });
    node.flannel("10.42.1.0/24");
    assert_eq!(node.step(0).notes, [""; 0]);
    assert_eq!(node.calls(), ["advertise 10.42.1.0/24", "translate false"]);
    node.life.end(true).unwrap();
    assert_eq!(node.calls(), ["advertise ", "translate true"]);
    // A route to an address of the node itself has no machines behind it.
    let mut node = Node::new(Fake {
        settings: translating("192.168.1.5/32"),
        ..Fake::default()
    });
    node.flannel("10.42.1.0/24");
    assert_eq!(node.step(0).notes, [""; 0]);
    assert_eq!(
        node.calls(),
        ["advertise 10.42.1.0/24 192.168.1.5/32", "translate false"]
    );
    let mut node = Node::new(Fake {
        settings: translating("10.9.0.0/16"),
        ..Fake::default()
    });
    node.flannel("10.42.1.0/24");
    let notes = node.step(0).notes;
    assert!(
        notes[0].contains("NetworkPolicies do not see their sources"),
        "{notes:?}"
    );
    assert_eq!(node.calls(), ["advertise 10.9.0.0/16 10.42.1.0/24"]);
}

#[test]
fn lan_has_a_rule_before_another_node_advertises_it() {
    let mut node = Node::new(Fake::default());
    let before = node.step(0);
    assert_eq!(before.lan, prefixes("192.168.1.0/24"));
    assert_eq!(before.notes, [""; 0]);
    node.fake.borrow_mut().accepted = prefixes("192.168.0.0/16");
    let state = node.step(10);
    assert_eq!(state.lan, prefixes("192.168.1.0/24"));
    let [line] = &state.notes[..] else {
        panic!("{state:?}")
    };
    assert!(
        line.starts_with("router advertises 192.168.0.0/16, which has addresses of"),
        "{line}"
    );
}

#[test]
fn control_server_that_stays_away_is_reported_until_it_is_back() {
    let mut node = Node::new(Fake {
        settings: Settings {
            control_server: Some("https://a.example".to_owned()),
            ..Settings::default()
        },
        is_away: true,
        ..Fake::default()
    });
    let mut notes = |second: u64, is_away: bool| {
        node.fake.borrow_mut().is_away = is_away;
        let state = node.step(second);
        assert!(is_up(&state));
        state.notes
    };
    assert_eq!(notes(0, true), [""; 0]);
    assert_eq!(notes(29, true), [""; 0]);
    let [line] = &notes(30, true)[..] else {
        panic!("no line")
    };
    assert!(line.contains("https://a.example does not answer"), "{line}");
    assert_eq!(notes(40, false), [""; 0]);
    assert_eq!(notes(50, true), [""; 0]);
}

#[test]
fn interface_of_another_name_is_reported_once_with_the_cure() {
    let mut node = Node::new(Fake::default());
    node.step(0);
    node.fake.borrow_mut().is_down = true;
    node.step(10);
    {
        let mut fake = node.fake.borrow_mut();
        fake.is_down = false;
        fake.interface = Some("vpn9");
    }
    node.step(20);
    node.step(30);
    assert_eq!(
        node.life.take_events(),
        [
            "the VPN is now on vpn9 with 100.64.0.1, and was on vpn7 with 100.64.0.1: restart the distro, if it was started before"
        ]
    );
}

/// A node whose interface has the peers b and c, and whose flannel has named these nodes.
fn wireguard_node() -> Node {
    let peer = |name: &str, address: [u8; 4]| Peer {
        name: name.to_owned(),
        key: Some(name.to_owned()),
        addresses: vec![address.into()],
        ..Peer::default()
    };
    let mut node = Node::new(Fake {
        peers: vec![peer("b", [10, 9, 0, 2]), peer("c", [10, 9, 0, 3])],
        ..Fake::default()
    });
    let record = Record::of(Selection {
        provider: ProviderName::Wireguard,
        interface: Some("vpn7".to_owned()),
        pods: Pods::Routes,
    });
    node.fake.borrow_mut().saved.push(record);
    node.restart();
    node.flannel("10.42.1.0/24");
    node.names(1, &[("10.42.2.0/24", 2), ("10.42.3.0/24", 3)]);
    node
}

impl Node {
    /// Notes a start of flannel, and the nodes that it names.
    fn names(&mut self, start: u32, others: &[(&str, u8)]) {
        let note = self.note.as_mut().unwrap();
        note.starts = start;
        for (subnet, last) in others {
            let subnet = subnet.parse().unwrap();
            note.others.retain(|other| other.subnet != subnet);
            note.others.push(Other {
                subnet,
                address: [10, 9, 0, *last].into(),
                key: None,
                start,
            });
        }
    }
}

#[test]
fn peers_get_the_subnets_of_their_nodes_and_lose_those_alone() {
    let mut node = wireguard_node();
    let state = node.step(0);
    assert_eq!(state.pods, prefixes("10.42.2.0/24 10.42.3.0/24"));
    assert_eq!(node.calls(), ["+b 10.42.2.0/24", "+c 10.42.3.0/24"]);
    assert_eq!(node.life.take_events().len(), 2);
    node.step(10);
    assert_eq!(node.calls(), [""; 0]);
    // The user has made the interface again.
    node.fake.borrow_mut().peers[0].routes.clear();
    node.step(20);
    assert_eq!(node.calls(), ["+b 10.42.2.0/24"]);
    // A subnet of the user's own stays at the end.
    let own = prefixes("192.168.7.0/24")[0];
    node.fake.borrow_mut().peers[1].routes.push(own);
    node.step(30);
    node.restart();
    node.life.end(true).unwrap();
    assert_eq!(node.calls(), ["-b 10.42.2.0/24", "-c 10.42.3.0/24"]);
    assert_eq!(node.fake.borrow().peers[1].routes, [own]);
    assert_eq!(node.fake.borrow().saved.last().unwrap().assigned, []);
}

#[test]
fn record_has_each_assignment_before_it_is_made() {
    let mut node = wireguard_node();
    node.step(0);
    let fake = node.fake.borrow();
    assert_eq!(fake.calls[0], "save 0");
    let first = &fake.saved[1];
    assert_eq!((first.assigned.len(), first.others.len()), (2, 2));
}

#[test]
fn peer_that_refuses_a_subnet_keeps_the_node_in_the_vpn() {
    let mut node = wireguard_node();
    node.fake.borrow_mut().refuses = true;
    let state = node.step(0);
    assert!(state.node.is_some(), "{state:?}");
    assert_eq!(state.pods, prefixes("10.42.2.0/24 10.42.3.0/24"));
    let text = state.notes.join(" ");
    assert!(text.contains("Invalid argument"), "{text}");
    // The record keeps both assignments, so that the end takes back either one that exists.
    assert_eq!(node.fake.borrow().saved.last().unwrap().assigned.len(), 2);
    node.fake.borrow_mut().refuses = false;
    node.step(10);
    assert!(node.calls().contains(&"+c 10.42.3.0/24".to_owned()));
}

#[test]
fn flannel_that_starts_again_has_the_time_to_name_all_nodes() {
    let mut node = wireguard_node();
    node.step(0);
    node.names(2, &[("10.42.3.0/24", 3)]);
    node.step(100);
    node.step(219);
    assert_eq!(node.calls().len(), 2);
    // b has left while flannel was away.
    let state = node.step(220);
    assert_eq!(node.calls(), ["-b 10.42.2.0/24"]);
    assert_eq!(state.pods, prefixes("10.42.3.0/24"));
}

#[test]
fn peers_are_as_before_a_boot_until_flannel_starts() {
    let mut node = wireguard_node();
    node.step(0);
    node.calls();
    node.note = None;
    let mut fake = node.fake.borrow_mut();
    fake.peers.iter_mut().for_each(|peer| peer.routes.clear());
    drop(fake);
    node.restart();
    node.step(10);
    assert_eq!(node.calls(), ["+b 10.42.2.0/24", "+c 10.42.3.0/24"]);
}

#[test]
fn interface_that_flannel_has_left_is_named_with_the_cure() {
    let mut node = Node::new(Fake::default());
    let subnet = prefixes("10.42.3.0/24")[0];
    node.fake.borrow_mut().left = Some(subnet);
    assert_eq!(node.step(0).notes, [""; 0], "flannel has not started yet");
    node.flannel("10.42.1.0/24");
    let notes = node.step(10).notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    for part in [
        "10.42.3.0/24",
        "through flannel.1",
        "ip link delete flannel.1",
    ] {
        assert!(notes[0].contains(part), "{notes:?}");
    }
    // With VXLAN it is flannel's own.
    let record = Record::of(Selection {
        provider: ProviderName::Interface,
        interface: Some("vpn7".to_owned()),
        pods: Pods::Vxlan,
    });
    node.fake.borrow_mut().saved.push(record);
    node.restart();
    assert_eq!(node.step(20).notes, [""; 0]);
}
