//! What keys of the daemon's file add to its service: metrics, and a bound on connections.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Case, alone};
use crate::rules::bench::{Bench, Settings};

pub(super) const CASES: &[Case] = &[
    alone("served-metrics", &["mux-5.4-metrics"], metrics),
    alone("served-requests-counted", &["mux-5.5-requests"], requests),
    alone(
        "served-connection-limit",
        &["mux-5.4-connection-limit"],
        connection_limit,
    ),
];

const PORT: u16 = 9464;

/// Runs a case on a daemon that has metrics.
fn with_metrics(bench: &Bench, case: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file_with(&json!({"metricsPort": PORT})))?;
    let outcome = case();
    bench.stop("TERM")?;
    outcome
}

/// What is read at that address of the node.
fn read(bench: &Bench, address: &str) -> anyhow::Result<String> {
    let server = format!("--server=http://{address}:{PORT}");
    bench
        .scene
        .node
        .run(&["kubectl", &server, "get", "--raw=/metrics"])
}

fn metrics(bench: &Bench) -> anyhow::Result<()> {
    with_metrics(bench, || {
        for address in ["127.0.0.1", &bench.scene.node.address()] {
            let text = read(bench, address)?;
            let kind = "# TYPE multus_server_request_total counter";
            ensure!(text.lines().any(|line| line == kind), "{address}: {text}");
        }
        Ok(())
    })
}

/// How many requests of a kind were counted.
fn counted(text: &str, labels: &[String]) -> anyhow::Result<u64> {
    let of_kind = text.lines().filter_map(|line| {
        let (own, count) = line
            .strip_prefix("multus_server_request_total{")?
            .split_once("} ")?;
        let matches = labels.iter().all(|label| own.contains(label.as_str()));
        matches.then_some(count)
    });
    of_kind
        .map(|count| count.trim().parse::<u64>().context("no whole number"))
        .sum()
}

fn requests(bench: &Bench) -> anyhow::Result<()> {
    with_metrics(bench, || {
        let before = read(bench, "127.0.0.1")?;
        let asked = [
            ("PUT", "/healthz", "/healthz", 405, 2),
            ("POST", "/cni", "/cni", 400, 3),
            ("GET", "/nowhere", "NotFound", 404, 1),
        ];
        for (method, path, _, status, times) in asked {
            for _ in 0..times {
                let answer = bench.daemon_says(method, path, b"{}")?;
                ensure!(
                    answer.status == status,
                    "{method} {path}: {}",
                    answer.status
                );
            }
        }
        let after = read(bench, "127.0.0.1")?;
        for (method, _, handler, status, times) in asked {
            let labels = [
                format!("handler=\"{handler}\""),
                format!("code=\"{status}\""),
                format!("method=\"{}\"", method.to_lowercase()),
            ];
            let count = counted(&after, &labels)? - counted(&before, &labels)?;
            ensure!(
                count == times,
                "{labels:?}: {count} more instead of {times}"
            );
        }
        Ok(())
    })
}

fn connection_limit(bench: &Bench) -> anyhow::Result<()> {
    bench.start(&Settings::Plain.file_with(&json!({"connectionLimit": 2})))?;
    let outcome = third_waits(bench);
    bench.stop("TERM")?;
    outcome
}

fn third_waits(bench: &Bench) -> anyhow::Result<()> {
    let socket = bench.scene.node.path("/run/multus/multus.sock");
    let connect = || UnixStream::connect(&socket).context("cannot connect");
    // The kernel hands them over in this order.
    let (first, second, mut third) = (connect()?, connect()?, connect()?);
    third.write_all(b"GET /healthz HTTP/1.1\r\nHost: dummy\r\n\r\n")?;
    third.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut answer = vec![0; 1];
    let early = third.read(&mut answer);
    ensure!(early.is_err(), "a third one was served: {early:?}");
    drop((first, second));
    third.set_read_timeout(Some(Duration::from_secs(5)))?;
    answer.clear();
    third.read_to_end(&mut answer).context("it still waits")?;
    let answer = String::from_utf8_lossy(&answer);
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}
