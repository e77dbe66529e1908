//! What this node is: its file tree, its container runtime, its CNI directories and versions.
//!
//! Nothing here decides what a pod gets; it only finds out where things are, by asking.

pub mod discover;

pub mod configured;
pub mod containerd;
pub mod cri;
pub mod crio;
pub mod dirs;
pub mod install;
pub mod lock;
pub mod places;
pub mod podresources;
pub mod process;
pub mod record;
pub mod root;
pub mod runtime;
pub mod status;

pub mod command_line;
mod report;

#[cfg(test)]
mod fuzzed;
