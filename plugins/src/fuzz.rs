//! Fuzz targets of configurations, which come from whoever writes network definitions, and of the kernel's objects.
//! `docs/contributing/testing.md` says how they run.
//!
//! A target returns whether it accepted its input, and panics when an accepted input breaks an invariant of its reader.

use cni::Command;
use cni::version::SUPPORTED;

use crate::call::{Call, with_config};
use crate::config::CHECKS;
use crate::kernel;

/// `CNI_ARGS` in the first line, the configuration in the others; every plugin reads it, whatever its type.
pub fn configurations(input: &[u8]) -> bool {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (args, stdin) = input.split_at(end.unwrap_or(0));
    let call = Call::with_config("", &String::from_utf8_lossy(args));
    let Ok(call) = with_config(call, Command::Add, &SUPPORTED, stdin.to_vec()) else {
        return false;
    };
    assert!(!call.network.is_empty() && !call.network.contains('/'));
    let _ = (call.prev_result(), call.valid_attachments());
    let accepting = CHECKS.iter().filter(|(_, check)| check(&call).is_ok());
    // Others take nearly every object.
    accepting.count() > CHECKS.len() / 2
}

/// The bytes after the header of a message, read as an object of each kind.
pub fn netlink(input: &[u8]) -> bool {
    let kinds = [
        kernel::address::fuzz,
        kernel::link::fuzz,
        kernel::qdisc::fuzz,
        kernel::rule::fuzz,
    ];
    let found = kinds.map(|reads| reads(input));
    found.contains(&true)
}

#[cfg(test)]
mod tests {
    use testkit::fuzz::corpus::run;

    use super::*;

    #[test]
    fn configurations() {
        run("plugins_configurations", super::configurations);
    }

    #[test]
    fn netlink() {
        run("plugins_netlink", super::netlink);
    }

    #[test]
    fn every_plugin_with_keys_has_a_check() {
        let plugins = crate::plugin::PLUGINS.iter().map(|plugin| plugin.name);
        let checks = CHECKS.iter().map(|(name, _)| *name);
        let with_keys = plugins.filter(|name| *name != "loopback");
        let with_keys: Vec<_> = with_keys.chain([api::plugins::WHEREABOUTS]).collect();
        assert!(checks.eq(with_keys));
    }
}
