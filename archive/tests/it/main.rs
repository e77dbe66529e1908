//! Tests the crate through its public functions.

mod verify;
