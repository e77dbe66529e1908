//! The built program, from outside.

mod bad_input;
mod chart;
mod consumers;
mod download;
mod push;
mod release;
mod shared_builds;
