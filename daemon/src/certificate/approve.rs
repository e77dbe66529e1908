//! Decides on certificate signing requests: a daemon's certificate is approved when its own node requests it, and denied to any other
//! requester. Requests for other certificates are left to other approvers. A function over values; `commands::approve` writes its decisions.

use std::collections::BTreeMap;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use plan::daemon_config::certificate::LONGEST;

use crate::certificate::{ORGANIZATION, PREFIX, SIGNER, Subject, USAGES, common_name, subject};

/// The prefixes of users that stand for one node each; the node's name follows.
const NODE_USERS: [&str; 2] = ["system:node:", "system:multus:"];
/// Groups that such users may be in.
const NODE_GROUPS: [&str; 3] = ["system:nodes", "system:multus", "system:authenticated"];
/// The key under which the API server reports the node of the pod that a service account's token belongs to.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// The decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The request is another approver's, or decided already.
    Leave,
    /// The request is valid.
    Approve,
    /// The request is invalid for this reason.
    Deny(String),
}

/// A service account whose pods may request the certificate of their own node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

impl std::str::FromStr for ServiceAccount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if is_subdomain(namespace) && is_subdomain(name) => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err("it is not of the form namespace/name".to_owned()),
        }
    }
}

/// Decides on one request. A node may request its own certificate; a pod of `account` may request that of the node on which the API server
/// knows it to run.
pub fn decide(request: &CertificateSigningRequest, account: Option<&ServiceAccount>) -> Decision {
    let spec = &request.spec;
    let Some(subject) = subject(&spec.request.0).filter(|_| spec.signer_name == SIGNER) else {
        return Decision::Leave;
    };
    let ours = |name: &String| name.starts_with(PREFIX);
    if !subject.common_names.iter().any(ours) || is_decided(request) {
        return Decision::Leave;
    }
    match violation(request, &subject, account) {
        None => Decision::Approve,
        Some(reason) => Decision::Deny(reason),
    }
}

fn is_decided(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else {
        return false;
    };
    let conditions = status.conditions.iter().flatten();
    let mut kinds = conditions.map(|condition| condition.type_.as_str());
    kinds.any(|kind| matches!(kind, "Approved" | "Denied" | "Failed"))
        || status
            .certificate
            .as_ref()
            .is_some_and(|bytes| !bytes.0.is_empty())
}

/// Returns the first violated condition.
fn violation(
    request: &CertificateSigningRequest,
    subject: &Subject,
    account: Option<&ServiceAccount>,
) -> Option<String> {
    let spec = &request.spec;
    let user = spec.username.as_deref().unwrap_or_default();
    let (node, groups) = match requester(user, spec.extra.as_ref(), account) {
        Ok(requester) => requester,
        Err(reason) => return Some(reason),
    };
    if !is_subdomain(node) {
        return Some(format!("requester {user} has no valid node name"));
    }
    let mut found = spec.groups.iter().flatten();
    if let Some(group) = found.find(|group| !groups.contains(group)) {
        return Some(format!(
            "requester {user} is in group {group}, in which no node may be"
        ));
    }
    let (mut usages, mut expected): (Vec<&str>, _) = (
        spec.usages.iter().flatten().map(String::as_str).collect(),
        USAGES,
    );
    usages.sort_unstable();
    expected.sort_unstable();
    if usages != expected {
        return Some(format!(
            "usages are [{}], but must be [{}]",
            usages.join(", "),
            USAGES.join(", ")
        ));
    }
    if subject.common_names != [common_name(node)] {
        let names = subject.common_names.join(" and ");
        return Some(format!(
            "requester {user} may request {}, not {names}",
            common_name(node)
        ));
    }
    if subject.organizations != [ORGANIZATION] {
        let found = subject.organizations.join(", ");
        return Some(format!(
            "organizations are [{found}], but must be [{ORGANIZATION}]"
        ));
    }
    let longest = i32::try_from(LONGEST.as_secs()).unwrap_or(i32::MAX);
    match spec.expiration_seconds {
        None => Some(format!(
            "expirationSeconds is missing, but must be at most {longest}"
        )),
        Some(seconds) if seconds > longest => Some(format!(
            "expirationSeconds is {seconds}, but must be at most {longest}"
        )),
        Some(_) => None,
    }
}

type Extra = BTreeMap<String, Vec<String>>;

/// Returns the node of a requester, and the groups that the requester may be in.
fn requester<'a>(
    user: &'a str,
    extra: Option<&'a Extra>,
    account: Option<&ServiceAccount>,
) -> Result<(&'a str, Vec<String>), String> {
    if let Some(node) = NODE_USERS
        .iter()
        .find_map(|prefix| user.strip_prefix(prefix))
    {
        return Ok((node, NODE_GROUPS.map(str::to_owned).into()));
    }
    let Some(ServiceAccount { namespace, .. }) = account.filter(|account| {
        user == format!(
            "system:serviceaccount:{}:{}",
            account.namespace, account.name
        )
    }) else {
        return Err(format!(
            "requester {user} is neither a node nor the multus daemon of a node"
        ));
    };
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    match extra
        .and_then(|extra| extra.get(NODE_OF_TOKEN))
        .map(Vec::as_slice)
    {
        Some([node]) => Ok((node, groups.into())),
        _ => Err(format!(
            "the API server does not report on which node requester {user} runs ({NODE_OF_TOKEN}): set bootstrapKubeconfig to a node's kubeconfig"
        )),
    }
}

/// Returns whether the name is a DNS subdomain as Kubernetes defines it (RFC 1123).
fn is_subdomain(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter().all(|end| end.is_some_and(|byte| inside(*byte)))
            && bytes.iter().all(|byte| inside(*byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests;
