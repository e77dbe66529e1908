//! One certificate signing request: made, watched until somebody approved it and the signer signed, and judged.

use std::time::Duration;

use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use tokio::time::{Instant, sleep};

use super::{
    Held, SIGNER, USAGES, Unusable,
    request::{Key, RequestError},
};
use crate::{
    access::{Ask, Client, Failure},
    cluster::{
        path::{self, SIGNING_REQUESTS},
        retry::{backoff, patiently, random},
    },
};

/// How long approval and signature may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// Pause before the second look, and the longest: signers take milliseconds, people minutes, and nodes of a rollout all ask at once.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// No request takes longer, all its tries together.
const REQUEST_PATIENCE: Duration = Duration::from_secs(10);

/// There is no certificate yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObtainError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("cannot {0}: {1}")]
    Api(&'static str, Failure),
    #[error("certificate signing request {0} was turned down: {1}")]
    Refused(String, String),
    #[error("{0}, for {seconds} s by now", seconds = PATIENCE.as_secs())]
    TooLate(String),
    #[error("the certificate of certificate signing request {0} cannot be used: {1}")]
    Unusable(String, Unusable),
}

/// How far a request is.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Somebody has still to do this.
    Waiting(&'static str),
    /// The certificate in PEM.
    Issued(String),
    /// Nobody will, for this reason.
    Refused(String),
}

/// Asks for a certificate for `node`; `tell` hears what is being waited for.
pub(super) async fn obtain(
    client: Client,
    node: &str,
    duration: Duration,
    tell: impl Fn(&str),
) -> Result<Held, ObtainError> {
    let key = Key::generate()?;
    let request = signing_request(node, key.request(node)?, duration);
    let create = Ask::post(SIGNING_REQUESTS, &request);
    let mut request: CertificateSigningRequest =
        patiently(REQUEST_PATIENCE, |time| client.object(&create, time))
            .await
            .map_err(|why| ObtainError::Api("create a certificate signing request", why))?;
    let name = request.metadata.name.clone().unwrap_or_default();
    let look = Ask::get(path::signing_request(&name));
    let end = Instant::now() + PATIENCE;
    let mut looks = 0;
    loop {
        match progress(&request) {
            Progress::Issued(certificate) => {
                let pem = format!("{}\n{}", certificate.trim_end(), key.pem()?);
                return Held::judge(&pem, node, Timestamp::now())
                    .map_err(|why| ObtainError::Unusable(name, why));
            }
            Progress::Refused(why) => return Err(ObtainError::Refused(name, why)),
            Progress::Waiting(what) => {
                let waiting = format!("certificate signing request {name} waits for {what}");
                if Instant::now() >= end {
                    return Err(ObtainError::TooLate(waiting));
                }
                tell(&waiting);
            }
        }
        looks += 1;
        sleep(backoff(looks, FIRST_PAUSE, LONGEST_PAUSE, random())).await;
        let looked = patiently(REQUEST_PATIENCE, |time| client.object(&look, time));
        match looked.await {
            Ok(newer) => request = newer,
            // The same look will fail for ever.
            Err(why) if matches!(why.code(), Some(401 | 403 | 404)) => {
                return Err(ObtainError::Api(
                    "look at a certificate signing request",
                    why,
                ));
            }
            Err(why) => tell(&format!(
                "cannot look at certificate signing request {name}: {why}"
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
    fn a_request_asks_for_what_the_approver_lets_pass() {
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
            let mut request = signing_request("n", String::new(), PATIENCE);
            request.status = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(progress(&request), expected, "{status}");
        }
    }
}
