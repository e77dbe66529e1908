//! The mark of a `dhcp` plugin that a daemon started as a server, and how to end it. It outlives its daemon.

use std::path::Path;

use api::plugins::PROGRAM;
use tracing::info;

use super::orphans;

/// The file name of the plugin.
pub(crate) const PLUGIN: &str = "dhcp";
/// The variable in its environment by which a later daemon recognises it.
pub(crate) const MARK: (&str, &str) = ("MULTUS_KEEPS", PLUGIN);

/// Ends the plugins that this or an earlier daemon started, and returns their number.
pub fn end() -> usize {
    end_if(|_| true)
}

/// Ends those that run our own plugin, whose leases are on disk.
pub(crate) fn end_own() -> usize {
    end_if(|program| {
        // The kernel appends " (deleted)" to the path of a program that was replaced.
        let name = program.file_name().unwrap_or_default();
        name.to_string_lossy().split(' ').next() == Some(PROGRAM)
    })
}

fn end_if(is_meant: impl Fn(&Path) -> bool) -> usize {
    let ended = orphans::end_marked(MARK, &is_meant);
    if ended > 0 {
        info!("ended the plugin dhcp");
    }
    ended
}
