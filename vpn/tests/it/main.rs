//! The address plan against a model of the distro that gets it.

mod breaks;
mod k3s;
mod oracle;
mod third;
