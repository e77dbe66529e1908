//! Tests the crate through its public functions.

mod medium;
mod verify;
