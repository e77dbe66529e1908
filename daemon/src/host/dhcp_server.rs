//! The mark of a `dhcp` plugin that a daemon started as a server, and how to end it. It outlives its daemon.

use tracing::info;

use super::orphans;

/// The file name of the plugin.
pub(crate) const PLUGIN: &str = "dhcp";
/// The variable in its environment by which a later daemon recognises it.
pub(crate) const MARK: (&str, &str) = ("MULTUS_KEEPS", PLUGIN);

/// Ends the plugins that this or an earlier daemon started, and returns their number.
pub fn end() -> usize {
    let ended = orphans::end_marked(MARK);
    if ended > 0 {
        info!("ended the plugin dhcp");
    }
    ended
}
