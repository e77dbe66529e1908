//! Obtains one certificate: creates a certificate signing request, waits for approval and signature, and checks the result.

use std::time::Duration;

use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use tokio::time::{Instant, sleep};

use super::{
    ClientCertificate, SIGNER, USAGES, UnusableCertificate,
    request::{Key, RequestError},
};
use crate::{
    access::{ApiError, ApiRequest, Client},
    backoff::backoff,
    cluster::{
        api_path::{self, SIGNING_REQUESTS},
        retry::{random, with_retries},
    },
};

/// The time limit of approval and signature.
const TIMEOUT: Duration = Duration::from_mins(2);
/// The pause before the first check, and the longest pause. A signer takes milliseconds, a user who approves takes minutes, and all nodes
/// of a rollout ask at once.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The time limit of an API request with all its tries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why there is no certificate yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObtainError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("cannot {0}: {1}")]
    Api(&'static str, ApiError),
    #[error("certificate signing request {0} was refused: {1}")]
    Refused(String, String),
    #[error("{0}, for {seconds} s already", seconds = TIMEOUT.as_secs())]
    TooLate(String),
    #[error("the certificate of certificate signing request {0} cannot be used: {1}")]
    Unusable(String, UnusableCertificate),
}

/// The state of a request.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// This step is still missing.
    Waiting(&'static str),
    /// The certificate in PEM.
    Issued(String),
    /// The request was denied or failed, for this reason.
    Refused(String),
}

/// Obtains a certificate for `node`. `report` gets the step that the request waits for.
pub(super) async fn obtain(
    client: Client,
    node: &str,
    duration: Duration,
    report: impl Fn(&str),
) -> Result<ClientCertificate, ObtainError> {
    let key = Key::generate()?;
    let request = signing_request(node, key.request(node)?, duration);
    let create = ApiRequest::post(SIGNING_REQUESTS, &request);
    let mut request: CertificateSigningRequest =
        with_retries(REQUEST_TIMEOUT, |time| client.object(&create, time))
            .await
            .map_err(|why| ObtainError::Api("create a certificate signing request", why))?;
    let name = request.metadata.name.clone().unwrap_or_default();
    let read = ApiRequest::get(api_path::signing_request(&name));
    let end = Instant::now() + TIMEOUT;
    let mut checks = 0;
    loop {
        match progress(&request) {
            Progress::Issued(certificate) => {
                let pem = format!("{}\n{}", certificate.trim_end(), key.pem()?);
                return ClientCertificate::validate(&pem, node, Timestamp::now())
                    .map_err(|why| ObtainError::Unusable(name, why));
            }
            Progress::Refused(why) => return Err(ObtainError::Refused(name, why)),
            Progress::Waiting(step) => {
                let waiting = format!("certificate signing request {name} waits for {step}");
                if Instant::now() >= end {
                    return Err(ObtainError::TooLate(waiting));
                }
                report(&waiting);
            }
        }
        checks += 1;
        sleep(backoff(checks, FIRST_PAUSE, LONGEST_PAUSE, random())).await;
        let found = with_retries(REQUEST_TIMEOUT, |time| client.object(&read, time));
        match found.await {
            Ok(newer) => request = newer,
            // This request will fail for ever.
            Err(why) if matches!(why.code(), Some(401 | 403 | 404)) => {
                return Err(ObtainError::Api("read a certificate signing request", why));
            }
            Err(why) => report(&format!(
                "cannot read certificate signing request {name}: {why}"
            )),
        }
    }
}

fn signing_request(node: &str, pem: String, duration: Duration) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("multus-{node}-")),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(USAGES.map(str::to_owned).into()),
            expiration_seconds: i32::try_from(duration.as_secs()).ok(),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

fn progress(request: &CertificateSigningRequest) -> Progress {
    let status = request.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let find = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
    if let Some(refusal) = find("Denied").or_else(|| find("Failed")) {
        let message = refusal.message.clone().filter(|text| !text.is_empty());
        return Progress::Refused(message.unwrap_or_else(|| refusal.type_.to_lowercase()));
    }
    let certificate = status.certificate.filter(|bytes| !bytes.0.is_empty());
    match (certificate, find("Approved")) {
        (Some(bytes), _) => Progress::Issued(String::from_utf8_lossy(&bytes.0).into_owned()),
        (None, Some(_)) => Progress::Waiting("the cluster's signer"),
        (None, None) => Progress::Waiting("approval"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn approver_accepts_the_request() {
        let request = signing_request("node-a", "pem".into(), Duration::from_hours(1));
        let expected = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "multus-node-a-"},
            "spec": {
                "request": "cGVt", "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["digital signature", "client auth"], "expirationSeconds": 3600
            }
        });
        assert_eq!(serde_json::to_value(request).unwrap(), expected);
    }

    #[test]
    fn progress_is_read_from_the_status() {
        let condition =
            |kind: &str, message: &str| json!({"type": kind, "status": "True", "message": message});
        let waiting = Progress::Waiting;
        let refused = |text: &str| Progress::Refused(text.to_owned());
        for (status, expected) in [
            (Value::Null, waiting("approval")),
            (
                json!({"conditions": [condition("Approved", "")]}),
                waiting("the cluster's signer"),
            ),
            (
                json!({"conditions": [condition("Approved", "")], "certificate": "cGVt"}),
                Progress::Issued("pem".into()),
            ),
            (
                json!({"conditions": [condition("Approved", "")], "certificate": ""}),
                waiting("the cluster's signer"),
            ),
            (
                json!({"conditions": [condition("Denied", "not you")]}),
                refused("not you"),
            ),
            (
                json!({"conditions": [condition("Approved", ""), condition("Failed", "too long")]}),
                refused("too long"),
            ),
            (
                json!({"conditions": [condition("Denied", "")]}),
                refused("denied"),
            ),
        ] {
            let mut request = signing_request("n", String::new(), TIMEOUT);
            request.status = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(progress(&request), expected, "{status}");
        }
    }
}
