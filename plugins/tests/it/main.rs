//! Tests of the built program, started under the names of its plugins. They need no root: plugins that change a network namespace are
//! tested in e2e.

#![cfg(test)]

mod firewalld;
mod host_local;
mod ipam;
mod plugin;
mod portmap;
