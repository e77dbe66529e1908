//! The library's archives, and the built program from outside: releases, media and a registry that the tests make.

mod archive;
mod explain;
mod fake_registry;
mod program;
mod push;
mod sample;
mod signatures;
mod verify;
