//! The daemon's own client certificate, one per node: requested with a bootstrap identity, stored on the node, renewed in time.
//!
//! Functions over values decide the content of a request, whether a certificate is usable, and when its renewal is due. The store, the
//! bootstrap identity and the request are thin edges, and `keeper` joins them. Nothing here approves requests.

mod client_certificate;
mod request;

pub mod approve;
mod bootstrap;
mod keeper;
mod obtain;
mod store;

pub use client_certificate::{ClientCertificate, UnusableCertificate};
pub use keeper::Keeper;
pub use request::{Subject, subject};

use node::root::{Root, RootError};
use plan::daemon_config::certificate::Settings;

/// The signer of client certificates for the API server.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The prefix of the daemons' common names.
pub const PREFIX: &str = "system:multus";
/// The organization of every certificate: the group to which the daemons' rights are bound.
pub const ORGANIZATION: &str = "system:multus";
/// The key usages of every certificate.
pub const USAGES: [&str; 2] = ["digital signature", "client auth"];

/// Removes key and certificate from the node. Returns whether there were any.
pub fn remove(root: &Root, settings: &Settings) -> Result<bool, RootError> {
    let dir = &settings.dir;
    store::Store { root, dir }.clear()
}

/// Returns the name of a node's daemon in the cluster.
pub fn common_name(node: &str) -> String {
    format!("{PREFIX}:{node}")
}

#[cfg(test)]
pub(crate) mod testing {
    //! Signing requests as other clients might make them.

    /// Returns a request for this distinguished name.
    pub(crate) fn request(subject: &str) -> String {
        super::request::Key::generate()
            .and_then(|key| key.request_of(|| subject.parse()))
            .unwrap()
    }
}
