//! The start of the program: the name under which it runs says which plugin it is.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use cni::CniError;

use crate::protocol::Plugin;
use crate::{ipam, plugin, program, protocol};

/// Runs the plugin that the name of the program says, or a command of the program itself.
pub fn main() -> ExitCode {
    guard_against_panics();
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if name == "dhcp" && args.next().is_some_and(|arg| arg == "daemon") {
        return ipam::dhcp::daemon::run(args);
    }
    match plugin::find(&name) {
        Some(plugin) => run(plugin),
        None => program::run(args),
    }
}

/// Runs one verb of a plugin. Started by hand, without a verb, it says on stderr which plugin it is.
fn run(plugin: &Plugin) -> ExitCode {
    if std::env::var_os("CNI_COMMAND").is_none_or(|verb| verb.is_empty()) {
        let versions: Vec<_> = plugin.versions.iter().map(ToString::to_string).collect();
        let about = format!(
            "CNI {} plugin of multus-rs v{}\nCNI protocol versions supported: {}\n",
            plugin.name,
            env!("CARGO_PKG_VERSION"),
            versions.join(", ")
        );
        return exit(write(&mut std::io::stderr(), about.as_bytes()));
    }
    match protocol::run(plugin) {
        Ok(document) => exit(write(&mut std::io::stdout(), &document)),
        Err(error) => {
            write(&mut std::io::stdout(), &error.to_pretty());
            ExitCode::FAILURE
        }
    }
}

/// Makes a panic print a CNI error, since the caller reads nothing else. Nothing was printed before: the document is the last act.
fn guard_against_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        let error = CniError::new(CniError::INTERNAL, "the plugin panicked; this is a bug");
        write(
            &mut std::io::stdout(),
            &error.with_details(text).to_pretty(),
        );
        std::process::exit(1);
    }));
}

/// Returns whether everything was written.
pub(crate) fn write(to: &mut impl Write, bytes: &[u8]) -> bool {
    to.write_all(bytes).and_then(|()| to.flush()).is_ok()
}

pub(crate) fn exit(succeeded: bool) -> ExitCode {
    if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
