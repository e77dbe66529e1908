//! Checks the metrics' text with a strict parser, and the chart's dashboard and alerts against it.

mod chart;
mod exposition;

use std::time::Duration;

use ::ipam::service::AddressState;
use node::dirs::{CniDirs, Source};

use super::snapshot::{NodeValues, Process};
use super::*;

/// Returns the text of a daemon in which every metric has a sample.
fn complete_text() -> String {
    let metrics = Metrics::default();
    for status in [200, 400, 200] {
        let status = StatusCode::from_u16(status).unwrap();
        metrics.request("/cni", status, &Method::POST);
    }
    metrics.verb("ADD", true, Duration::from_millis(1500));
    metrics.verb("ADD", true, Duration::from_millis(500));
    metrics.verb("ADD", false, Duration::ZERO);
    metrics.delegate("bridge", "ADD", true, Duration::from_millis(7));
    drop(metrics.queue_enter("add").start());
    drop(metrics.queue_enter("add"));
    metrics.api_request("get", "pods", "200", Duration::from_millis(3));
    metrics.api_retry("get", "pods");
    metrics.event("AddedInterface", true);
    metrics.event("AddedInterface", false);
    metrics.replayed(true);
    metrics.network_abandoned();
    metrics.set_dhcp_leases(3);
    metrics.set_dhcp_leases(2);
    metrics.dhcp_event("renewed");
    metrics.set_ipam(::ipam::service::Counts {
        addresses: [
            (("lan".to_owned(), AddressState::Asked), 1),
            (("lan".to_owned(), AddressState::Given), 5),
        ]
        .into(),
        held_blocks: 1,
        shared_blocks: 2,
        ranges: vec![::ipam::service::RangeCount {
            space: "lab".to_owned(),
            range: "fd00::2-fd00::ffff:ffff:ffff:ffff".to_owned(),
            used: 4,
            size: (1 << 64) - 2,
        }],
    });
    metrics.ipam_request("add", true, Duration::from_millis(3));
    metrics.ipam_request("del", true, Duration::from_millis(3));
    metrics.ipam_api_request("patch", "422");
    metrics.ipam_conflicts(2);
    // A later measurement lacks the time of a spawner that still runs.
    metrics.plugin_cpu(2.25);
    let dirs = CniDirs {
        bin_dirs: vec!["/b".into()],
        install_dir: "/b".into(),
        conf_dir: "/c\"\\".into(),
        source: Source::File,
    };
    metrics.set_networks(vec![("shop/lan".to_owned(), "serves")]);
    metrics.set_runtime_dirs("containerd 2.4.2", &dirs);
    let process = Process {
        cpu: 1.5,
        children_cpu: 2.0,
        memory: Some(8 << 20),
        files: Some(30),
    };
    let snapshot = Snapshot {
        problem: None,
        node: NodeValues {
            containers: Some(3),
            journal: Some(1),
            process: Some(process),
        },
    };
    snapshot.text(&metrics)
}

#[test]
fn all_metrics_are_in_the_text() {
    let text = complete_text();
    for line in [
        "multus_server_request_total{code=\"200\",handler=\"/cni\",method=\"post\"} 2\n",
        "multus_server_request_total{code=\"400\",handler=\"/cni\",method=\"post\"} 1\n",
        "multus_cni_duration_seconds_bucket{command=\"ADD\",outcome=\"done\",le=\"0.5\"} 1\n",
        "multus_cni_duration_seconds_sum{command=\"ADD\",outcome=\"done\"} 2\n",
        "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"done\"} 2\n",
        "multus_cni_duration_seconds_count{command=\"ADD\",outcome=\"failed\"} 1\n",
        "multus_delegate_duration_seconds_bucket{plugin=\"bridge\",command=\"ADD\",outcome=\"done\",le=\"0.01\"} 1\n",
        "multus_queue_waiting{lane=\"add\"} 0\n",
        "multus_queue_working{lane=\"add\"} 0\n",
        "multus_queue_wait_seconds_count{lane=\"add\"} 1\n",
        "multus_queue_abandoned_total{lane=\"add\"} 1\n",
        "multus_api_requests_total{verb=\"get\",resource=\"pods\",code=\"200\"} 1\n",
        "multus_api_retries_total{verb=\"get\",resource=\"pods\"} 1\n",
        "multus_events_total{reason=\"AddedInterface\",outcome=\"dropped\"} 1\n",
        "multus_journal_replayed_total{outcome=\"done\"} 1\n",
        "multus_networks_abandoned_total 1\n",
        "multus_dhcp_leases 2\n",
        "multus_dhcp_lease_events_total{event=\"renewed\"} 1\n",
        "multus_ipam_addresses{network=\"lan\",state=\"asked\"} 1\n",
        "multus_ipam_addresses{network=\"lan\",state=\"given\"} 5\n",
        "multus_ipam_blocks{mode=\"node\"} 1\n",
        "multus_ipam_blocks{mode=\"shared\"} 2\n",
        r#"multus_ipam_range_addresses{space="lab",range="fd00::2-fd00::ffff:ffff:ffff:ffff",state="all"} 18446744073709551614"#,
        r#"multus_ipam_range_addresses{space="lab",range="fd00::2-fd00::ffff:ffff:ffff:ffff",state="used"} 4"#,
        "multus_ipam_requests_total{verb=\"add\",outcome=\"done\"} 1\n",
        "multus_ipam_wait_seconds_bucket{le=\"0.005\"} 1\n",
        "multus_ipam_wait_seconds_count 1\n",
        "multus_ipam_api_requests_total{verb=\"patch\",code=\"422\"} 1\n",
        "multus_ipam_conflicts_total 2\n",
        "multus_plugin_cpu_seconds_total 2.25\n",
        "multus_ready 1\n",
        "multus_journal_pending 1\n",
        "multus_state_containers 3\n",
        "process_resident_memory_bytes 8388608\n",
        "multus_networks{network=\"shop/lan\",state=\"serves\"} 1\n",
        r#"multus_node_directories{bin_dir="/b",conf_dir="/c\"\\",runtime="containerd 2.4.2",source="file"} 1"#,
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

/// An alert on the first increment needs a zero before it.
#[test]
fn counters_of_alerts_start_at_zero() {
    let text = Metrics::default().text();
    for name in [
        "multus_networks_abandoned_total",
        "multus_ipam_conflicts_total",
    ] {
        assert!(text.contains(&format!("{name} 0\n")), "{text}");
    }
}
