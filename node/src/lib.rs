//! The facts of this node: its file tree, its container runtime, its CNI directories and versions.
//!
//! Nothing here decides what a pod gets; the crate only asks the node.

pub mod discover;
pub mod examination;

pub mod runtime;

pub mod config_files;
pub mod default_paths;
pub mod dirs;
pub mod status;

pub mod command_line;
pub mod containerd;
pub mod crio;

pub mod cri;
pub mod device_plugin;
pub mod grpc;
pub mod podresources;
pub mod process;

pub mod install;
pub mod record;

pub mod glob;
pub mod lock;
pub mod root;

mod report;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
