//! Cases of subject `passthru`: The passthru plugin.

use anyhow::ensure;
use serde_json::json;

use super::cases;
use crate::{rules::harness::Harness, sandbox::Answer, sh, single_node::BIN_DIR};

cases! { "passthru":
    own_daemon add ["passthru.add", "passthru.versions"]
    own_daemon other_verbs ["passthru.other-verbs"]
}

fn passthru(harness: &Harness, verb: &str, version: &str) -> anyhow::Result<Answer> {
    let mut command = harness.node().command(format!("{BIN_DIR}/passthru"));
    command.envs([
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/none"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", BIN_DIR),
    ]);
    let config = json!({"cniVersion": version, "name": "n", "type": "passthru"});
    Ok(sh::output(&mut command, config.to_string().as_bytes())?.into())
}

fn add(harness: &Harness) -> anyhow::Result<()> {
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let result = passthru(harness, "ADD", version)?.success()?;
        ensure!(result["cniVersion"] == version, "{result}");
        for key in ["interfaces", "ips", "routes"] {
            ensure!(result[key].as_array().is_none_or(Vec::is_empty), "{result}");
        }
    }
    for version in ["0.1.0", "0.2.0", "9.9.9"] {
        passthru(harness, "ADD", version)?.has_code(1)?;
    }
    Ok(())
}

fn other_verbs(harness: &Harness) -> anyhow::Result<()> {
    for verb in ["DEL", "CHECK"] {
        let outcome = passthru(harness, verb, "1.0.0")?;
        ensure!(
            outcome.code == Some(0) && outcome.stdout.is_empty(),
            "{verb}: {outcome:?}"
        );
    }
    Ok(())
}
