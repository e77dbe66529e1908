//! Fuzz targets of what the daemon reads: requests on its socket, its state files, and the answers of API server and kubelet.
//! `docs/contributing/testing.md` says how they run; the other untrusted formats have theirs in `plan` and `node`.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use std::io;

use plan::netconf::Netconf;
use serde_json::Map;

use crate::access;
use crate::call::CniCall;
pub use crate::cluster::fuzz::watches;
pub use crate::state::fuzz::states;

/// A request of the shim, which a journal's entry is too.
pub fn requests(input: &[u8]) -> bool {
    let Ok(request) = api::Request::from_json(input) else {
        return false;
    };
    let again = api::Request::from_json(&request.to_json());
    let again = again.expect("a request is written as it is read");
    assert_eq!(again.to_json(), request.to_json());
    let Ok(call) = CniCall::parse(&request) else {
        return false;
    };
    if let Some(request) = &call.request {
        let id = request.container_id.as_str();
        assert!(!id.is_empty() && !id.contains('/') && !id.starts_with('.'));
    }
    Netconf::effective(&request.config, &Map::new(), true).is_ok()
}

/// The kubelet's file of devices.
pub fn devices(input: &[u8]) -> bool {
    crate::devices::checkpoint::devices(input, "uid-1").is_ok()
}

/// A kubeconfig, whose files have the same content.
pub fn kubeconfigs(input: &[u8]) -> bool {
    access::parse(input, |_| Ok::<_, io::Error>(b"content".to_vec())).is_ok()
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    #[test]
    fn requests() {
        run("daemon_requests", super::requests);
    }

    #[test]
    fn states() {
        run("daemon_states", super::states);
    }

    #[test]
    fn watches() {
        run("daemon_watches", super::watches);
    }

    #[test]
    fn devices() {
        run("daemon_devices", super::devices);
    }

    #[test]
    fn kubeconfigs() {
        run("daemon_kubeconfigs", super::kubeconfigs);
    }
}
