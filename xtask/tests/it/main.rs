//! The built program, from outside.

mod bad_input;
mod chart;
mod consumers;
mod download;
mod push;
mod registry;
mod release;
mod server;
mod shared_builds;
mod tls;
