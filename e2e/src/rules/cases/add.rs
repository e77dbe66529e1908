//! Cases of subject `add`: ADD.

use std::fs;

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::{rules::harness::Harness, sh};

cases! { "add":
    plain one_after_the_other ["add.sequential", "add.state-first"]
    plain pods_in_parallel ["add.parallel"]
    plain default_network ["add.default-interface", "add.result", "forward.result-version"]
    plain interface_names ["add.interface-names", "add.requested-interface"]
    plain interface_exists ["add.interface-exists"]
    plain interface_twice ["add.interface-twice"]
    plain networks_of_all_versions ["add.mixed-versions"]
    plain empty_result ["add.empty-result"]
    plain real_bridge ["add.result", "del.twice"]
}

fn default_network(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("alone", "")?;
    let result = harness.add(&pod)?;
    ensure!(result["cniVersion"] == "1.1.0", "{result}");
    ensure!(result["interfaces"][0]["name"] == "eth0", "{result}");
    ensure!(result["ips"][0]["address"] == "10.65.0.2/24", "{result}");
    let pod = harness.pod("accompanied", "a")?;
    let result = harness
        .verb_env(
            "ADD",
            &pod,
            &json!({"cniVersion": "0.4.0"}),
            &[("CNI_IFNAME", "main0")],
        )?
        .success()?;
    ensure!(
        result["cniVersion"] == "0.4.0" && result["ips"][0]["address"] == "10.65.0.2/24",
        "{result}"
    );
    ensure!(result["interfaces"][0]["name"] == "main0", "{result}");
    let call = harness.call(&pod, "ADD", "primary")?;
    ensure!(call.variable("CNI_IFNAME") == "main0", "{call:?}");
    Ok(())
}

fn interface_names(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod(
        "named",
        r#"[{"name": "a", "interface": "ext0"}, {"name": "b"}, {"name": "a"}]"#,
    )?;
    harness.add(&pod)?;
    let names = |verb: &str| {
        let calls = harness.calls(&pod)?;
        anyhow::Ok(
            calls
                .iter()
                .filter(|call| call.verb == verb)
                .map(|call| call.variable("CNI_IFNAME").to_owned())
                .collect::<Vec<_>>(),
        )
    };
    ensure!(
        names("ADD")? == ["eth0", "ext0", "net2", "net3"],
        "{:?}",
        names("ADD")?
    );
    harness.del(&pod)?;
    ensure!(
        names("DEL")? == ["net3", "net2", "ext0", "eth0"],
        "{:?}",
        names("DEL")?
    );
    let pod = harness.attach("named-short", "a@short0,b")?;
    ensure!(
        harness.call(&pod, "ADD", "a")?.variable("CNI_IFNAME") == "short0",
        "{:?}",
        harness.calls(&pod)?
    );
    Ok(())
}

fn interface_exists(harness: &Harness) -> anyhow::Result<()> {
    for (name, link) in [("taken", "net1"), ("taken-default", "eth0")] {
        let pod = harness.pod(name, "a")?;
        let (netns, peer) = (&pod.netns_name, "peer0");
        harness.node().run(&[
            "ip", "-n", netns, "link", "add", link, "type", "veth", "peer", "name", peer,
        ])?;
        harness
            .verb("ADD", &pod)?
            .error_contains(&[&format!("interface name {link} already exists")])?;
    }
    Ok(())
}

fn interface_twice(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("twice", "a@same0,b@same0")?;
    harness.ensure_refused(&pod, &["same0"])
}

fn one_after_the_other(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("in-turn", "a")?;
    harness.set_answer("primary", "ADD", &json!({"wait_for": "/run/go"}))?;
    let running = harness.spawn_verb("ADD", &pod)?;
    let seen = sh::until(10, "the first plugin is called", || {
        harness.call(&pod, "ADD", "primary")
    });
    let (calls, state) = (harness.call_order(&pod), harness.state(&pod));
    harness.node().write("/run/go", b"")?;
    let outcome = running.within(10);
    fs::remove_file(harness.node().path("/run/go"))?;
    seen?;
    outcome?.success()?;
    ensure!(calls? == ["ADD primary"], "the second plugin did not wait");
    ensure!(
        state?.as_array().is_some_and(|list| list.len() == 2),
        "state was not written first"
    );
    harness.expect_calls(&pod, &["ADD primary", "ADD a"])
}

fn pods_in_parallel(harness: &Harness) -> anyhow::Result<()> {
    let (slow, quick) = (harness.pod("slow", "a")?, harness.pod("quick", "b")?);
    harness.set_answer("a", "ADD", &json!({"wait_for": "/run/go"}))?;
    let running = harness.spawn_verb("ADD", &slow)?;
    let outcome = sh::until(10, "the plugin is called", || {
        harness.call(&slow, "ADD", "a")
    })
    .and_then(|_| harness.spawn_verb("ADD", &quick)?.within(10)?.success());
    harness.node().write("/run/go", b"")?;
    let ended = running.within(10);
    fs::remove_file(harness.node().path("/run/go"))?;
    outcome?;
    ended?.success().map(drop)
}

fn networks_of_all_versions(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("mixed", "old,oldest,newest,a")?;
    harness.del(&pod)?;
    for (network, version) in [
        ("old", "0.3.1"),
        ("oldest", "0.2.0"),
        ("newest", "1.1.0"),
        ("a", "1.0.0"),
    ] {
        for verb in ["ADD", "DEL"] {
            let call = harness.call(&pod, verb, network)?;
            ensure!(
                call.stdin["cniVersion"] == version,
                "{verb} {network}: {}",
                call.stdin
            );
        }
    }
    Ok(())
}

fn empty_result(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.pod("empty-result", "a")?;
    harness.set_answer(
        "a",
        "ADD",
        &json!({"result": {"cniVersion": "1.0.0", "dns": {}}}),
    )?;
    harness.add(&pod)?;
    harness.expect_calls(&pod, &["ADD primary", "ADD a"])
}

fn real_bridge(harness: &Harness) -> anyhow::Result<()> {
    let pod = harness.attach("bridged", "storage,storage")?;
    let inside = harness.addresses_in(&pod)?;
    ensure!(inside.keys().eq(["net1", "net2"]), "{inside:?}");
    let status = harness.network_status(&pod)?;
    for (entry, name) in status[1..].iter().zip(["net1", "net2"]) {
        let bare = inside[name][0]
            .split('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        ensure!(
            entry["interface"] == name && entry["ips"] == json!([bare]),
            "{entry}, inside {inside:?}"
        );
    }
    harness.del(&pod)?;
    harness.delete_netns(&pod)?;
    harness
        .verb_env("DEL", &pod, &json!({}), &[("CNI_NETNS", "")])?
        .success()?;
    crate::node::inspect::nothing_left(harness.node())
}
