//! `multus-daemon approve`: watches certificate signing requests and writes down what was decided. It holds nothing and leads nothing:
//! two of it decide the same, and the API server takes the first answer.

use std::{pin::pin, time::Duration};

use anyhow::Context;
use futures::StreamExt as _;
use k8s_openapi::{
    api::{
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
        core::v1::{Event, EventSource, ObjectReference},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::PostParams,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    approve::{Decision, ServiceAccount, decide},
    causes::causes,
    certificate::SIGNER,
};

/// All requests are looked at again that often, whatever became of earlier looks.
const RESYNC: Duration = Duration::from_hours(1);
/// How often one decision is written before it is left to the next look.
const TRIES: u32 = 5;
/// Pause before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// No single request takes longer.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Where events about things without a namespace go.
const EVENTS: &str = "default";

/// Runs until SIGTERM or SIGINT.
pub async fn run(account: Option<ServiceAccount>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let client = Client::try_default()
        .await
        .context("no access to the API server")?;
    let approver = Approver {
        requests: Api::all(client.clone()),
        events: Api::namespaced(client, EVENTS),
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
                    self.tell(&request, reason, message).await;
                    return;
                }
                Err(Failure::Gone) => return,
                Err(Failure::Other(error)) => {
                    warn!(request = name, attempt, error, "cannot write the decision");
                    sleep(PAUSE).await;
                }
                Err(Failure::Conflict) => debug!(request = name, "it was changed meanwhile"),
            }
            match bounded(self.requests.get(&name)).await {
                Ok(newer) => request = newer,
                Err(Failure::Gone) => return,
                // The same decision is tried again; an outdated one is refused.
                Err(_) => debug!(request = name, "cannot look at it again"),
            }
        }
    }

    async fn write(&self, name: &str, request: CertificateSigningRequest) -> Result<(), Failure> {
        let params = PostParams::default();
        let write = self
            .requests
            .replace_subresource("approval", name, &params, &request);
        bounded(write).await.map(drop)
    }

    /// An event is a service: nothing waits for one that cannot be sent.
    async fn tell(&self, request: &CertificateSigningRequest, reason: String, message: String) {
        let event = event(request, reason, message);
        if let Err(failure) = bounded(self.events.create(&PostParams::default(), &event)).await {
            warn!(
                request = request.name_any(),
                ?failure,
                "cannot send an event"
            );
        }
    }
}

#[derive(Debug)]
enum Failure {
    Gone,
    Conflict,
    Other(String),
}

async fn bounded<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match timeout(REQUEST_PATIENCE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(match status.code {
            404 => Failure::Gone,
            409 => Failure::Conflict,
            code => Failure::Other(format!("{} (code {code})", status.message)),
        }),
        Ok(Err(error)) => Err(Failure::Other(causes(&error))),
        Err(_) => Err(Failure::Other(format!(
            "no answer within {} s",
            REQUEST_PATIENCE.as_secs()
        ))),
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

fn event(request: &CertificateSigningRequest, reason: String, message: String) -> Event {
    let (name, now) = (request.name_any(), Time(Timestamp::now()));
    let denied = reason.ends_with("Denied");
    Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}.")),
            namespace: Some(EVENTS.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("certificates.k8s.io/v1".into()),
            kind: Some("CertificateSigningRequest".into()),
            name: Some(name),
            uid: request.uid(),
            ..ObjectReference::default()
        },
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        type_: Some(if denied { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason),
        message: Some(message),
        source: Some(EventSource {
            component: Some("multus-approver".into()),
            host: None,
        }),
        ..Event::default()
    }
}
