//! The charts as OCI artifacts in a real registry.

use std::fs;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{CHARTS, derived, server::Server};
use crate::{
    report::{Checked, Report},
    sh,
    test_env::TestEnv,
};

/// The registry's address on the node's loopback.
const REGISTRY: &str = "127.0.0.1:5000";

pub(super) fn run(env: &TestEnv, server: &Server, report: &mut Report) -> Checked {
    report.check(
        "our OCI artifacts equal those that helm pushes, and helm pulls them",
        || {
            start(server)?;
            let place = format!("oci://{REGISTRY}/charts");
            for name in CHARTS {
                let path = env.chart(name)?.display().to_string();
                server.helm(&["push", &path, &place, "--plain-http"])?;
            }
            artifacts(env, server)
        },
    )
}

/// Copies OCI artifacts of `xtask chart oci` to the registry, and compares them with those that Helm pushed.
fn artifacts(env: &TestEnv, server: &Server) -> anyhow::Result<()> {
    let layout = env.dir.join("charts.oci");
    let place = layout.display().to_string();
    let charts = CHARTS.map(|name| env.chart(name).map(|path| path.display().to_string()));
    let charts = charts.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let charts: Vec<_> = charts.iter().map(String::as_str).collect();
    derived::xtask(&[&["chart", "oci", "--out", &place][..], &charts].concat())?;
    let copied = env.dir.join("copied");
    fs::create_dir_all(&copied)?;
    let (directory, version) = (copied.display().to_string(), env.version()?);
    for name in CHARTS {
        let from = format!("oci:{place}:{name}:{version}");
        let to = format!("docker://{REGISTRY}/copied/{name}:{version}");
        let copy = ["skopeo", "copy", "--dest-tls-verify=false", &from, &to];
        server.node.run(&copy)?;
        let from = format!("oci://{REGISTRY}/copied/{name}");
        let pull = ["pull", &from, "--version", &version];
        server.helm(&[&pull[..], &["--destination", &directory, "--plain-http"]].concat())?;
        let back = fs::read(copied.join(format!("{name}-{version}.tgz")))?;
        ensure!(
            back == fs::read(env.chart(name)?)?,
            "{name} comes back with other bytes"
        );
        let [ours, helms] = ["copied", "charts"].map(|path| manifest(server, path, name, &version));
        let (ours, mut helms) = (ours?, helms?);
        // The only annotation with a time.
        let created = "org.opencontainers.image.created";
        let annotations = helms["annotations"].as_object_mut();
        let removed = annotations.and_then(|found| found.remove(created));
        ensure!(removed.is_some(), "helm no longer sets {created}: {helms}");
        for key in ["config", "layers", "annotations"] {
            ensure!(
                ours[key] == helms[key],
                "{name}: {key} is {}, helm's is {}",
                ours[key],
                helms[key]
            );
        }
    }
    Ok(())
}

fn manifest(server: &Server, path: &str, name: &str, version: &str) -> anyhow::Result<Value> {
    let url = format!("http://{REGISTRY}/v2/{path}/{name}/manifests/{version}");
    let accept = "Accept: application/vnd.oci.image.manifest.v1+json";
    let args = [
        "curl",
        "--silent",
        "--show-error",
        "--fail",
        "--header",
        accept,
        &url,
    ];
    serde_json::from_str(&server.node.run(&args)?).context("a manifest is JSON")
}

fn start(server: &Server) -> anyhow::Result<()> {
    let config_text = format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {REGISTRY}\n",
        server.node.dir.join("registry").display()
    );
    let config = server.node.dir.join("registry.yml");
    fs::write(&config, config_text)?;
    server
        .node
        .serve("registry", "docker-registry", |command| {
            command.arg("serve").arg(&config)
        })?;
    sh::until(20, "the registry answers", || {
        server.node.run(&[
            "curl",
            "--silent",
            "--fail",
            &format!("http://{REGISTRY}/v2/"),
        ])
    })
    .map(drop)
}
