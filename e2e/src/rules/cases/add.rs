//! ADD: order, names, what plugins are told, what the runtime gets.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Case, plain};
use crate::{rules::bench::Bench, sh, single_node::BIN_DIR};

pub(super) const CASES: &[Case] = &[
    plain(
        "add-master-alone",
        &[
            "mux-11.1-master",
            "mux-11.4-result",
            "mux-3.4-result-version",
        ],
        master,
    ),
    plain(
        "add-names-by-position",
        &["mux-11.1-index", "mux-11.1-requested"],
        names,
    ),
    plain("add-name-taken", &["mux-11.2-taken"], taken),
    plain("add-name-asked-for-twice", &["mux-11.2-twice"], twice),
    plain(
        "add-args-of-plugins",
        &["mux-11.2-args", "mux-11.2-env"],
        args,
    ),
    plain("add-addresses-in-args", &["mux-11.2-ip-mac"], addresses),
    plain(
        "add-other-args-of-the-runtime",
        &["mux-11.2-other-args"],
        other_args,
    ),
    plain("add-result-cache", &["mux-11.2-cache"], cache),
    plain("add-plugin-missing", &["mux-11.2-missing"], missing),
    plain("add-plugin-being-replaced", &["mux-11.2-busy"], busy),
    plain(
        "add-one-after-the-other",
        &["mux-11-sequential", "mux-11-state-first"],
        sequential,
    ),
    plain("add-pods-side-by-side", &["mux-11-parallel"], parallel),
    plain(
        "add-networks-of-all-versions",
        &["mux-11.4-versions"],
        versions,
    ),
    plain("add-empty-result", &["mux-11.4-empty"], empty),
    plain("add-event", &["mux-11.7-added"], event),
    plain(
        "add-real-bridge",
        &["mux-11.4-result", "mux-12.4-twice"],
        bridge,
    ),
];

fn master(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("alone", "")?;
    let result = bench.add(&pod)?;
    ensure!(result["cniVersion"] == "1.1.0", "{result}");
    ensure!(result["interfaces"][0]["name"] == "eth0", "{result}");
    ensure!(result["ips"][0]["address"] == "10.65.0.2/24", "{result}");
    let pod = bench.pod("accompanied", "a")?;
    let result = bench
        .verb_env(
            "ADD",
            &pod,
            &json!({"cniVersion": "0.4.0"}),
            &[("CNI_IFNAME", "main0")],
        )?
        .well()?;
    ensure!(
        result["cniVersion"] == "0.4.0" && result["ips"][0]["address"] == "10.65.0.2/24",
        "{result}"
    );
    ensure!(result["interfaces"][0]["name"] == "main0", "{result}");
    let call = bench.call(&pod, "ADD", "primary")?;
    ensure!(call.variable("CNI_IFNAME") == "main0", "{call:?}");
    Ok(())
}

fn names(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod(
        "named",
        r#"[{"name": "a", "interface": "ext0"}, {"name": "b"}, {"name": "a"}]"#,
    )?;
    bench.add(&pod)?;
    let names = |verb: &str| {
        let calls = bench.calls(&pod)?;
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
    bench.del(&pod)?;
    ensure!(
        names("DEL")? == ["net3", "net2", "ext0", "eth0"],
        "{:?}",
        names("DEL")?
    );
    let pod = bench.pod("named-short", "a@short0,b")?;
    bench.add(&pod)?;
    ensure!(
        bench.call(&pod, "ADD", "a")?.variable("CNI_IFNAME") == "short0",
        "{:?}",
        bench.calls(&pod)?
    );
    Ok(())
}

fn taken(bench: &Bench) -> anyhow::Result<()> {
    for (name, link) in [("taken", "net1"), ("taken-master", "eth0")] {
        let pod = bench.pod(name, "a")?;
        let (netns, peer) = (pod.netns_name(), "peer0");
        bench.scene.node.run(&[
            "ip", "-n", &netns, "link", "add", link, "type", "veth", "peer", "name", peer,
        ])?;
        bench
            .verb("ADD", &pod)?
            .tells(&[&format!("interface name {link} already exists")])?;
    }
    Ok(())
}

fn twice(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("twice", "a@same0,b@same0")?;
    bench.verb("ADD", &pod)?.tells(&["same0"])?;
    bench.called(&pod, &[])
}

fn args(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("argued", "a")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    for call in bench.calls(&pod)? {
        let args = call.variable("CNI_ARGS");
        let expected = pod.args().replace("IgnoreUnknown=1", "IgnoreUnknown=true");
        ensure!(
            args.starts_with(&expected),
            "{args} does not begin with {expected}"
        );
        for (key, value) in [
            ("CNI_CONTAINERID", pod.id.as_str()),
            ("CNI_NETNS", &pod.netns()),
        ] {
            ensure!(
                call.variable(key) == value,
                "{key} is {}",
                call.variable(key)
            );
        }
    }
    Ok(())
}

fn addresses(bench: &Bench) -> anyhow::Result<()> {
    let asked =
        r#"[{"name": "a", "ips": ["10.66.0.7/24", "fd00::7/64"], "mac": "02:00:00:00:00:07"}]"#;
    let pod = bench.pod("addressed", asked)?;
    bench.add(&pod)?;
    let call = bench.call(&pod, "ADD", "a")?;
    let args: Vec<_> = call.variable("CNI_ARGS").split(';').collect();
    for expected in ["IP=10.66.0.7/24,fd00::7/64", "MAC=02:00:00:00:00:07"] {
        ensure!(args.contains(&expected), "no {expected} in {args:?}");
    }
    let call = bench.call(&pod, "ADD", "primary")?;
    ensure!(!call.variable("CNI_ARGS").contains("MAC="), "{call:?}");
    Ok(())
}

fn other_args(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("argued-more", "")?;
    let args = format!("{};VENDOR=x", pod.args());
    bench
        .verb_env("ADD", &pod, &json!({}), &[("CNI_ARGS", &args)])?
        .well()?;
    let call = bench.call(&pod, "ADD", "primary")?;
    ensure!(
        call.variable("CNI_ARGS")
            .split(';')
            .any(|item| item == "VENDOR=x"),
        "{}",
        call.variable("CNI_ARGS")
    );
    Ok(())
}

fn cache(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("cached", "a")?;
    bench.add(&pod)?;
    let file = |network: &str, ifname: &str| {
        bench.scene.node.path(&format!(
            "/var/lib/cni/multus/results/{network}-{}-{ifname}",
            pod.id
        ))
    };
    for (network, ifname) in [("primary", "eth0"), ("a", "net1")] {
        let file = file(network, ifname);
        let mode = fs::metadata(&file)
            .with_context(|| format!("no {}", file.display()))?
            .permissions()
            .mode()
            & 0o777;
        let cached: Value = serde_json::from_slice(&fs::read(&file)?)?;
        ensure!(mode == 0o600, "mode {mode:o}");
        ensure!(
            cached["kind"] == "cniCacheV1" && cached["containerId"] == pod.id.as_str(),
            "{cached}"
        );
        ensure!(
            cached["ifName"] == ifname && cached["networkName"] == network,
            "{cached}"
        );
        ensure!(
            cached["result"]["ips"].is_array() && cached["config"].is_string(),
            "{cached}"
        );
    }
    bench.del(&pod)?;
    ensure!(
        !file("primary", "eth0").exists() && !file("a", "net1").exists(),
        "results are left"
    );
    Ok(())
}

fn missing(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("plugin-missing", "a,absent-plugin")?;
    bench.verb("ADD", &pod)?.tells(&["e2e-no-such-plugin"])?;
    bench.called(&pod, &[])
}

fn busy(bench: &Bench) -> anyhow::Result<()> {
    let plugin = bench.scene.node.path(&format!("{BIN_DIR}/recorder-other"));
    let pod = bench.pod("busy", "list")?;
    let writer = fs::File::options().write(true).open(&plugin)?;
    let running = bench.begin("ADD", &pod)?;
    // The plugin before it has run, so it is its turn.
    let turn = sh::until(10, "the plugin before it is called", || {
        bench.call(&pod, "ADD", "list")
    });
    drop(writer);
    let outcome = running.within(20)?;
    turn?;
    outcome.well().map(drop)
}

fn sequential(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("in-turn", "a")?;
    bench.answer("primary", "ADD", &json!({"wait_for": "/run/go"}))?;
    let running = bench.begin("ADD", &pod)?;
    let seen = sh::until(10, "the first plugin is called", || {
        bench.call(&pod, "ADD", "primary")
    });
    let (calls, state) = (bench.order(&pod), bench.state(&pod));
    bench.scene.node.write("/run/go", b"")?;
    let outcome = running.within(10);
    fs::remove_file(bench.scene.node.path("/run/go"))?;
    seen?;
    outcome?.well()?;
    ensure!(calls? == ["ADD primary"], "the second did not wait");
    ensure!(
        state?.as_array().is_some_and(|list| list.len() == 2),
        "state was not written first"
    );
    bench.called(&pod, &["ADD primary", "ADD a"])
}

fn parallel(bench: &Bench) -> anyhow::Result<()> {
    let (slow, quick) = (bench.pod("slow", "a")?, bench.pod("quick", "b")?);
    bench.answer("a", "ADD", &json!({"wait_for": "/run/go"}))?;
    let running = bench.begin("ADD", &slow)?;
    let outcome = sh::until(10, "the plugin is called", || bench.call(&slow, "ADD", "a"))
        .and_then(|_| bench.begin("ADD", &quick)?.within(10)?.well());
    bench.scene.node.write("/run/go", b"")?;
    let ended = running.within(10);
    fs::remove_file(bench.scene.node.path("/run/go"))?;
    outcome?;
    ended?.well().map(drop)
}

fn versions(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("mixed", "old,oldest,newest,a")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    for (network, version) in [
        ("old", "0.3.1"),
        ("oldest", "0.2.0"),
        ("newest", "1.1.0"),
        ("a", "1.0.0"),
    ] {
        for verb in ["ADD", "DEL"] {
            let call = bench.call(&pod, verb, network)?;
            ensure!(
                call.stdin["cniVersion"] == version,
                "{verb} {network}: {}",
                call.stdin
            );
        }
    }
    Ok(())
}

fn empty(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("hollow", "a")?;
    bench.answer(
        "a",
        "ADD",
        &json!({"result": {"cniVersion": "1.0.0", "dns": {}}}),
    )?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD primary", "ADD a"])
}

fn event(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("eventful", "a")?;
    bench.add(&pod)?;
    bench.event(
        &pod,
        "AddedInterface",
        "Add eth0 [10.65.0.2/24] from primary",
    )?;
    bench.event(
        &pod,
        "AddedInterface",
        "Add net1 [10.66.0.2/24] from default/a",
    )
}

fn bridge(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("bridged", "storage,storage")?;
    bench.add(&pod)?;
    let inside = bench.inside(&pod)?;
    ensure!(inside.keys().eq(["net1", "net2"]), "{inside:?}");
    let status = bench.status(&pod)?;
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
    bench.del(&pod)?;
    bench.end_netns(&pod)?;
    bench
        .verb_env("DEL", &pod, &json!({}), &[("CNI_NETNS", "")])?
        .well()?;
    crate::node::inspect::nothing_left(&bench.scene.node)
}
