//! A node in a container, as with kind and k3d: it has a root directory and a process namespace of its own.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::fixture::DiscoverFixture;
use crate::{
    sh::{self, words},
    test_env::TestEnv,
};

const INNER: &str = "/run/inner";
const SOCKET: &str = "/run/k3s/containerd/containerd.sock";
const CONFIG: &str = "/etc/containerd-inner.toml";

/// Discover rejects the inner runtime by name, and finds it with `--root`.
pub(super) fn run(env: &TestEnv) -> anyhow::Result<()> {
    let fixture = DiscoverFixture::new(env)?;
    start(&fixture)?;
    let path = sh::until(60, "the inner runtime is seen", || {
        let (json, text) = fixture.discover(&["--root", "/"])?;
        ensure!(
            json["dirs"].is_null() && json["runtime"].is_null(),
            "{text}"
        );
        let rejected = json["rejected"].as_array().context("nothing is rejected")?;
        let is_inner = |one: &&Value| {
            let reason = one["reason"].as_str().unwrap_or_default();
            reason.contains("in a file tree of its own")
        };
        let inner = rejected
            .iter()
            .find(is_inner)
            .with_context(|| text.clone())?;
        Ok(inner["place"]
            .as_str()
            .context("it has a place")?
            .to_owned())
    })?;
    let root = format!("{path}/root");
    sh::until(60, "the inner runtime answers", || {
        let (json, text) = fixture.discover(&["--root", &root])?;
        let dirs = &json["dirs"];
        ensure!(dirs["installDir"] == "/opt/inner/bin", "{text}");
        ensure!(dirs["confDir"] == "/etc/inner/net.d", "{text}");
        ensure!(
            dirs["source"] == "cniConfig" || dirs["source"] == "config",
            "{text}"
        );
        ensure!(json["runtime"]["socket"] == SOCKET, "{text}");
        Ok(())
    })
}

/// Starts the inner node, whose root directory is an overlay over the machine's.
fn start(fixture: &DiscoverFixture) -> anyhow::Result<()> {
    let (node, root) = (&fixture.node, format!("{INNER}/root"));
    for name in ["upper", "work", "root"] {
        node.run(&["mkdir", "-p", &format!("{INNER}/{name}")])?;
    }
    let layers = format!("lowerdir=/,upperdir={INNER}/upper,workdir={INNER}/work");
    node.run(&["mount", "-t", "overlay", "overlay", "-o", &layers, &root])?;
    let table = "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/opt/inner/bin\"\nconf_dir = \"/etc/inner/net.d\"\n";
    let config = format!(
        "version = 2\nroot = \"/var/lib/inner\"\nstate = \"/run/k3s/containerd\"\n[grpc]\naddress = \"{SOCKET}\"\n{table}"
    );
    node.write(&format!("{root}{CONFIG}"), config)?;
    node.run(&words!(
        "mkdir -p {root}/opt/inner/bin {root}/etc/inner/net.d"
    ))?;
    node.serve("inner", "unshare", |command| {
        command
            .args(["--pid", "--fork", "--kill-child", "--mount"])
            .arg(format!("--root={root}"))
            .args(["--mount-proc", "/usr/bin/containerd", "--config", CONFIG])
    })?;
    Ok(())
}
