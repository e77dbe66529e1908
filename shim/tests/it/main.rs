//! The built shim against a daemon that is a few lines of this file, on a real socket.

#[cfg(test)]
mod support;

mod verbs;

mod absent;

mod bad_input;

mod passthru;
