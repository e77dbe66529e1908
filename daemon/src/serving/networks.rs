//! Answers which definitions the node can serve.

use std::{sync::Arc, time::Duration};

use super::{service::Service, snapshot::within};
use crate::readiness::Gate;

/// The time limit of an answer, in which plugins may run STATUS.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the report as JSON, or the reason why there is none.
pub(super) async fn report(service: &Arc<Service>) -> Result<Vec<u8>, String> {
    for gate in [Gate::Discovery, Gate::Watches] {
        let opened = service.readiness.was_open(gate);
        opened
            .map_err(|reason| format!("this node and its networks are not known yet: {reason}"))?;
    }
    let own = Arc::clone(service);
    let report = move || {
        let netconf = own.effective_netconf().map_err(|error| error.to_string())?;
        let report = own.networks.report(&own.engine, &netconf);
        Ok(serde_json::to_vec(&report).expect("a report always serialises"))
    };
    let found = within(PATIENCE, &service.networks.turns, report).await;
    found.unwrap_or_else(|| {
        Err(
            "the node's disk, kubelet or plugins did not answer in time: see the daemon's log"
                .to_owned(),
        )
    })
}
