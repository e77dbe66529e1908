//! CHECK, STATUS and GC.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::{
    rules::{
        bench::{Bench, Outcome},
        plugin::NOBODY,
    },
    single_node::BIN_DIR,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "check-of-a-whole-pod",
        &["mux-12.5-well", "mux-3.4-silent"],
        check_well,
    ),
    plain("check-asks-every-network", &["mux-12.5-check"], check_all),
    plain(
        "check-with-cached-results",
        &["mux-12.5-result"],
        check_results,
    ),
    plain(
        "check-fails-with-a-network",
        &["mux-12.5-fails"],
        check_fails,
    ),
    plain(
        "status-asks-the-master",
        &["mux-12.6-master"],
        status_master,
    ),
    plain(
        "status-fails-with-the-master",
        &["mux-12.6-master", "mux-2-error"],
        status_fails,
    ),
    plain("status-of-an-old-master", &["mux-12.6-old"], status_old),
    plain(
        "status-of-a-missing-master",
        &["mux-12.6-missing"],
        status_missing,
    ),
    plain(
        "status-code",
        &["mux-12.6-code", "mux-3.4-code"],
        status_code,
    ),
    plain(
        "gc-collects-what-is-not-listed",
        &["mux-12.7-collect"],
        gc_collects,
    ),
    plain("gc-keeps-what-is-listed", &["mux-12.7-keep"], gc_keeps),
    plain(
        "gc-without-results",
        &["mux-12.7-no-results"],
        gc_no_results,
    ),
    plain("gc-reaches-the-master", &["mux-12.7-plugins"], gc_plugins),
    plain(
        "gc-tells-what-is-listed",
        &["mux-12.7-told", "mux-12.7-networks"],
        gc_told,
    ),
];

fn check_well(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("checked", "a")?;
    let result = bench.add(&pod)?;
    let answer = bench
        .verb_with("CHECK", &pod, &json!({"prevResult": result}))?
        .well()?;
    ensure!(answer.is_null(), "{answer}");
    Ok(())
}

fn check_all(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("checked-all", "a,list,old")?;
    let result = bench.add(&pod)?;
    bench
        .verb_with("CHECK", &pod, &json!({"prevResult": result}))?
        .well()?;
    let checks: Vec<_> = bench
        .order(&pod)?
        .into_iter()
        .filter(|call| call.starts_with("CHECK"))
        .collect();
    // The one of 0.3.1 knows no CHECK.
    ensure!(
        checks == ["CHECK primary", "CHECK a", "CHECK list", "CHECK list"],
        "{checks:?}"
    );
    Ok(())
}

fn check_fails(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("checked-bad", "a")?;
    let result = bench.add(&pod)?;
    bench.fails("a", "CHECK", 7, "it is not there")?;
    bench
        .verb_with("CHECK", &pod, &json!({"prevResult": result}))?
        .tells(&["it is not there"])
}

fn about_the_node(bench: &Bench, verb: &str, keys: &Value) -> anyhow::Result<Outcome> {
    let config = bench.config_with(keys)?;
    bench.shim(
        &[("CNI_COMMAND", verb), ("CNI_PATH", BIN_DIR)],
        config.to_string().as_bytes(),
    )
}

fn asked(bench: &Bench, verb: &str, network: &str) -> anyhow::Result<usize> {
    let calls = bench.calls_for(NOBODY)?;
    Ok(calls
        .iter()
        .filter(|call| call.verb == verb && call.network() == network)
        .count())
}

fn status_master(bench: &Bench) -> anyhow::Result<()> {
    let mut keys = bench.own_primary("status-well", "1.1.0")?;
    keys["defaultNetworks"] = json!(["central"]);
    let answer = about_the_node(bench, "STATUS", &keys)?.well()?;
    ensure!(answer.is_null(), "{answer}");
    ensure!(
        asked(bench, "STATUS", "status-well")? == 1 && asked(bench, "STATUS", "central")? == 0,
        "{:?}",
        bench.calls_for(NOBODY)?
    );
    Ok(())
}

fn status_fails(bench: &Bench) -> anyhow::Result<()> {
    let keys = bench.own_primary("status-bad", "1.1.0")?;
    bench.fails("status-bad", "STATUS", 50, "it is down")?;
    about_the_node(bench, "STATUS", &keys)?.tells(&["it is down"])
}

fn status_old(bench: &Bench) -> anyhow::Result<()> {
    let keys = bench.own_primary("status-old", "1.0.0")?;
    bench.fails("status-old", "STATUS", 50, "it is down")?;
    about_the_node(bench, "STATUS", &keys)?.well()?;
    ensure!(
        asked(bench, "STATUS", "status-old")? == 0,
        "{:?}",
        bench.calls_for(NOBODY)?
    );
    Ok(())
}

fn status_code(bench: &Bench) -> anyhow::Result<()> {
    let keys = bench.own_primary("status-code", "1.1.0")?;
    bench.fails("status-code", "STATUS", 51, "few addresses")?;
    let outcome = about_the_node(bench, "STATUS", &keys)?;
    outcome.has_code(51)?;
    ensure!(
        outcome.error()?["details"] == "told to",
        "{:?}",
        outcome.error()?
    );
    Ok(())
}

fn gc_collects(bench: &Bench) -> anyhow::Result<()> {
    let (kept, lost) = (bench.pod("kept", "a")?, bench.pod("lost", "a,list")?);
    bench.add(&kept)?;
    bench.add(&lost)?;
    let valid = json!([{"containerID": kept.id, "ifname": "eth0"}]);
    about_the_node(bench, "GC", &json!({"cni.dev/valid-attachments": valid}))?.well()?;
    bench.called(
        &lost,
        &[
            "ADD primary",
            "ADD a",
            "ADD list",
            "ADD list",
            "DEL list",
            "DEL list",
            "DEL a",
            "DEL primary",
        ],
    )?;
    ensure!(!bench.state_file(&lost).exists(), "its state is left");
    bench.called(&kept, &["ADD primary", "ADD a"])
}

fn gc_keeps(bench: &Bench) -> anyhow::Result<()> {
    let pods = [bench.pod("listed-1", "a")?, bench.pod("listed-2", "")?];
    let mut valid = Vec::new();
    for pod in &pods {
        bench.add(pod)?;
        valid.push(json!({"containerID": pod.id, "ifname": "eth0"}));
    }
    let answer =
        about_the_node(bench, "GC", &json!({"cni.dev/valid-attachments": valid}))?.well()?;
    ensure!(answer.is_null(), "{answer}");
    for pod in &pods {
        ensure!(
            bench.order(pod)?.iter().all(|call| call.starts_with("ADD"))
                && bench.state_file(pod).exists(),
            "{:?}",
            bench.order(pod)?
        );
        bench.del(pod)?;
    }
    Ok(())
}

fn gc_no_results(bench: &Bench) -> anyhow::Result<()> {
    let dir = "/var/lib/cni/fresh";
    let outcome = about_the_node(
        bench,
        "GC",
        &json!({"cniDir": dir, "cni.dev/valid-attachments": []}),
    )?;
    let _ = std::fs::remove_dir_all(bench.scene.node.path(dir));
    outcome.well().map(drop)
}

fn gc_plugins(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("gc-listed", "")?;
    let keys = bench.own_primary("gc-master", "1.1.0")?;
    bench.add_with(&pod, &keys)?;
    let mut config = keys.clone();
    config["cni.dev/valid-attachments"] = json!([{"containerID": pod.id, "ifname": "eth0"}]);
    about_the_node(bench, "GC", &config)?.well()?;
    ensure!(
        asked(bench, "GC", "gc-master")? == 1,
        "{:?}",
        bench.calls_for(NOBODY)?
    );
    Ok(())
}

/// Of one CHECK by the cache: where upstream checks at all, by `delegates`.
fn check_results(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("checked-with", "")?;
    let one = json!({"cniVersion": "1.0.0", "name": "checked-one", "type": "recorder"});
    let keys = json!({"clusterNetwork": null, "delegates": [one]});
    let result = bench.add_with(&pod, &keys)?;
    let mut config = keys;
    config["prevResult"] = result;
    bench.verb_with("CHECK", &pod, &config)?.well()?;
    let call = bench.call(&pod, "CHECK", "checked-one")?;
    ensure!(
        call.stdin["prevResult"]["ips"][0]["address"] == "10.66.0.2/24",
        "{}",
        call.stdin
    );
    Ok(())
}

fn status_missing(bench: &Bench) -> anyhow::Result<()> {
    let keys = json!({"clusterNetwork": "/etc/cni/rules/nowhere.conflist"});
    about_the_node(bench, "STATUS", &keys)?.tells(&["nowhere"])
}

fn gc_told(bench: &Bench) -> anyhow::Result<()> {
    let (listed, lost) = (
        bench.pod("gc-told", "newest,a")?,
        bench.pod("gc-untold", "newest")?,
    );
    let keys = bench.own_primary("gc-telling", "1.1.0")?;
    bench.add_with(&listed, &keys)?;
    bench.add_with(&lost, &keys)?;
    let mut config = keys;
    config["cni.dev/valid-attachments"] = json!([{"containerID": listed.id, "ifname": "eth0"}]);
    about_the_node(bench, "GC", &config)?.well()?;
    for (network, ifname) in [("gc-telling", "eth0"), ("newest", "net1")] {
        let calls = bench.calls_for(NOBODY)?;
        let of_gc = calls.iter().filter(|call| call.verb == "GC");
        let told: Vec<_> = of_gc
            .filter(|call| call.network() == network)
            .map(|call| call.stdin["cni.dev/valid-attachments"].clone())
            .collect();
        let expected = json!([{"containerID": listed.id, "ifname": ifname}]);
        ensure!(told == [expected], "{network}: {told:?}");
    }
    Ok(())
}
