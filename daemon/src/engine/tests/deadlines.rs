//! Plugins of one verb that take too long together, and requests that nobody waits for.

use std::time::{Duration, Instant};

use super::fixture::{Fixture, PluginCall, pod, request};
use crate::engine::{Cancellation, ContainerRequest};

/// A request that came some seconds ago.
fn request_of(seconds: u64) -> ContainerRequest {
    let since = Instant::now()
        .checked_sub(Duration::from_secs(seconds))
        .unwrap();
    ContainerRequest {
        cancellation: Cancellation::since(since),
        ..request("c1")
    }
}

fn add(fixture: &Fixture, request: &ContainerRequest) -> String {
    let added = fixture.engine.add(request, &fixture.netconf(), &pod("a"));
    added.unwrap_err().to_string()
}

#[test]
fn add_stops_within_a_chain_when_its_runtime_has_given_up() {
    let fixture = Fixture::new();
    let request = request_of(0);
    let cancellation = request.cancellation.clone();
    fixture.on_call(move |call: &PluginCall| {
        if call.text() == "ADD flannel eth0" {
            cancellation.cancel();
        }
        Ok(())
    });
    let error = add(&fixture, &request);
    assert!(error.contains("given up waiting"), "{error}");
    fixture.check_calls(&["ADD flannel eth0", "DEL portmap eth0", "DEL flannel eth0"]);
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}

#[test]
fn add_ends_before_the_shim_stops_waiting() {
    let fixture = Fixture::new();
    let error = add(&fixture, &request_of(151));
    assert!(error.contains("time of the request is over"), "{error}");
    let calls: Vec<_> = fixture.calls().iter().map(PluginCall::text).collect();
    assert!(
        calls.iter().all(|call| call.starts_with("DEL")),
        "{calls:?}"
    );
}

#[test]
fn plugins_get_the_time_that_their_request_has_left() {
    let fixture = Fixture::new();
    let request = request_of(100);
    let added = fixture.engine.add(&request, &fixture.netconf(), &pod("a"));
    added.unwrap();
    for call in fixture.calls() {
        let seconds = call.time.as_secs_f64();
        assert!((40.0..=50.0).contains(&seconds), "{seconds}");
    }
}

#[test]
fn del_divides_its_time_among_the_networks_and_always_has_some() {
    let fixture = Fixture::new();
    for (age, left) in [(5, 160), (1000, 20)] {
        fixture.add("c1", "a").unwrap();
        fixture.calls();
        let netconf = fixture.netconf();
        fixture
            .engine
            .del(&request_of(age), &netconf, None)
            .unwrap();
        let calls = fixture.calls();
        let texts: Vec<_> = calls.iter().map(PluginCall::text).collect();
        assert_eq!(
            texts,
            ["DEL macvlan net1", "DEL portmap eth0", "DEL flannel eth0"]
        );
        let near = |time: Duration, expected: u64| {
            let expected = Duration::from_secs(expected);
            assert!(
                time <= expected && time + Duration::from_secs(5) > expected,
                "{time:?}"
            );
        };
        near(calls[0].time, left / 2);
        near(calls[2].time, left);
    }
}
