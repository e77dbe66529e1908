//! The built program from outside: releases, media and a registry that the tests make.

mod connection;
mod explain;
mod fake_registry;
mod program;
mod push;
mod sample;
mod signatures;
mod tls;
mod verify;
