//! The charts in a real registry: pushed, pulled, and installed from there.

use std::fs;

use anyhow::ensure;

use super::{CHARTS, server::Server};
use crate::{
    report::{Ended, Report},
    sh,
    workplace::Workplace,
};

/// Where the registry listens, on the node alone.
const REGISTRY: &str = "127.0.0.1:5000";

pub(super) fn run(work: &Workplace, server: &Server, report: &mut Report) -> Result<(), Ended> {
    report.check(
        "a registry takes the charts, and gives the same bytes back",
        || {
            start(server)?;
            let pulled = work.dir.join("pulled");
            fs::create_dir_all(&pulled)?;
            let (folder, version) = (pulled.display().to_string(), work.version()?);
            for name in CHARTS {
                let chart = work.chart(name)?;
                let (path, place) = (
                    chart.display().to_string(),
                    format!("oci://{REGISTRY}/charts"),
                );
                server.helm(&["push", &path, &place, "--plain-http"])?;
                let from = format!("{place}/{name}");
                server.helm(&[
                    "pull",
                    &from,
                    "--version",
                    &version,
                    "--destination",
                    &folder,
                    "--plain-http",
                ])?;
                let back = fs::read(pulled.join(format!("{name}-{version}.tgz")))?;
                ensure!(
                    back == fs::read(&chart)?,
                    "{name} comes back with other bytes"
                );
            }
            Ok(())
        },
    )?;
    report.check("helm installs from the registry", || {
        let version = work.version()?;
        for name in ["rke2-multus-crd", "rke2-multus"] {
            let from = format!("oci://{REGISTRY}/charts/{name}");
            server.helm(&[
                "install",
                name,
                &from,
                "--version",
                &version,
                "--plain-http",
            ])?;
        }
        server.there("DaemonSet/rke2-multus")?;
        server.helm(&["uninstall", "rke2-multus"])?;
        server.helm(&["uninstall", "rke2-multus-crd"])?;
        ensure!(
            server.get("DaemonSet/rke2-multus")?.is_none(),
            "the DaemonSet stays"
        );
        server.kubectl(&["delete", "crd", "--all"]).map(drop)
    })
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
