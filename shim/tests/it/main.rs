//! The built shim against a scripted daemon on a real socket.

#![cfg(test)]

mod support;

mod bad_input;
mod passthru;
mod verbs;
mod without_daemon;
