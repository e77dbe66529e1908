//! Addresses of secondary networks for the whole cluster: never one address for two pods.
//!
//! [`range`] says which addresses a network may give, and in which block of 32 an address is.
//! [`config`] reads definitions, [`object`] the blocks of the API, and [`node`] is what a node does with one; these decide without I/O and
//! without a clock. [`service`] is what a node's daemon does for its pods: it keeps the [`store`] of records, sends what [`request`] writes, and
//! answers what comes by [`wire`]. Of pools of `whereabouts` it is a [`guest`].

pub mod claim;
pub mod config;
pub mod guest;
pub mod node;
pub mod object;
pub mod range;
pub mod request;
pub mod service;
pub mod store;
pub mod wire;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use config::{ConfigError, Definition, Sticky};
pub use object::{AddressBlock, Holder, Mode, ObjectError, Slot};
pub use range::{Block, Range, RangeError, Subnet};
