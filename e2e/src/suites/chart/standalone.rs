//! Plugins without a multiplexer: which objects, rights and capabilities remain, and an upgrade to them and back.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};

use super::{render, server::Server};
use crate::test_env::TestEnv;

const NAME: &str = "rke2-multus";
const ON: &str = "--set=cniplugins.standalone=true";

pub(super) fn objects(env: &TestEnv) -> anyhow::Result<()> {
    let rendered = render::ours(env, NAME, &[ON])?;
    let identities: BTreeSet<_> = rendered.iter().map(render::identity).collect();
    let expected = [
        "ConfigMap/rke2-multus-config",
        "DaemonSet/rke2-multus",
        "Role/rke2-multus",
        "RoleBinding/rke2-multus",
        "ServiceAccount/multus",
    ];
    ensure!(
        identities == expected.map(str::to_owned).into(),
        "{identities:?}"
    );
    let role = render::find(&rendered, "Role/rke2-multus")?;
    let rules = json!([{"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": [NAME], "verbs": ["list"]}]);
    ensure!(role["rules"] == rules, "{}", role["rules"]);
    let security = |more: &[&str]| {
        let objects = render::ours(env, NAME, &[&[ON], more].concat())?;
        let set = render::find(&objects, "DaemonSet/rke2-multus")?;
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        ensure!(
            container["args"] == json!(["plugins"]),
            "{}",
            container["args"]
        );
        let context = &container["securityContext"];
        let capabilities = context["capabilities"]["add"].as_array().cloned();
        let profile = context["seccompProfile"]["type"].clone();
        anyhow::Ok((capabilities.unwrap_or_default(), profile))
    };
    let least = (
        vec![json!("DAC_OVERRIDE"), json!("SYS_PTRACE")],
        json!("RuntimeDefault"),
    );
    ensure!(security(&[])? == least, "{:?}", security(&[])?);
    // The plugin dhcp runs with the daemon's capabilities.
    let (capabilities, profile) = security(&["--set=manifests.dhcpDaemonSet=true"])?;
    ensure!(
        capabilities.contains(&json!("NET_ADMIN")) && profile == "Unconfined",
        "{capabilities:?} {profile}"
    );
    let chart = env.chart(NAME)?;
    let all = render::parse(&render::with_tests(env, NAME, &chart, &[ON])?)?;
    let pod = render::find(&all, "Pod/rke2-multus-test")?;
    let args = &pod["spec"]["containers"][0]["args"];
    ensure!(
        *args == json!(["verify", "--plugins", "--wait=120"]),
        "{args}"
    );
    Ok(())
}

/// Upgrades a release to plugins and back on a real API server; needs no CRD.
pub(super) fn upgrade(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let chart = env.chart(NAME)?;
    server.release("install", NAME, &chart, &[ON])?;
    let uid = || anyhow::Ok(server.existing("DaemonSet/rke2-multus")?["metadata"]["uid"].clone());
    let (before, cluster_role): (Value, _) = (uid()?, "ClusterRole/rke2-multus");
    ensure!(
        server.get(cluster_role)?.is_none(),
        "there is a ClusterRole"
    );
    server.release(
        "upgrade",
        NAME,
        &chart,
        &["--set=cniplugins.standalone=false"],
    )?;
    server.existing(cluster_role)?;
    server.release("upgrade", NAME, &chart, &[ON])?;
    ensure!(server.get(cluster_role)?.is_none(), "the ClusterRole stays");
    ensure!(uid()? == before, "the DaemonSet was replaced");
    server.helm(&["uninstall", NAME]).map(drop)
}
