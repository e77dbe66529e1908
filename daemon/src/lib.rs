//! What `multus-daemon` is made of: deciding (`netconf`, `plan`, `netstatus`) apart from doing (`state`, `engine` and the
//! modules around them).

pub mod engine;
mod netlink;
mod node_files;
pub mod state;

pub mod access;
pub mod answer;
pub mod approve;
pub mod brief;
mod call;
pub mod certificate;
pub mod cluster;
pub mod commands;
pub mod confmgr;
pub mod devices;
pub mod dhcp;
mod dirwatch;
pub mod exec;
mod failure;
pub mod failures;
pub mod hotplug;
pub mod journal;
pub mod leftovers;
pub mod limits;
pub mod links;
pub mod logging;
pub mod metrics;
pub mod orphans;
pub mod readiness;
pub mod run;
pub mod server;
pub mod service;
pub mod serving;
pub mod socket;
pub mod upkeep;

#[cfg(test)]
mod fuzz;
