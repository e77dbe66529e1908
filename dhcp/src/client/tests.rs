//! Tests of the state machine: messages and times go in, messages come out.

use super::*;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: Mac = [2, 0, 0, 0, 0, 0xfe];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

fn config() -> Config {
    Config {
        mac: MAC,
        identifier: "container/network/net1".to_owned(),
        request: vec![3, 1],
        provide: vec![(code::HOST_NAME, b"pod".to_vec())],
        broadcast: false,
        requested_address: None,
        retry: Retry::default(),
        seed: 7,
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The one message among the actions.
fn sent(actions: Vec<Action>) -> Outgoing {
    match <[Action; 1]>::try_from(actions) {
        Ok([Action::Send(outgoing)]) => *outgoing,
        other => panic!("{other:?}"),
    }
}

fn failed(actions: Vec<Action>) -> Failure {
    match <[Action; 1]>::try_from(actions) {
        Ok([Action::Failed(failure)]) => failure,
        other => panic!("{other:?}"),
    }
}

fn reply(kind: Kind, to: &Message) -> Message {
    let mut message = Message::new(kind, to.transaction, to.mac);
    message
        .options
        .set(code::SERVER_IDENTIFIER, SERVER.octets());
    if kind != Kind::Nak {
        message.your_address = ADDRESS;
        message
            .options
            .set(code::LEASE_TIME, 800u32.to_be_bytes())
            .set(code::SUBNET_MASK, [255, 255, 255, 0]);
    }
    message
}

/// A client whose lease began at this time: it is renewed at 400 to 410 s, rebound at 700 s, and ends at 800 s after it.
fn bound(config: Config, now: Duration) -> Client {
    let (mut client, actions) = Client::start(config, now);
    let discover = sent(actions);
    let request = sent(client.receive(&reply(Kind::Offer, &discover.message), SERVER_MAC, now));
    let actions = client.receive(&reply(Kind::Ack, &request.message), SERVER_MAC, now);
    assert!(matches!(&actions[..], [Action::Keep(_)]), "{actions:?}");
    client
}

#[test]
fn lease_takes_four_messages() {
    let (mut client, actions) = Client::start(config(), seconds(5));
    let discover = sent(actions);
    assert_eq!(discover.message.kind, Kind::Discover);
    assert_eq!(
        (discover.source, discover.destination),
        (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST)
    );
    assert_eq!(discover.destination_mac, BROADCAST);
    let options = &discover.message.options;
    assert_eq!(
        options.get(code::CLIENT_IDENTIFIER),
        Some(&b"\0container/network/net1"[..])
    );
    assert_eq!(options.get(code::PARAMETER_REQUEST_LIST), Some(&[3, 1][..]));
    assert_eq!(options.get(code::HOST_NAME), Some(&b"pod"[..]));
    assert_eq!(options.get(code::REQUESTED_ADDRESS), None);

    let request = sent(client.receive(
        &reply(Kind::Offer, &discover.message),
        SERVER_MAC,
        seconds(6),
    ));
    assert_eq!(request.message.kind, Kind::Request);
    assert_eq!(request.destination, Ipv4Addr::BROADCAST);
    assert_eq!(request.message.client_address, Ipv4Addr::UNSPECIFIED);
    assert_eq!(request.message.seconds, 1);
    assert_eq!(
        request.message.options.address(code::REQUESTED_ADDRESS),
        Some(ADDRESS)
    );
    assert_eq!(
        request.message.options.address(code::SERVER_IDENTIFIER),
        Some(SERVER)
    );
    assert!(client.waits_for_reply());

    let actions = client.receive(&reply(Kind::Ack, &request.message), SERVER_MAC, seconds(9));
    let lease = client.lease().expect("it is bound").clone();
    assert_eq!(actions, [Action::Keep(Box::new(lease.clone()))]);
    // From the request on, not from the ACK on.
    assert_eq!((lease.address(), lease.began), (ADDRESS, seconds(6)));
    let deadline = client.deadline().unwrap();
    assert!(
        (seconds(406)..=seconds(416)).contains(&deadline),
        "{deadline:?}"
    );
    assert!(!client.waits_for_reply());
}

#[test]
fn messages_for_others_are_passed_over() {
    let (mut client, actions) = Client::start(config(), seconds(0));
    let discover = sent(actions).message;
    let offer = reply(Kind::Offer, &discover);
    let mut others = vec![
        offer.clone(),
        offer.clone(),
        offer.clone(),
        offer.clone(),
        reply(Kind::Ack, &discover),
        discover,
    ];
    others[0].transaction ^= 1;
    others[1].mac = [9; 6];
    others[2].your_address = Ipv4Addr::UNSPECIFIED;
    others[3].options.set(code::SERVER_IDENTIFIER, []);
    for message in others {
        assert!(
            client.receive(&message, SERVER_MAC, seconds(1)).is_empty(),
            "{message:?}"
        );
    }
    let request = sent(client.receive(&offer, SERVER_MAC, seconds(1))).message;
    let mut other = reply(Kind::Ack, &request);
    other.your_address = SERVER;
    assert!(client.receive(&other, SERVER_MAC, seconds(1)).is_empty());
    assert!(
        client.receive(&offer, SERVER_MAC, seconds(1)).is_empty(),
        "a second offer"
    );
}

#[test]
fn pauses_grow_until_the_limit() {
    let (mut client, actions) = Client::start(config(), seconds(100));
    sent(actions);
    let mut times = Vec::new();
    let failure = loop {
        let now = client.deadline().unwrap();
        times.push(now.as_secs_f64() - 100.0);
        let actions = client.advance(now);
        match &actions[..] {
            [Action::Send(outgoing)] => assert_eq!(outgoing.message.kind, Kind::Discover),
            _ => break failed(actions),
        }
    };
    assert_eq!(failure, Failure::NoLease(seconds(208)));
    let pauses: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let expected = [2.0, 2.0, 2.0, 4.0, 8.0, 16.0, 32.0, 62.0];
    for (pause, expected) in pauses.iter().zip(expected) {
        assert!((pause - expected).abs() <= 1.0, "{pauses:?}");
    }
    assert_eq!(times.last(), Some(&208.0));
    assert_eq!(client.deadline(), None);
    assert!(client.advance(seconds(1000)).is_empty());
}

#[test]
fn request_without_answer_leads_to_another_search() {
    let (mut client, actions) = Client::start(config(), seconds(0));
    let discover = sent(actions).message;
    sent(client.receive(&reply(Kind::Offer, &discover), SERVER_MAC, seconds(0)));
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let now = client.deadline().unwrap();
        kinds.push(sent(client.advance(now)).message.kind);
    }
    assert_eq!(
        kinds,
        [Kind::Request, Kind::Request, Kind::Request, Kind::Discover]
    );
}

#[test]
fn refused_offer_leads_to_another_search_after_a_pause() {
    let (mut client, actions) = Client::start(
        Config {
            requested_address: Some(ADDRESS),
            ..config()
        },
        seconds(0),
    );
    let discover = sent(actions).message;
    assert_eq!(
        discover.options.address(code::REQUESTED_ADDRESS),
        Some(ADDRESS)
    );
    let request =
        sent(client.receive(&reply(Kind::Offer, &discover), SERVER_MAC, seconds(0))).message;
    assert!(
        client
            .receive(&reply(Kind::Nak, &request), SERVER_MAC, seconds(1))
            .is_empty()
    );
    let now = client.deadline().unwrap();
    assert!((seconds(2)..=seconds(4)).contains(&now), "{now:?}");
    let again = sent(client.advance(now)).message;
    assert_eq!(
        (again.kind, again.options.address(code::REQUESTED_ADDRESS)),
        (Kind::Discover, None)
    );
    assert_ne!(again.transaction, discover.transaction);
}

#[test]
fn lease_is_renewed_by_its_server_then_by_any() {
    let mut client = bound(config(), seconds(0));
    let now = client.deadline().unwrap();
    let renewal = sent(client.advance(now));
    assert_eq!((renewal.source, renewal.destination), (ADDRESS, SERVER));
    assert_eq!(renewal.destination_mac, SERVER_MAC);
    assert_eq!(renewal.message.client_address, ADDRESS);
    assert_eq!(renewal.message.seconds, 0);
    assert_eq!(renewal.message.options.get(code::REQUESTED_ADDRESS), None);
    assert_eq!(renewal.message.options.get(code::SERVER_IDENTIFIER), None);
    assert_eq!(client.lease().map(Lease::address), Some(ADDRESS));
    // Half of what is left until T2, then the shortest pause, then T2.
    let mut times = Vec::new();
    let rebinding = loop {
        let now = client.deadline().unwrap();
        times.push(now.as_secs());
        let outgoing = sent(client.advance(now));
        if outgoing.destination == Ipv4Addr::BROADCAST {
            break outgoing;
        }
    };
    assert!((550..=555).contains(&times[0]), "{times:?}");
    assert_eq!(times.last(), Some(&700));
    assert_eq!(
        (rebinding.source, rebinding.destination_mac),
        (ADDRESS, BROADCAST)
    );
    assert_eq!(rebinding.message.client_address, ADDRESS);
    assert_eq!(rebinding.message.transaction, renewal.message.transaction);
    let actions = client.receive(&reply(Kind::Ack, &rebinding.message), [9; 6], seconds(701));
    assert!(
        matches!(&actions[..], [Action::Keep(lease)] if lease.began == seconds(700) && lease.server_mac == [9; 6])
    );
    let now = client.deadline().unwrap();
    assert!((seconds(1100)..=seconds(1110)).contains(&now), "{now:?}");
    assert_ne!(
        sent(client.advance(now)).message.transaction,
        renewal.message.transaction
    );
}

/// Lets a client pass its deadlines in silence until it loses the lease; returns when, why, and what it sent before that. The search
/// for another begins at once.
fn lose(client: &mut Client) -> (Duration, Failure, Vec<Outgoing>) {
    let mut before = Vec::new();
    loop {
        let now = client.deadline().unwrap();
        match <[Action; 2]>::try_from(client.advance(now)) {
            Ok([Action::Lost(failure), Action::Send(discover)]) => {
                assert_eq!(discover.message.kind, Kind::Discover);
                assert_eq!(
                    (client.lease(), requested_address(&discover)),
                    (None, Some(ADDRESS))
                );
                return (now, failure, before);
            }
            Ok(other) => panic!("{other:?}"),
            Err(actions) => before.push(sent(actions)),
        }
    }
}

/// The address that a message asks for.
fn requested_address(outgoing: &Outgoing) -> Option<Ipv4Addr> {
    let options = &outgoing.message.options;
    options.address(code::REQUESTED_ADDRESS)
}

/// Checks that a message asks all servers for the address that the interface has still.
fn check_reboot(outgoing: &Outgoing) {
    assert_eq!(outgoing.message.kind, Kind::Request);
    assert_eq!(requested_address(outgoing), Some(ADDRESS));
    assert_eq!(
        outgoing.message.options.get(code::SERVER_IDENTIFIER),
        None,
        "the request is for all"
    );
    assert_eq!(outgoing.destination, Ipv4Addr::BROADCAST);
    assert_eq!(
        (outgoing.source, outgoing.message.client_address),
        (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED)
    );
}

/// Grants the lease to a client that has lost it, and which the server hears from now on.
fn grant_again(client: &mut Client) {
    let now = client.deadline().unwrap();
    let discover = sent(client.advance(now));
    assert_eq!(requested_address(&discover), Some(ADDRESS));
    let request = sent(client.receive(&reply(Kind::Offer, &discover.message), SERVER_MAC, now));
    let actions = client.receive(&reply(Kind::Ack, &request.message), SERVER_MAC, now);
    assert!(
        matches!(&actions[..], [Action::Keep(lease)] if lease.address() == ADDRESS),
        "{actions:?}"
    );
    assert_eq!((client.lost(), client.waits_for_reply()), (None, false));
    let renewal = client.deadline().unwrap();
    assert!((now + seconds(400)..=now + seconds(410)).contains(&renewal));
}

#[test]
fn lease_that_no_server_renews_is_lost_until_one_returns() {
    let mut client = bound(config(), seconds(0));
    let (now, failure, _) = lose(&mut client);
    assert_eq!((now, failure), (seconds(800), Failure::Expired(ADDRESS)));
    assert_eq!(client.lost().map(Lease::address), Some(ADDRESS));
    assert_eq!(client.release(), None, "there is nothing to give back");
    // The search has no end, and a server that returns is asked within about a minute.
    let mut last = now;
    while last < seconds(100_000) {
        let now = client.deadline().unwrap();
        assert!(now > last && now <= last + seconds(63), "{last:?} {now:?}");
        assert_eq!(requested_address(&sent(client.advance(now))), Some(ADDRESS));
        last = now;
    }
    grant_again(&mut client);
}

#[test]
fn refused_lease_is_asked_for_while_it_lasts() {
    let refused = || {
        let mut client = bound(config(), seconds(0));
        let renewal = sent(client.advance(seconds(420))).message;
        let mut nak = reply(Kind::Nak, &renewal);
        nak.options.set(code::MESSAGE, "address not available");
        let reboot = sent(client.receive(&nak, SERVER_MAC, seconds(421)));
        check_reboot(&reboot);
        assert_ne!(reboot.message.transaction, renewal.transaction);
        assert_eq!(client.lease().map(Lease::address), Some(ADDRESS));
        (client, reboot)
    };

    // Another server knows the lease.
    let (mut client, reboot) = refused();
    let ack = reply(Kind::Ack, &reboot.message);
    let actions = client.receive(&ack, [9; 6], seconds(422));
    assert!(matches!(&actions[..], [Action::Keep(_)]), "{actions:?}");
    assert!(client.deadline().unwrap() >= seconds(821));

    // The server refuses once more, and then offers the address.
    let (mut client, reboot) = refused();
    let mut foreign = reply(Kind::Nak, &reboot.message);
    foreign.options.set(code::SERVER_IDENTIFIER, [10, 0, 0, 9]);
    assert!(client.receive(&foreign, [9; 6], seconds(422)).is_empty());
    let nak = reply(Kind::Nak, &reboot.message);
    let discover = sent(client.receive(&nak, SERVER_MAC, seconds(422)));
    assert_eq!(discover.message.kind, Kind::Discover);
    assert!(client.lease().is_some());
    grant_again(&mut client);

    // No server answers.
    let (mut client, _) = refused();
    let (now, failure, before) = lose(&mut client);
    assert_eq!(now, seconds(800));
    assert_eq!(
        failure.to_string(),
        "the DHCP server 10.0.0.1 refuses to renew the lease of 10.0.0.50: \"address not available\""
    );
    let (reboots, discovers) = before.split_at(3);
    reboots.iter().for_each(check_reboot);
    let are_searches = discovers
        .iter()
        .all(|outgoing| outgoing.message.kind == Kind::Discover);
    assert!(are_searches && !discovers.is_empty(), "{discovers:?}");
    grant_again(&mut client);
}

#[test]
fn address_that_the_server_gave_away_is_lost_at_once() {
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 51);
    let mut client = bound(config(), seconds(0));
    let renewal = sent(client.advance(seconds(420))).message;
    let mut ack = reply(Kind::Ack, &renewal);
    ack.your_address = OTHER;
    check_reboot(&sent(client.receive(&ack, SERVER_MAC, seconds(421))));
    let mut discover = loop {
        let now = client.deadline().unwrap();
        let outgoing = sent(client.advance(now));
        if outgoing.message.kind == Kind::Discover {
            break outgoing.message;
        }
    };
    // A server that did not grant the lease may know nothing of it.
    for server in [[10, 0, 0, 9], SERVER.octets()] {
        let now = client.deadline().unwrap();
        let mut offer = reply(Kind::Offer, &discover);
        offer.your_address = OTHER;
        offer.options.set(code::SERVER_IDENTIFIER, server);
        assert!(client.receive(&offer, SERVER_MAC, now).is_empty());
        if server == SERVER.octets() {
            let (lost, failure, before) = lose(&mut client);
            assert_eq!((lost, before.len()), (now, 0));
            assert_eq!(failure, Failure::Changed(ADDRESS, OTHER));
        } else {
            discover = sent(client.advance(now)).message;
        }
    }
    // A reason is reported once.
    let now = client.deadline().unwrap();
    let discover = sent(client.advance(now));
    let mut offer = reply(Kind::Offer, &discover.message);
    offer.your_address = OTHER;
    assert!(client.receive(&offer, SERVER_MAC, now).is_empty());
    grant_again(&mut client);
}

#[test]
fn lost_lease_for_which_another_address_is_offered_has_a_further_reason() {
    let lease = bound(config(), seconds(0)).lease().unwrap().clone();
    let mut client = Client::regain(config(), lease, seconds(900));
    assert_eq!(client.deadline(), Some(seconds(900)));
    assert_eq!(client.lease(), None);
    let discover = sent(client.advance(seconds(900)));
    let mut offer = reply(Kind::Offer, &discover.message);
    offer.your_address = Ipv4Addr::new(10, 0, 0, 51);
    assert!(client.receive(&offer, SERVER_MAC, seconds(900)).is_empty());
    let (_, failure, before) = lose(&mut client);
    assert_eq!(before.len(), 0);
    assert_eq!(failure, Failure::Changed(ADDRESS, offer.your_address));
    grant_again(&mut client);
}

#[test]
fn resumed_client_takes_the_step_that_is_due() {
    let lease = bound(config(), seconds(0)).lease().unwrap().clone();
    let resume = |now| {
        let mut client = Client::resume(config(), lease.clone(), seconds(now));
        client.advance(seconds(now))
    };
    assert!(resume(399).is_empty());
    assert_eq!(sent(resume(400)).destination, SERVER);
    assert_eq!(sent(resume(700)).destination, Ipv4Addr::BROADCAST);
    check_reboot(&sent(resume(800)));
}

#[test]
fn lease_that_expired_without_a_client_is_asked_for_before_it_is_lost() {
    let lease = bound(config(), seconds(0)).lease().unwrap().clone();
    let mut client = Client::resume(config(), lease, seconds(5000));
    let reboot = sent(client.advance(seconds(5000)));
    check_reboot(&reboot);
    let mut granted = client.clone();
    let (now, failure, before) = lose(&mut client);
    assert_eq!((now, failure), (seconds(5008), Failure::Expired(ADDRESS)));
    before.iter().for_each(check_reboot);
    assert!(before.len() >= 2, "{before:?}");
    grant_again(&mut client);

    let ack = reply(Kind::Ack, &reboot.message);
    let actions = granted.receive(&ack, SERVER_MAC, seconds(5001));
    assert!(matches!(&actions[..], [Action::Keep(_)]), "{actions:?}");
}

#[test]
fn lease_for_ever_is_never_renewed() {
    let (mut client, actions) = Client::start(config(), seconds(0));
    let discover = sent(actions).message;
    let request =
        sent(client.receive(&reply(Kind::Offer, &discover), SERVER_MAC, seconds(0))).message;
    let mut ack = reply(Kind::Ack, &request);
    ack.options.set(code::LEASE_TIME, [0xff; 4]);
    client.receive(&ack, SERVER_MAC, seconds(0));
    assert_eq!(client.deadline(), None);
    assert!(client.lease().is_some());
}

#[test]
fn release_goes_to_the_server() {
    let mut client = bound(config(), seconds(0));
    let outgoing = client.release().unwrap();
    assert_eq!(outgoing.message.kind, Kind::Release);
    assert_eq!(
        (outgoing.destination, outgoing.destination_mac),
        (SERVER, SERVER_MAC)
    );
    assert_eq!(outgoing.message.client_address, ADDRESS);
    assert_eq!(
        outgoing.message.options.get(code::CLIENT_IDENTIFIER),
        Some(&b"\0container/network/net1"[..])
    );
    assert_eq!(client.release(), None);
    let (mut client, _) = Client::start(config(), seconds(0));
    assert_eq!(client.release(), None);
}

#[test]
fn provided_identifier_takes_the_place_of_the_own_one() {
    let with = |identifier: &str, provide| {
        let config = Config {
            identifier: identifier.to_owned(),
            provide,
            broadcast: true,
            ..config()
        };
        let message = sent(Client::start(config, seconds(0)).1).message;
        assert!(message.wants_broadcast);
        message
            .options
            .get(code::CLIENT_IDENTIFIER)
            .unwrap()
            .to_vec()
    };
    assert_eq!(with("x", vec![(61, b"mine".to_vec())]), b"mine");
    assert_eq!(with(&"x".repeat(300), Vec::new()).len(), 255);
}

#[test]
fn client_without_an_answer_asks_for_broadcasts() {
    let (mut client, actions) = Client::start(config(), seconds(0));
    let mut discover = sent(actions).message;
    let mut wanted = vec![discover.wants_broadcast];
    for _ in 0..2 {
        let now = client.deadline().unwrap();
        discover = sent(client.advance(now)).message;
        wanted.push(discover.wants_broadcast);
    }
    assert_eq!(wanted, [false, false, true]);
    // What let the offer arrive is kept.
    let offer = reply(Kind::Offer, &discover);
    let request = sent(client.receive(&offer, SERVER_MAC, seconds(9)));
    assert!(request.message.wants_broadcast);
}

#[test]
fn seeds_make_transactions_differ() {
    let transaction = |seed| {
        sent(Client::start(Config { seed, ..config() }, seconds(0)).1)
            .message
            .transaction
    };
    assert_ne!(transaction(1), transaction(2));
}

/// The client's answer to an ACK with these lease time, T1 and T2, in seconds.
fn granted(times: [u32; 3], now: Duration) -> (Client, Vec<Action>) {
    let (mut client, actions) = Client::start(config(), now);
    let discover = sent(actions);
    let request = sent(client.receive(&reply(Kind::Offer, &discover.message), SERVER_MAC, now));
    let mut ack = reply(Kind::Ack, &request.message);
    let codes = [code::LEASE_TIME, code::RENEWAL_TIME, code::REBINDING_TIME];
    for (code, time) in codes.into_iter().zip(times) {
        ack.options.set(code, time.to_be_bytes());
    }
    let actions = client.receive(&ack, SERVER_MAC, now);
    (client, actions)
}

#[test]
fn renewal_times_of_zero_are_the_clients_to_choose() {
    let (client, _) = granted([800, 0, 0], seconds(5));
    let deadline = client.deadline().unwrap();
    assert!(deadline >= seconds(405), "{deadline:?}");
    let (client, _) = granted([1, 0, 0], seconds(5));
    assert_eq!(client.deadline(), Some(seconds(6)));
}

#[test]
fn lease_without_time_is_refused() {
    let (mut client, actions) = granted([0, 0, 0], seconds(5));
    assert_eq!(actions, []);
    assert_eq!(client.lease(), None);
    let end = config().retry.limit + seconds(100);
    let mut now = seconds(5);
    let failure = loop {
        now = client.deadline().unwrap().max(now);
        assert!(now < end, "it gives up");
        let actions = client.advance(now);
        if !matches!(&actions[..], [Action::Send(_)]) {
            break failed(actions);
        }
    };
    assert!(matches!(failure, Failure::NoLease(_)), "{failure}");
}

#[test]
fn lease_that_may_have_been_granted_is_given_back() {
    let (mut client, actions) = Client::start(config(), seconds(5));
    let discover = sent(actions);
    assert_eq!(client.clone().release(), None);
    sent(client.receive(
        &reply(Kind::Offer, &discover.message),
        SERVER_MAC,
        seconds(5),
    ));
    let release = client.release().unwrap();
    let server = release.message.options.address(code::SERVER_IDENTIFIER);
    assert_eq!(release.message.kind, Kind::Release);
    assert_eq!(
        (release.message.client_address, server),
        (ADDRESS, Some(SERVER))
    );
    assert_eq!((release.source, release.destination), (ADDRESS, SERVER));
    assert_eq!(client.deadline(), None);
}
