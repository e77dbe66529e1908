//! Nothing but a manifest, which unites the features of crates that the programs of a release share, and of those that tests share with the
//! workspace's tools.
//!
//! Cargo builds a crate again for each set of its features, and with it everything that depends on it. A release has programs that cargo
//! must build apart, and a feature that one of them lacks would double the work, down to the types of the Kubernetes API.
//! `xtask/tests/it/shared_builds.rs` fails when they share less than they did.
