//! `multus-daemon doctor`: what is wrong on this node, as far as a daemon's image can see it: the runtime, its directories, the daemons, and
//! what new pods need. The distro's own settings are examined by `multus-distro doctor`, which reads them.

use std::io::Write;

use node::{
    discover::discover,
    examination::{self, Examination, Outcome},
};

use super::{CommandContext, discover};

/// The unit by which `multus-distro` keeps the node on its VPN.
const VPN_UNIT: &str = "/etc/systemd/system/multus-vpn.service";

/// Prints the examination; fails when something is wrong.
pub async fn run(context: &CommandContext, all: bool, json: bool) -> anyhow::Result<()> {
    let (root, config) = (context.root()?, context.config()?);
    let report = discover(&root, &discover::options(context, &config)).await;
    let mut node = Examination::default();
    if root.exists(VPN_UNIT) {
        node.fact(
            "vpn",
            "used; `multus-distro doctor` on the node examines it",
        );
    }
    examination::check_multus(&root, &report, &config.socket_dir, &mut node);
    let outcome = Outcome {
        report: &report,
        node: &node,
    };
    let text = if json {
        serde_json::to_string_pretty(&outcome)? + "\n"
    } else {
        outcome.text(all)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    match outcome.problem() {
        None => Ok(()),
        Some(problem) => anyhow::bail!(problem),
    }
}
