//! ADD as a runtime sees it.

use anyhow::ensure;

use super::{Case, plain};
use crate::rules::bench::Bench;

pub(super) const CASES: &[Case] = &[plain(
    "add-master-alone",
    &[
        "mux-11.1-master",
        "mux-11.4-result",
        "mux-3.4-result-version",
    ],
    master,
)];

fn master(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("alone", "")?;
    let result = bench.add(&pod)?;
    ensure!(result["cniVersion"] == "1.1.0", "{result}");
    ensure!(result["interfaces"][0]["name"] == "eth0", "{result}");
    bench.called(&pod, &["ADD primary"])?;
    let status = bench.status(&pod)?;
    ensure!(
        status.len() == 1 && status[0]["default"] == true,
        "{status:?}"
    );
    bench.del(&pod)
}
