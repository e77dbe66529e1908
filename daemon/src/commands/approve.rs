//! `multus-daemon approve`: watches certificate signing requests and writes down what was decided. It holds nothing and leads nothing:
//! two of it decide the same, and the API server takes the first answer.

use std::{pin::pin, time::Duration};

use anyhow::Context;
use futures::StreamExt as _;
use k8s_openapi::{
    api::{
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
        core::v1::{Event, ObjectReference},
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::PostParams,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    access,
    approve::{Decision, ServiceAccount, decide},
    causes::causes,
    certificate::SIGNER,
    cluster::{
        event::{CLUSTER_WIDE, event},
        request::{Failure, bounded},
    },
};

/// All requests are looked at again that often, whatever became of earlier looks.
const RESYNC: Duration = Duration::from_hours(1);
/// How often one decision is written before it is left to the next look.
const TRIES: u32 = 5;
/// Pause before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// No single request takes longer.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// How the API server says that there is no such request any more, and that it is another by now.
const GONE: u16 = 404;
const CONFLICT: u16 = 409;

/// Runs until SIGTERM or SIGINT.
pub async fn run(account: Option<ServiceAccount>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let client = access::client().context("no access to the API server")?;
    let approver = Approver {
        requests: Api::all(client.clone()),
        events: Api::namespaced(client, CLUSTER_WIDE),
        account,
    };
    info!("deciding on certificate signing requests of nodes");
    tokio::select! {
        () = approver.follow() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    info!("shutting down");
    Ok(())
}

struct Approver {
    requests: Api<CertificateSigningRequest>,
    events: Api<Event>,
    account: Option<ServiceAccount>,
}

impl Approver {
    /// Decides on all that are there and on each that comes.
    async fn follow(&self) {
        let config = watcher::Config::default().fields(&format!("spec.signerName={SIGNER}"));
        loop {
            let mut stream = pin!(watcher(self.requests.clone(), config.clone()).default_backoff());
            let look = async {
                while let Some(event) = stream.next().await {
                    match event {
                        Ok(watcher::Event::Apply(request) | watcher::Event::InitApply(request)) => {
                            self.handle(request).await;
                        }
                        Ok(_) => {}
                        Err(error) => warn!(error = %causes(&error), "the watch was interrupted"),
                    }
                }
            };
            let _ = timeout(RESYNC, look).await;
            debug!("looking at all requests again");
        }
    }

    /// Decides until the decision is written, or is not ours any more.
    async fn handle(&self, mut request: CertificateSigningRequest) {
        let name = request.name_any();
        for attempt in 1..=TRIES {
            let (kind, message) = match decide(&request, self.account.as_ref()) {
                Decision::Leave => return,
                Decision::Approve => (
                    "Approved",
                    "asked for by this node's own identity".to_owned(),
                ),
                Decision::Deny(reason) => ("Denied", reason),
            };
            let reason = format!("CSR{kind}");
            match self
                .write(&name, decided(&request, kind, &reason, &message))
                .await
            {
                Ok(()) => {
                    info!(
                        request = name,
                        user = request.spec.username,
                        message,
                        "{}",
                        kind.to_lowercase()
                    );
                    self.tell(&request, &reason, message).await;
                    return;
                }
                Err(failure) if failure.code == Some(GONE) => return,
                Err(failure) if failure.code == Some(CONFLICT) => {
                    debug!(request = name, "it was changed meanwhile");
                }
                Err(error) => {
                    warn!(request = name, attempt, %error, "cannot write the decision");
                    sleep(PAUSE).await;
                }
            }
            match bounded(REQUEST_PATIENCE, self.requests.get(&name)).await {
                Ok(newer) => request = newer,
                Err(failure) if failure.code == Some(GONE) => return,
                // The same decision is tried again; an outdated one is refused.
                Err(error) => debug!(request = name, %error, "cannot look at it again"),
            }
        }
    }

    async fn write(&self, name: &str, request: CertificateSigningRequest) -> Result<(), Failure> {
        let params = PostParams::default();
        let write = self
            .requests
            .replace_subresource("approval", name, &params, &request);
        bounded(REQUEST_PATIENCE, write).await.map(drop)
    }

    /// An event is a service: nothing waits for one that cannot be sent.
    async fn tell(&self, request: &CertificateSigningRequest, reason: &str, message: String) {
        let about = ObjectReference {
            api_version: Some("certificates.k8s.io/v1".into()),
            kind: Some("CertificateSigningRequest".into()),
            name: Some(request.name_any()),
            uid: request.uid(),
            ..ObjectReference::default()
        };
        let is_warning = reason.ends_with("Denied");
        let event = event("multus-approver", about, is_warning, reason, message);
        let params = PostParams::default();
        let sent = bounded(REQUEST_PATIENCE, self.events.create(&params, &event)).await;
        if let Err(error) = sent {
            warn!(request = request.name_any(), %error, "cannot send an event");
        }
    }
}

/// The request with the condition; its resourceVersion keeps a newer one from being overwritten.
fn decided(
    request: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    message: &str,
) -> CertificateSigningRequest {
    let mut request = request.clone();
    let status = request.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(Time(Timestamp::now())),
        ..CertificateSigningRequestCondition::default()
    });
    request
}
