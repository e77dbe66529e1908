//! ADD that fails: what is undone, what is said.

use anyhow::ensure;
use serde_json::json;

use super::{Case, plain};
use crate::rules::bench::{Bench, WITH_A_AND_B};

pub(super) const CASES: &[Case] = &[
    plain("rollback-in-reverse", &["mux-11.6-reverse"], reverse),
    plain(
        "rollback-of-the-master-alone",
        &["mux-11.6-reverse"],
        master,
    ),
    plain(
        "rollback-words",
        &["mux-11.6-words", "mux-3.4-fragment"],
        words,
    ),
    plain("rollback-keeps-the-first-error", &["mux-11.6-first"], first),
    plain("rollback-code-of-the-plugin", &["mux-3.4-code"], code),
    plain("rollback-leaves-no-state", &["mux-11.6-state"], state),
    plain("rollback-within-a-list", &["mux-11.6-reverse"], list),
    plain(
        "rollback-of-a-crashed-plugin",
        &["mux-11.6-reverse", "mux-2-error"],
        crash,
    ),
    plain("rollback-of-real-networks", &["mux-11.6-reverse"], real),
    plain("rollback-then-del", &["mux-12.4-twice"], then_del),
];

fn reverse(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("reversed", "a,b,c")?;
    bench.fails("b", "ADD", 7, "no luck")?;
    bench.verb("ADD", &pod)?.error()?;
    bench.called(&pod, &WITH_A_AND_B)
}

fn master(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("reversed-master", "a")?;
    bench.fails("primary", "ADD", 7, "no luck")?;
    bench.verb("ADD", &pod)?.error()?;
    bench.called(&pod, &["ADD primary", "DEL primary"])
}

fn words(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("worded", "b")?;
    bench.fails("b", "ADD", 7, "no luck at all")?;
    bench.verb("ADD", &pod)?.tells(&[
        "CmdAdd (shim):",
        "error configuring pod [default/worded] networking",
        &format!("[default/worded/{}:b]", pod.uid),
        "error adding container to network",
        "no luck at all",
    ])
}

fn first(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("first-error", "a,b")?;
    bench.fails("b", "ADD", 7, "the first")?;
    bench.fails("a", "DEL", 8, "the second")?;
    let outcome = bench.verb("ADD", &pod)?;
    outcome.tells(&["the first"])?;
    bench.called(&pod, &WITH_A_AND_B)
}

fn code(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("coded", "b")?;
    bench.fails("b", "ADD", 117, "no luck")?;
    let outcome = bench.verb("ADD", &pod)?;
    outcome.has_code(117)?;
    ensure!(
        outcome.error()?["details"] == "told to",
        "{:?}",
        outcome.error()?
    );
    Ok(())
}

fn state(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("stateless", "b")?;
    bench.fails("b", "ADD", 7, "no luck")?;
    bench.verb("ADD", &pod)?.error()?;
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    Ok(())
}

fn list(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("list-reversed", "list")?;
    bench.answer("list", "ADD", &json!({"print": "no json"}))?;
    bench.verb("ADD", &pod)?.error()?;
    // The list is undone from its end, also the plugin whose turn never came.
    let order = bench.order(&pod)?;
    ensure!(
        order[..2] == ["ADD primary", "ADD list"]
            && order[2] == "DEL list"
            && order.last().is_some_and(|last| last == "DEL primary"),
        "{order:?}"
    );
    Ok(())
}

fn crash(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("crashed", "a,b")?;
    bench.answer("b", "ADD", &json!({"crash": true}))?;
    bench.verb("ADD", &pod)?.error()?;
    bench.called(&pod, &WITH_A_AND_B)
}

fn real(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("real-reversed", "storage,b")?;
    bench.fails("b", "ADD", 7, "no luck")?;
    bench.verb("ADD", &pod)?.error()?;
    let inside = bench.inside(&pod)?;
    ensure!(inside.is_empty(), "{inside:?}");
    let leases = bench.scene.node.list("/var/lib/cni/networks/storage")?;
    let left: Vec<_> = leases
        .iter()
        .filter(|name| name.starts_with("10."))
        .collect();
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

fn then_del(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("undone", "b")?;
    bench.fails("b", "ADD", 7, "no luck")?;
    bench.verb("ADD", &pod)?.error()?;
    bench.del(&pod)?;
    bench.end_netns(&pod)?;
    bench
        .verb_env("DEL", &pod, &json!({}), &[("CNI_NETNS", "")])?
        .well()?;
    ensure!(!bench.state_file(&pod).exists(), "its state is left");
    Ok(())
}
