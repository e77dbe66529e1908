//! The crate from outside: conversions against golden files, chains with fake plugins, real child processes.

#![cfg(test)]

mod chain;
mod convert;
mod exec;
mod recorder;
