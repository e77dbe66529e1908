//! A cluster without the CRD NetworkAttachmentDefinition.

use crate::node::NodeFixture;

#[test]
fn missing_crd_leaves_pods_without_networks_served() {
    let node = NodeFixture::new();
    node.api.remove_definition_crd();
    node.run_pod(None);
    let daemon = node.start().ready();
    daemon.cni(&node.request("ADD", "c1")).result();
}

#[test]
fn missing_crd_is_reported_with_the_chart_that_installs_it() {
    let node = NodeFixture::new();
    node.api.remove_definition_crd();
    node.run_pod(Some("zebra"));
    let mut command = node.command();
    command.env("MULTUS_CRD_CHART", "k3s-multus-crd");
    let daemon = node.start_with(command).ready();
    let error = daemon.cni(&node.request("ADD", "c1")).error();
    let hint = "the CRD is not installed: install k3s-multus-crd";
    assert!(error.msg.contains(hint), "{error}");
    assert_eq!(error.code, 11, "it may be installed later: {error}");
    let events = node.api.wait_for_events(1);
    assert!(
        events[0].starts_with("NoNetworkFound: ") && events[0].contains(hint),
        "{events:?}"
    );
    for args in [&["status"][..], &["status", "--ready"]] {
        let output = node.command().args(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains(
                "note: the CRD NetworkAttachmentDefinition is not installed: install k3s-multus-crd"
            ),
            "{text}"
        );
    }
}
