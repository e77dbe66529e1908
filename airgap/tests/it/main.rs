//! The library's archives, and the built program from outside: releases, media, deltas and a registry that the tests make.

mod apply;
mod archive;
mod bundle;
mod explain;
mod program;
mod push;
mod registry;
mod sample;
mod signatures;
mod signed_deltas;
mod verify;
