//! From names and definitions to what plugins are called with.

use anyhow::ensure;
use serde_json::{Value, json};

use super::{Case, plain};
use crate::rules::{
    bench::{Bench, DEFAULT_NETWORK, NETWORKS, PodForm},
    definitions::recorder,
};

pub(super) const CASES: &[Case] = &[
    plain(
        "resolve-default-network-annotation",
        &["mux-10.1-default-network"],
        default_network,
    ),
    plain(
        "resolve-cluster-network-by-name",
        &["mux-10.2-name"],
        by_name,
    ),
    plain(
        "resolve-cluster-network-on-disk",
        &["mux-10.2-conf-dir", "mux-6-conf-dir"],
        on_disk,
    ),
    plain(
        "resolve-cluster-network-by-path",
        &["mux-10.2-path"],
        by_path,
    ),
    plain(
        "resolve-cluster-network-directory-broken",
        &["mux-10.2-directory-broken"],
        by_directory_with_a_broken_file,
    ),
    plain(
        "resolve-cluster-network-directory",
        &["mux-10.2-directory"],
        by_directory,
    ),
    plain(
        "resolve-cluster-network-absent",
        &["mux-10.2-not-found"],
        absent,
    ),
    plain("resolve-cluster-network-cause", &["mux-10.2-cause"], cause),
    plain(
        "resolve-default-network-absent",
        &["mux-10.2-default-missing"],
        default_absent,
    ),
    plain(
        "resolve-nameless-definition",
        &["mux-10.3-name", "mux-10.3-bytes"],
        nameless,
    ),
    plain("resolve-exact-numbers", &["mux-10.3-numbers"], exact),
    plain(
        "resolve-empty-definition",
        &["mux-10.3-empty", "mux-6-conf-dir"],
        empty,
    ),
    plain(
        "resolve-empty-definition-without-file",
        &["mux-10.3-empty-missing"],
        empty_missing,
    ),
    plain(
        "resolve-invalid-definitions",
        &["mux-10.3-invalid", "mux-10.3-no-type"],
        invalid,
    ),
    plain(
        "resolve-list-without-plugins",
        &["mux-10.3-no-plugins"],
        no_plugins,
    ),
    plain("resolve-list", &["mux-10.3-list", "mux-11.2-list"], list),
    plain(
        "resolve-missing-definition",
        &["mux-10.3-missing", "mux-11.7-not-found"],
        missing,
    ),
];

const CONF: &str = "/etc/cni/multus/net.d";

/// Runs a case with a file in `confDir`.
fn with_file(
    bench: &Bench,
    name: &str,
    content: &Value,
    case: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = format!("{CONF}/{name}");
    bench.scene.node.write(&path, content.to_string())?;
    let outcome = case();
    std::fs::remove_file(bench.scene.node.path(&path))?;
    outcome
}

fn default_network(bench: &Bench) -> anyhow::Result<()> {
    let form = PodForm {
        annotations: vec![
            (DEFAULT_NETWORK, "central".to_owned()),
            (NETWORKS, "a".to_owned()),
        ],
        ..PodForm::default()
    };
    let pod = bench.pod_of("own-default", &form)?;
    bench.add(&pod)?;
    bench.called(&pod, &["ADD central", "ADD a"])?;
    let call = bench.call(&pod, "ADD", "central")?;
    ensure!(call.variable("CNI_IFNAME") == "eth0", "{call:?}");
    let status = bench.status(&pod)?;
    ensure!(
        status[0]["name"] == "kube-system/central" && status[0]["default"] == true,
        "{status:?}"
    );
    bench.del(&pod)?;
    bench.called(&pod, &["ADD central", "ADD a", "DEL a", "DEL central"])
}

fn by_name(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("by-name", "")?;
    bench.add_with(&pod, &json!({"clusterNetwork": "central"}))?;
    bench.called(&pod, &["ADD central"])
}

fn on_disk(bench: &Bench) -> anyhow::Result<()> {
    with_file(
        bench,
        "50-any.conf",
        &recorder("from-disk", &json!({})),
        || {
            let pod = bench.pod("on-disk", "")?;
            bench.add_with(&pod, &json!({"clusterNetwork": "from-disk"}))?;
            bench.called(&pod, &["ADD from-disk"])
        },
    )
}

fn by_path(bench: &Bench) -> anyhow::Result<()> {
    with_file(bench, "path.conf", &recorder("by-path", &json!({})), || {
        let pod = bench.pod("by-path", "")?;
        bench.add_with(
            &pod,
            &json!({"clusterNetwork": format!("{CONF}/path.conf")}),
        )?;
        bench.called(&pod, &["ADD by-path"])
    })?;
    let list = json!({"cniVersion": "1.0.0", "name": "by-list", "plugins": [{"type": "recorder"}]});
    with_file(bench, "path.conflist", &list, || {
        let pod = bench.pod("by-list", "")?;
        bench.add_with(
            &pod,
            &json!({"clusterNetwork": format!("{CONF}/path.conflist")}),
        )?;
        bench.called(&pod, &["ADD by-list"])
    })
}

fn by_directory(bench: &Bench) -> anyhow::Result<()> {
    with_file(
        bench,
        "20-second.conf",
        &recorder("second", &json!({})),
        || {
            with_file(
                bench,
                "10-first.conf",
                &recorder("first", &json!({})),
                || {
                    let pod = bench.pod("by-directory", "")?;
                    bench.add_with(&pod, &json!({"clusterNetwork": CONF}))?;
                    bench.called(&pod, &["ADD first"])
                },
            )
        },
    )
}

fn by_directory_with_a_broken_file(bench: &Bench) -> anyhow::Result<()> {
    let no_plugin = json!({"cniVersion": "1.0.0", "name": "broken"});
    let first = recorder("first", &json!({}));
    with_file(bench, "05-broken.conf", &no_plugin, || {
        with_file(bench, "10-first.conf", &first, || {
            let pod = bench.pod("by-broken-directory", "")?;
            let outcome = bench.verb_with("ADD", &pod, &json!({"clusterNetwork": CONF}))?;
            outcome.tells(&["failed to get clusterNetwork", "05-broken.conf"])?;
            bench.called(&pod, &[])
        })
    })
}

fn absent(bench: &Bench) -> anyhow::Result<()> {
    for network in ["nobody-knows", "/etc/cni/net.d/nothing.conflist"] {
        let pod = bench.pod(&format!("absent-{}", network.len()), "")?;
        let outcome = bench.verb_with("ADD", &pod, &json!({"clusterNetwork": network}))?;
        outcome.tells(&["failed to get clusterNetwork", network])?;
        bench.called(&pod, &[])?;
    }
    Ok(())
}

fn cause(bench: &Bench) -> anyhow::Result<()> {
    let path = format!("{CONF}/broken.conflist");
    with_file(
        bench,
        "broken.conflist",
        &json!({"cniVersion": "1.0.0", "name": "broken", "plugins": "none"}),
        || {
            let pod = bench.pod("cause", "")?;
            let outcome = bench.verb_with("ADD", &pod, &json!({"clusterNetwork": path}))?;
            outcome.tells(&["failed to get clusterNetwork", "plugins"])
        },
    )
}

fn default_absent(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("default-absent", "")?;
    bench
        .verb_with("ADD", &pod, &json!({"defaultNetworks": ["nobody-knows"]}))?
        .tells(&["nobody-knows"])?;
    bench.called(&pod, &[])
}

fn nameless(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("nameless", "nameless")?;
    bench.add(&pod)?;
    let call = bench.call(&pod, "ADD", "nameless")?;
    ensure!(
        call.stdin["zeta"] == 1 && call.stdin["alpha"] == json!({"deep": [1, 2]}),
        "{}",
        call.stdin
    );
    ensure!(call.stdin["cniVersion"] == "1.0.0", "{}", call.stdin);
    bench.del(&pod)?;
    let call = bench.call(&pod, "DEL", "nameless")?;
    ensure!(
        call.stdin["zeta"] == 1 && call.stdin["alpha"] == json!({"deep": [1, 2]}),
        "{}",
        call.stdin
    );
    Ok(())
}

fn exact(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("exact", "exact")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    for verb in ["ADD", "DEL"] {
        let call = bench.call(&pod, verb, "exact")?;
        ensure!(
            call.stdin["big"].as_u64() == Some(9_007_199_254_740_993),
            "{verb}: {}",
            call.stdin["big"]
        );
        ensure!(
            call.stdin["text"] == "<&>",
            "{verb}: {}",
            call.stdin["text"]
        );
    }
    Ok(())
}

fn empty(bench: &Bench) -> anyhow::Result<()> {
    with_file(
        bench,
        "50-any.conf",
        &recorder("on-disk", &json!({"from": "file"})),
        || {
            let pod = bench.pod("empty", "on-disk")?;
            bench.add(&pod)?;
            let call = bench.call(&pod, "ADD", "on-disk")?;
            ensure!(call.stdin["from"] == "file", "{}", call.stdin);
            let status = bench.status(&pod)?;
            ensure!(status[1]["name"] == "default/on-disk", "{status:?}");
            Ok(())
        },
    )
}

fn empty_missing(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("empty-missing", "nowhere-on-disk")?;
    bench.verb("ADD", &pod)?.error()?;
    bench.called(&pod, &[])
}

fn invalid(bench: &Bench) -> anyhow::Result<()> {
    for network in ["no-json", "no-object", "no-type"] {
        let pod = bench.pod(&format!("invalid-{network}"), network)?;
        bench.verb("ADD", &pod)?.error()?;
        bench.called(&pod, &[])?;
    }
    Ok(())
}

fn no_plugins(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("pluginless", "no-plugins")?;
    bench.verb("ADD", &pod)?.tells(&["no-plugins"])
}

fn list(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("listed", "list")?;
    bench.add(&pod)?;
    bench.del(&pod)?;
    let calls: Vec<_> = bench
        .calls(&pod)?
        .into_iter()
        .filter(|call| call.network() == "list")
        .collect();
    let order: Vec<_> = calls
        .iter()
        .map(|call| {
            (
                call.verb.as_str(),
                call.stdin["type"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    let expected = [
        ("ADD", "recorder"),
        ("ADD", "recorder-other"),
        ("DEL", "recorder-other"),
        ("DEL", "recorder"),
    ];
    ensure!(order == expected, "{order:?}");
    ensure!(
        calls.iter().all(|call| call.stdin["cniVersion"] == "1.0.0"),
        "{calls:?}"
    );
    ensure!(
        calls[0].stdin["prevResult"].is_null() && calls[0].stdin["first"] == true,
        "{}",
        calls[0].stdin
    );
    ensure!(
        calls[1].stdin["prevResult"]["ips"][0]["address"] == "10.66.0.2/24",
        "{}",
        calls[1].stdin
    );
    Ok(())
}

fn missing(bench: &Bench) -> anyhow::Result<()> {
    let pod = bench.pod("missing", "nobody-knows")?;
    bench.verb("ADD", &pod)?.tells(&[
        "cannot find a network-attachment-definition (nobody-knows) in namespace (default)",
    ])?;
    bench.called(&pod, &[])?;
    bench.event(
        &pod,
        "NoNetworkFound",
        "cannot find a network-attachment-definition (nobody-knows) in namespace (default)",
    )
}
