//! Registries over HTTP: the client of all requests with its proxies, certificates and retries, the OCI distribution protocol, and logins.
//!
//! It pushes what it is given: what a release consists of is the crate `release`. `http` also downloads files for xtask.

mod client;
pub mod http;
pub mod names;
pub mod push;
pub mod referrers;

pub use client::{Access, Error, Login, Registry, StoredLoginError, optional, stored_login};

#[cfg(any(test, fuzzing))]
pub use client::fuzz;
