//! multus-shim: what the container runtime starts for every verb. It hands the call to the daemon on the node and prints the answer.
//!
//! Deliberately tiny and blocking: no async runtime, no TLS, no C. Called as `passthru` it is the plugin that does nothing.
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
    if args.any(|arg| asks_for_version(&arg)) {
        return output::print(Document::Text(format!("{}\n", api::version_line(name))));
    }
    let versions = if is_passthru {
        passthru::VERSIONS
    } else {
        &SUPPORTED
    };
    let environment = match Environment::read(std::env::vars_os()) {
        Ok(Some(environment)) => environment,
        Ok(None) => return output::about(name, versions),
        Err(error) => return output::print(Document::Error(error)),
    };
    let answer = if environment.command == Command::Version {
        Ok(Document::Text(version::answer(versions)))
    } else if is_passthru {
        call::read_stdin().and_then(|stdin| passthru::run(environment, stdin))
    } else {
        call::read_stdin().and_then(|stdin| attend(environment, stdin))
    };
    output::print(answer.unwrap_or_else(Document::Error))
}

/// One verb from beginning to end.
fn attend(environment: Environment, stdin: Vec<u8>) -> Result<Document, CniError> {
    let call = environment.with_config(stdin, &SUPPORTED)?;
    // Before ADD, when nothing has been made yet; after DEL, so that cleaning up is not held back.
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
    if call.command == Command::Del {
        netns::check(&call)?;
    }
    Ok(result.map_or(Document::Nothing, Document::Result))
}

fn asks_for_version(arg: &OsString) -> bool {
    ["-v", "-version", "--version"]
        .iter()
        .any(|flag| arg == flag)
}
