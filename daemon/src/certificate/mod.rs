//! The daemon's own client certificate, one per node: asked for with a bootstrap identity, kept on the node, renewed in time.
//!
//! What is decided (what a request holds, whether a certificate serves, when it is due) are functions over values; the store, the
//! bootstrap and the request are thin edges, and `keeper` joins them. Nothing here approves anything.

mod held;
mod request;

pub mod approve;
mod bootstrap;
mod keeper;
mod obtain;
mod store;

pub use held::{Held, Unusable};
pub use keeper::Keeper;
pub use request::{Subject, subject};

use node::root::{Root, RootError};
use plan::daemon_config::certificate::Settings;

/// The signer of client certificates for the API server.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// What every common name of ours begins with.
pub const PREFIX: &str = "system:multus";
/// The organization of every certificate: the group that the daemons' rights are bound to.
pub const ORGANIZATION: &str = "system:multus";
/// What a certificate is for.
pub const USAGES: [&str; 2] = ["digital signature", "client auth"];

/// Takes key and certificate off the node; whether there were any.
pub fn forget(root: &Root, settings: &Settings) -> Result<bool, RootError> {
    let dir = &settings.dir;
    store::Store { root, dir }.clear()
}

/// The name that a node's daemon has in the cluster.
pub fn common_name(node: &str) -> String {
    format!("{PREFIX}:{node}")
}

#[cfg(test)]
pub(crate) mod testing {
    //! Requests as others might make them.

    /// A request for this distinguished name.
    pub(crate) fn request(subject: &str) -> String {
        super::request::Key::generate()
            .and_then(|key| key.request_of(|| subject.parse()))
            .unwrap()
    }
}
#[cfg(test)]
mod tests;
