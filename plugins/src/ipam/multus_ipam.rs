//! multus-ipam: addresses of ranges that all nodes share. The service of `multus-daemon` gives them; the plugin asks it for each verb, and
//! needs neither a kubeconfig nor a file of the node.

use cni::types::IpConfig;
use cni::{CniError, CniResult};
use ipam::wire::{self, Allocation, Answer, Ask, Attachment, Grant, Pod};

use crate::call::Call;
use crate::config::multus_ipam::Config;
use crate::error::{Result, failure};
use crate::ipam::host_local::read_resolv_conf;
use crate::ipam::service::Service;

/// Returns an address of each list of ranges.
pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let config = Config::load(call)?;
    let dns = match config.dns {
        Some(dns) => dns,
        None => read_resolv_conf(&config.resolv_conf)?,
    };
    let ask = Ask::Allocate(Allocation {
        attachment: attachment(call),
        pod: pod(&call.args),
        network: call.network.clone(),
        ipam: config.ipam,
        addresses: config.addresses,
        claim: config.claim,
    });
    let ips = exchange(&ask)?.into_iter().map(|grant| {
        let Grant { address, gateway } = grant;
        IpConfig {
            interface: None,
            address,
            gateway,
        }
    });
    Ok(CniResult {
        ips: ips.collect(),
        routes: config.routes,
        dns,
        ..CniResult::default()
    })
}

/// Gives the addresses back. Without a service it fails, and the runtime repeats it: otherwise they would stay taken.
pub(crate) fn del(call: &Call) -> Result<()> {
    exchange(&Ask::Release(attachment(call))).map(|_| ())
}

/// Fails unless the attachment has addresses.
pub(crate) fn check(call: &Call) -> Result<()> {
    Config::load(call)?;
    exchange(&Ask::Check(attachment(call))).map(|_| ())
}

/// Fails unless the service accepts requests.
pub(crate) fn status(call: &Call) -> Result<()> {
    Config::load(call)?;
    service().status()
}

/// Gives the addresses back that none of the valid attachments has.
pub(crate) fn gc(call: &Call) -> Result<()> {
    let valid = call.require_valid_attachments()?.into_iter();
    let valid = valid.map(|attachment| Attachment {
        container: attachment.container_id,
        ifname: attachment.ifname,
    });
    let ask = Ask::Collect {
        network: call.network.clone(),
        valid: valid.collect(),
    };
    exchange(&ask).map(|_| ())
}

pub(super) fn attachment(call: &Call) -> Attachment {
    Attachment {
        container: call.container_id.clone(),
        ifname: call.ifname.clone(),
    }
}

/// Returns the pod that `CNI_ARGS` names; what is missing is empty.
pub(super) fn pod(args: &str) -> Pod {
    let value = |key: &str| {
        let mut pairs = args.split(';').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(name, _)| *name == key);
        found.map_or_else(String::new, |(_, value)| value.to_owned())
    };
    Pod {
        namespace: value("K8S_POD_NAMESPACE"),
        name: value("K8S_POD_NAME"),
        uid: value("K8S_POD_UID"),
    }
}

pub(super) fn service() -> Service<'static> {
    Service {
        name: "IPAM",
        own: wire::SOCKET,
        sockets: vec![wire::SOCKET],
    }
}

pub(super) fn exchange(ask: &Ask) -> Result<Vec<Grant>> {
    let what = || "error asking the IPAM service of multus-daemon".to_owned();
    let answer = service().request(&ask.document(), !matches!(ask, Ask::Check(_)), what);
    let answer = answer.map_err(|unserved| {
        let error = unserved.into_error();
        let hint = "set ipam.enabled in Multus' chart, or wait for its daemon";
        later(failure!("{}: {hint}", error.msg))
    })?;
    match Answer::parse(&answer).ok_or_else(|| failure!("{}: its answer cannot be read", what()))? {
        Answer::Done(grants) => Ok(grants),
        Answer::Failed {
            reason,
            is_temporary: true,
        } => Err(later(failure!("{reason}"))),
        Answer::Failed { reason, .. } => {
            Err(CniError::new(CniError::INVALID_NETWORK_CONFIG, reason))
        }
    }
}

/// Returns an error after which the runtime tries again.
fn later(error: CniError) -> CniError {
    CniError {
        code: CniError::TRY_AGAIN_LATER,
        ..error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_comes_from_the_arguments() {
        let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=u;K8S_POD_INFRA_CONTAINER_ID=c";
        let expected = Pod {
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            uid: "u".to_owned(),
        };
        assert_eq!(pod(args), expected);
        assert_eq!(pod(""), Pod::default());
    }
}
