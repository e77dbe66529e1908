//! multus-shim: the CNI plugin that the container runtime starts for every verb. It forwards the call to the node's daemon and prints
//! the result.
//!
//! It is deliberately tiny and blocking: no async runtime, no TLS, no C. Under the name `passthru` it is the plugin that does nothing.
//! **Invariant**: stdout holds one CNI document or nothing, whatever happens.

mod call;

mod forward;
mod retry;

mod client;
mod http;

mod journal;
mod netns;
mod passthru;

mod log;
mod output;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use cni::version::{self, SUPPORTED};
use cni::{CniError, Command};

use crate::call::Environment;
use crate::forward::Timing;
use crate::output::Document;

fn main() -> ExitCode {
    output::guard_against_panics();
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let is_passthru = Path::new(&program)
        .file_name()
        .is_some_and(|name| name == "passthru");
    let name = if is_passthru {
        "passthru"
    } else {
        "multus-shim"
    };
    if args.any(|arg| is_version_flag(&arg)) {
        let line = api::version::line_of_shim(name);
        return output::print(Document::Text(line + "\n"));
    }
    let versions = if is_passthru {
        passthru::VERSIONS
    } else {
        &SUPPORTED
    };
    let environment = match Environment::read(std::env::vars_os()) {
        Ok(Some(environment)) => environment,
        Ok(None) => return output::print_usage(name, versions),
        Err(error) => return output::print(Document::Error(error)),
    };
    let document = if environment.command == Command::Version {
        Ok(Document::Text(version::version_output(versions)))
    } else if is_passthru {
        call::read_stdin().and_then(|stdin| passthru::run(environment, stdin))
    } else {
        call::read_stdin().and_then(|stdin| run(environment, stdin))
    };
    output::print(document.unwrap_or_else(Document::Error))
}

/// Runs one verb.
fn run(environment: Environment, stdin: Vec<u8>) -> Result<Document, CniError> {
    let call = environment.with_config(stdin, &SUPPORTED)?;
    // Before ADD, when nothing exists yet that would have to be undone; after DEL, so that the check cannot prevent the cleanup.
    if call.command == Command::Add {
        netns::check(&call)?;
    }
    let result = forward::forward(&call, &Timing::default());
    if let Err(error) = &result {
        call.log.error(&format!(
            "{} failed with code {}: {error}",
            call.command, error.code
        ));
    }
    let result = result?;
    if let Some((container, ifname)) = &call.attachment {
        call.log.verbose(&format!(
            "{} of {ifname} in container {container}: answered",
            call.command
        ));
    }
    if call.command == Command::Del {
        netns::check(&call)?;
    }
    Ok(result.map_or(Document::Nothing, Document::Result))
}

fn is_version_flag(arg: &OsString) -> bool {
    ["-v", "-V", "-version", "--version"]
        .iter()
        .any(|flag| arg == flag)
}
