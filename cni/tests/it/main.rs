//! The crate from outside: conversions against golden files, chains with recorded plugins, real child processes.

#[cfg(test)]
mod convert;

#[cfg(test)]
mod chain;

#[cfg(test)]
mod exec;

#[cfg(test)]
mod recorder;
