//! What tests of several crates share: generated inputs, and fakes of the servers that the programs talk to.
//!
//! Only dev-dependencies name this crate. Each fake is a feature, so that a crate that wants generated inputs builds nothing else.
//! A fake answers until it is dropped; a failure in it panics, and the test fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

pub mod elf;
pub mod fuzz;

#[cfg(feature = "api-server")]
pub mod api_server;
#[cfg(feature = "authority")]
pub mod authority;
#[cfg(feature = "cri")]
pub mod cri;
#[cfg(feature = "http-server")]
pub mod http_server;
#[cfg(feature = "kubelet")]
pub mod kubelet;

#[cfg(feature = "grpc")]
mod grpc;
