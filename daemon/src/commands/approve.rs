//! `multus-daemon approve`: watches certificate signing requests and writes down what was decided. It holds nothing and leads nothing:
//! two of it decide the same, and the API server takes the first answer.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::{
    api::{
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use crate::{
    access::{self, Ask, Client, Failure},
    certificate::{
        SIGNER,
        approve::{Decision, ServiceAccount, decide},
    },
    cluster::{
        event::{CLUSTER_WIDE, event},
        path::{self, SIGNING_REQUESTS},
        reflect::{Event, Resource, follow, selector},
        retry::patiently,
    },
};

/// All requests are looked at again that often, whatever became of earlier looks.
const RESYNC: Duration = Duration::from_hours(1);
/// How often one decision is written before it is left to the next look.
const TRIES: u32 = 5;
/// Pause before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// No request takes longer, all its tries together.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// One try to write a decision.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// How the API server says that there is no such request any more, and that it is another by now.
const GONE: u16 = 404;
const CONFLICT: u16 = 409;

/// Runs until SIGTERM or SIGINT.
pub async fn run(account: Option<ServiceAccount>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let client = access::client().context("no access to the API server")?;
    let approver = Approver { client, account };
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
    client: Client,
    account: Option<ServiceAccount>,
}

impl Approver {
    /// Decides on all that are there and on each that comes.
    async fn follow(&self) {
        loop {
            let resource = Resource {
                what: "certificatesigningrequests",
                path: SIGNING_REQUESTS,
                field_selector: Some(selector("spec.signerName", SIGNER)),
                metadata_only: false,
            };
            let (sender, mut waiting) = mpsc::unbounded_channel();
            let watch = follow(self.client.clone(), resource, |event| {
                let found = match event {
                    Event::All(requests) => requests,
                    Event::Put(request) => vec![request],
                    Event::Remove(_) | Event::UnknownKind => Vec::new(),
                };
                for request in found {
                    // The other end is dropped together with this one.
                    let _ = sender.send(request);
                }
            });
            let decide = async {
                while let Some(request) = waiting.recv().await {
                    self.handle(request).await;
                }
            };
            let both = Box::pin(async { tokio::join!(watch, decide) });
            let _ = timeout(RESYNC, both).await;
            debug!("looking at all requests again");
        }
    }

    /// Decides until the decision is written, or is not ours any more.
    async fn handle(&self, mut request: CertificateSigningRequest) {
        let name = name_of(&request);
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
                Err(failure) if failure.code() == Some(GONE) => return,
                Err(failure) if failure.code() == Some(CONFLICT) => {
                    debug!(request = name, "it was changed meanwhile");
                }
                Err(error) => {
                    warn!(request = name, attempt, %error, "cannot write the decision");
                    sleep(PAUSE).await;
                }
            }
            let look = Ask::get(path::signing_request(&name));
            let looked = patiently(REQUEST_PATIENCE, |time| self.client.object(&look, time));
            match looked.await {
                Ok(newer) => request = newer,
                Err(failure) if failure.code() == Some(GONE) => return,
                // The same decision is tried again; an outdated one is refused.
                Err(error) => debug!(request = name, %error, "cannot look at it again"),
            }
        }
    }

    async fn write(&self, name: &str, request: CertificateSigningRequest) -> Result<(), Failure> {
        let path = path::signing_request(format_args!("{name}/approval"));
        let put = Ask::put(path, &request).metadata();
        // A conflict is no reason to write the same again: it is looked at anew.
        self.client.send(&put, WRITE_PATIENCE).await.map(drop)
    }

    /// An event is a service: nothing waits for one that cannot be sent.
    async fn tell(&self, request: &CertificateSigningRequest, reason: &str, message: String) {
        let about = ObjectReference {
            api_version: Some("certificates.k8s.io/v1".into()),
            kind: Some("CertificateSigningRequest".into()),
            name: Some(name_of(request)),
            uid: request.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let is_warning = reason.ends_with("Denied");
        let event = event("multus-approver", about, is_warning, reason, message);
        let post = Ask::post(path::events(CLUSTER_WIDE), &event).metadata();
        let sent = patiently(REQUEST_PATIENCE, |time| self.client.send(&post, time));
        if let Err(error) = sent.await {
            warn!(request = name_of(request), %error, "cannot send an event");
        }
    }
}

fn name_of(request: &CertificateSigningRequest) -> String {
    request.metadata.name.clone().unwrap_or_default()
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
