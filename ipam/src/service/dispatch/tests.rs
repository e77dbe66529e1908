//! Requests of plugins reach the service that has their addresses.

use std::sync::Arc;

use serde_json::json;

use super::super::guest::tests::{Cluster, allocation, small};
use super::super::tests::{Server, TIMES};
use super::*;
use crate::guest::record::Records;
use crate::store::Store;
use crate::wire::Allocation;

type Both = Services<Arc<Server>, Arc<Cluster>>;

fn services(dir: &tempfile::TempDir, cluster: Option<&Arc<Cluster>>) -> Both {
    let store = Store::open_in_boot(dir.path(), "a").unwrap();
    let server = Server::with_nodes(&["n"]);
    let guest = cluster.map(|cluster| {
        let records = Records::open_in_boot(dir.path().join("guest"), "a").unwrap();
        Guest::resume(Arc::clone(cluster), records, "kube-system", TIMES).unwrap()
    });
    Services::new(Service::resume(server, store, "n", TIMES).unwrap(), guest)
}

fn of_blocks() -> Allocation {
    let mut of = allocation(
        "b",
        "b",
        &json!({"type": "multus-ipam", "subnet": "10.9.0.0/24"}),
    );
    of.pod.uid = "u".to_owned();
    of
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Done(_))
}

#[test]
fn each_request_reaches_the_service_of_its_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Arc::new(Cluster::default());
    let both = services(&dir, Some(&cluster));
    let of_pools = allocation("p", "p", &small());
    for of in [of_pools.clone(), of_blocks()] {
        assert!(is_done(&both.serve(&Ask::Allocate(of.clone()))), "{of:?}");
        assert!(is_done(&both.serve(&Ask::Check(of.attachment))));
    }
    assert_eq!(both.counts().addresses, 2);
    let attachments = [of_pools.attachment.clone(), of_blocks().attachment];
    let valid = Ask::Collect {
        network: "lan".to_owned(),
        valid: vec![of_pools.attachment.clone()],
    };
    assert!(is_done(&both.serve(&valid)));
    assert_eq!(both.counts().addresses, 1);
    assert!(is_done(&both.serve(&Ask::ReleaseFrom(of_pools))));
    for attachment in attachments {
        assert!(is_done(&both.serve(&Ask::Release(attachment.clone()))));
        assert!(!is_done(&both.serve(&Ask::Check(attachment))));
    }
    both.work();
    assert_eq!(both.counts().addresses, 0);
    cluster.assert_free();
}

#[test]
fn definitions_of_whereabouts_name_the_value_that_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = services(&dir, None);
    assert!(is_done(&blocks.serve(&Ask::Allocate(of_blocks()))));
    for ask in [Ask::Allocate, Ask::ReleaseFrom] {
        let answer = blocks.serve(&ask(allocation("p", "p", &small())));
        let Answer::Failed { reason, .. } = answer else {
            panic!("{answer:?}")
        };
        assert!(
            reason.contains("set ipam.whereabouts in Multus' chart"),
            "{reason}"
        );
    }
}
