//! Tests of this crate through its public functions.

mod verify;
