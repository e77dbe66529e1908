//! One more provider, which nothing else knows: what `vpn run` does with it and what `vpn status` says of it.

use std::{
    cell::RefCell,
    net::IpAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use vpn::{
    Prefix,
    flannel::Note,
    kernel::{Link, Network},
    life::{Input, Life, Store},
    provider::{Guide, Login, Peer, Phase, Provider, ProviderError, Settings, Status},
    state::Record,
    status::{Report, Sources, findings},
};

static MESH: Guide = Guide {
    program: "mesh",
    up: "mesh join",
    ranges: &["10.200.0.0/16"],
    ..Guide::PLAIN
};

/// Its nodes may be named by anyone, so all that they advertise is approved at once.
#[derive(Clone)]
struct Mesh {
    phase: Phase,
    advertised: Rc<RefCell<Vec<Prefix>>>,
}

impl Provider for Mesh {
    fn status(&self) -> Result<Status, ProviderError> {
        Ok(Status {
            phase: self.phase.clone(),
            own: Peer {
                name: "a".to_owned(),
                addresses: vec![[10, 200, 0, 1].into()],
                routes: self.advertised.borrow().clone(),
                is_online: true,
                ..Peer::default()
            },
            ..Status::default()
        })
    }

    fn guide(&self) -> &'static Guide {
        &MESH
    }

    fn settings(&self) -> Result<Settings, ProviderError> {
        Ok(Settings {
            advertised: self.advertised.borrow().clone(),
            accepts_routes: true,
            ..Settings::default()
        })
    }

    fn ping(&self, _: IpAddr) -> Result<Duration, ProviderError> {
        Ok(Duration::ZERO)
    }

    fn advertise(&self, routes: &[Prefix]) -> Result<(), ProviderError> {
        *self.advertised.borrow_mut() = routes.to_vec();
        Ok(())
    }
}

struct Nowhere;

impl Store for Nowhere {
    fn save(&mut self, _: &Record) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn provider_that_nothing_else_names_announces_pods_and_has_its_own_words() {
    let advertised = Rc::default();
    let mesh = |phase| Mesh {
        phase,
        advertised: Rc::clone(&advertised),
    };
    let mut network = Network::default();
    let link = Link {
        name: "mesh0".to_owned(),
        mtu: 1400,
        ..Link::default()
    };
    network.links.insert(7, link);
    network.addresses.push(([10, 200, 0, 1].into(), 7));
    let subnet: Prefix = "10.42.1.0/24".parse().unwrap();
    let note = Note {
        subnets: vec![subnet],
        networks: vec!["10.42.0.0/16".parse().unwrap()],
        ..Note::default()
    };
    let step = |phase| {
        let mut life = Life::new(Box::new(mesh(phase)), Nowhere, Record::default());
        let state = life.step(&Input {
            now: Instant::now(),
            login: &Login::default(),
            configured: &[],
            leaves_sources: false,
            note: Some(&note),
            cluster: &[],
            network: &|| Ok(network.clone()),
        });
        (life, state)
    };
    let (_, state) = step(Phase::NeedsLogin(None));
    assert!(state.problem.unwrap().contains("run mesh join, or"));
    let (mut life, state) = step(Phase::Running);
    assert_eq!(*advertised.borrow(), [subnet]);
    assert_eq!((state.advertised, state.lan), (vec![subnet], Vec::new()));
    let status = mesh(Phase::Running).status();
    let report = Report::new(&Sources {
        provider: &MESH,
        status: status.as_ref(),
        settings: &mesh(Phase::Running).settings().unwrap(),
        record: &Record::default(),
        cluster: &note.networks,
        pods: &note.networks,
        subnets: &note.subnets,
        others: &[],
        has_flannel: true,
        is_kept: true,
        network: &network,
        forwards: (true, true),
        now: "2026-11-26T10:00:00Z".parse().unwrap(),
    });
    assert!(report.summary().starts_with("mesh "));
    let found: Vec<String> = findings(&report, None)
        .into_iter()
        .map(|finding| finding.text)
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("mesh makes no rules"), "{found:?}");
    life.end(false).unwrap();
    assert_eq!(*advertised.borrow(), []);
}
