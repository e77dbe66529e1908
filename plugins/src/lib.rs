//! multus-cni-plugins: the common CNI plugins as one static program. The name under which it is started says which plugin it is.
//!
//! It is a library with a program of one line, so that fuzz targets can link it. Without the feature `program` it is only [`config`], which
//! runs everywhere: the configurations, for programs that check them.
//!
//! **Invariant**: stdout holds one CNI document or nothing, whatever happens.

#![cfg_attr(
    not(feature = "program"),
    expect(
        dead_code,
        reason = "the plugins read more of a configuration than its check"
    )
)]

mod call;
pub mod config;
mod error;
mod ip;

#[cfg(feature = "program")]
mod attachment;
#[cfg(feature = "program")]
mod filter;
#[cfg(feature = "program")]
mod interface;
#[cfg(feature = "program")]
mod ipam;
#[cfg(feature = "program")]
mod kernel;
#[cfg(feature = "program")]
mod meta;
#[cfg(feature = "program")]
mod plugin;
#[cfg(feature = "program")]
mod program;
#[cfg(feature = "program")]
mod protocol;
#[cfg(feature = "program")]
mod start;

#[cfg(all(feature = "program", any(test, fuzzing)))]
pub mod fuzz;
#[cfg(all(feature = "program", test))]
mod page;

#[cfg(feature = "program")]
pub use start::main;
