//! Addresses of hardware in the annotation, and annotations that are refused.

use anyhow::ensure;
use serde_json::json;

use super::{Case, plain};
use crate::rules::bench::Bench;

pub(super) const CASES: &[Case] = &[
    plain("annotation-mac-writings", &["mux-9.1-mac"], macs),
    plain("annotation-guid", &["mux-9.1-guid-given"], guid),
    plain("annotation-refused-and-told", &["mux-9.1-told"], told),
];

/// Of 6, 8 and 20 bytes, with colons, hyphens and dots.
fn macs(bench: &Bench) -> anyhow::Result<()> {
    for (number, mac) in ["02:00:00:00:00:07", "02-00-00-00-00-07", "0200.0000.0007"]
        .into_iter()
        .enumerate()
    {
        let networks = json!([{"name": "capable", "mac": mac}]).to_string();
        let pod = bench.pod(&format!("mac-{number}"), &networks)?;
        bench.add(&pod)?;
        let call = bench.call(&pod, "ADD", "capable")?;
        ensure!(call.stdin["runtimeConfig"]["mac"] == mac, "{}", call.stdin);
        let args = call.variable("CNI_ARGS");
        ensure!(args.contains(&format!("MAC={mac}")), "{args}");
    }
    for (number, mac) in ["02:00:00:00:07", "02:00:00:00:00:0g"]
        .into_iter()
        .enumerate()
    {
        let networks = json!([{"name": "capable", "mac": mac}]).to_string();
        let pod = bench.pod(&format!("mac-not-{number}"), &networks)?;
        bench.verb("ADD", &pod)?.tells(&[mac])?;
        bench.called(&pod, &[])?;
    }
    Ok(())
}

fn guid(bench: &Bench) -> anyhow::Result<()> {
    let guid = "02:00:00:00:00:00:00:07";
    let networks = json!([{"name": "fabric", "infiniband-guid": guid}]).to_string();
    let pod = bench.pod("guided", &networks)?;
    bench.add(&pod)?;
    let call = bench.call(&pod, "ADD", "fabric")?;
    let expected = json!({"infinibandGUID": guid});
    ensure!(call.stdin["runtimeConfig"] == expected, "{}", call.stdin);
    Ok(())
}

fn told(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("refused-and-told", "a/b/c")?;
    bench.verb("ADD", &pod)?.error()?;
    bench.called(&pod, &[])?;
    bench.event(&pod, "FailedAddNetwork", "failed at '/'")
}
