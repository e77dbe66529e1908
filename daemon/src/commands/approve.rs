//! `multus-daemon approve`: watches certificate signing requests and writes decisions. It keeps no state and needs no leader election:
//! two instances decide the same, and the API server takes the first decision.

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
    access::{self, ApiError, ApiRequest, Client},
    certificate::{
        SIGNER,
        approve::{Decision, ServiceAccount, decide},
    },
    cluster::{
        api_path::{self, SIGNING_REQUESTS},
        event::{CLUSTER_WIDE, event},
        reflector::{self, Event, Resource, Selector, selector},
        retry::with_retries,
    },
};

/// All requests are listed and decided again in this period, whatever happened to earlier attempts.
const RESYNC: Duration = Duration::from_hours(1);
/// The number of attempts to write one decision before the next resync.
const TRIES: u32 = 5;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// Limit for one request to the API server, including its retries.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);
/// Limit for one attempt to write a decision.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// Status codes of the API server for a deleted request, and for one that changed since it was read.
const NOT_FOUND: u16 = 404;
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
    /// Decides on all present requests and on each new one.
    async fn follow(&self) {
        loop {
            let resource = Resource {
                what: "certificatesigningrequests",
                path: SIGNING_REQUESTS,
                selector: Some(Selector::Field(selector("spec.signerName", SIGNER))),
                metadata_only: false,
            };
            let (sender, mut waiting) = mpsc::unbounded_channel();
            let watch = reflector::run(self.client.clone(), resource, |event| {
                let found = match event {
                    Event::All(requests) => requests,
                    Event::Put(request) => vec![request],
                    Event::Remove(_) | Event::UnknownKind => Vec::new(),
                };
                for request in found {
                    // It cannot fail: the receiver is dropped together with the watch.
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
            debug!("deciding on all requests again");
        }
    }

    /// Retries until the decision is written, or another approver has decided.
    async fn handle(&self, mut request: CertificateSigningRequest) {
        let name = name_of(&request);
        for attempt in 1..=TRIES {
            let (kind, message) = match decide(&request, self.account.as_ref()) {
                Decision::Leave => return,
                Decision::Approve => ("Approved", "requested by the node itself".to_owned()),
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
                    self.send_event(&request, &reason, message).await;
                    return;
                }
                Err(failure) if failure.code() == Some(NOT_FOUND) => return,
                Err(failure) if failure.code() == Some(CONFLICT) => {
                    debug!(request = name, "the request changed meanwhile");
                }
                Err(error) => {
                    warn!(request = name, attempt, %error, "cannot write the decision");
                    sleep(PAUSE).await;
                }
            }
            let get = ApiRequest::get(api_path::signing_request(&name));
            let read = with_retries(REQUEST_PATIENCE, |time| self.client.object(&get, time));
            match read.await {
                Ok(newer) => request = newer,
                Err(failure) if failure.code() == Some(NOT_FOUND) => return,
                // The next attempt writes the same decision; the API server refuses it if the request has changed.
                Err(error) => debug!(request = name, %error, "cannot read the request again"),
            }
        }
    }

    async fn write(&self, name: &str, request: CertificateSigningRequest) -> Result<(), ApiError> {
        let path = api_path::signing_request(format_args!("{name}/approval"));
        let put = ApiRequest::put(path, &request).metadata();
        // After a conflict the request must be read again before another attempt.
        self.client.send(&put, WRITE_PATIENCE).await.map(drop)
    }

    /// Sends an event about a decision; a failure is only logged.
    async fn send_event(&self, request: &CertificateSigningRequest, reason: &str, message: String) {
        let about = ObjectReference {
            api_version: Some("certificates.k8s.io/v1".into()),
            kind: Some("CertificateSigningRequest".into()),
            name: Some(name_of(request)),
            uid: request.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let is_warning = reason.ends_with("Denied");
        let event = event("multus-approver", about, is_warning, reason, message);
        let post = ApiRequest::post(api_path::events(CLUSTER_WIDE), &event).metadata();
        let sent = with_retries(REQUEST_PATIENCE, |time| self.client.send(&post, time));
        if let Err(error) = sent.await {
            warn!(request = name_of(request), %error, "cannot send an event");
        }
    }
}

fn name_of(request: &CertificateSigningRequest) -> String {
    request.metadata.name.clone().unwrap_or_default()
}

/// Returns the request with the decision as a condition; its resourceVersion prevents overwriting a newer version.
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
