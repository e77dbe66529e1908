//! The built program, from outside.

mod bad_input;
mod chart;
mod download;
mod registry;
mod server;
